//! Keys: the first one, how commands find one, and how daemons agree about them.

mod command;
mod first_start;
mod force;
