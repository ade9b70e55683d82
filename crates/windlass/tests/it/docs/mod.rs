//! The documents are true: the guide, the examples, the maps of the code, the tables of tests.

mod example;
mod guide;
mod path;
mod requirement;
mod test_name;
