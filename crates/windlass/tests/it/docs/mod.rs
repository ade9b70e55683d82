//! The documents are true: the guide, the examples, the table of requirements.

mod example;
mod guide;
mod requirement;
mod test_name;
