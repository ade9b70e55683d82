//! Keys: the first one, how commands find one, how daemons agree about them; and the audit.

mod audit;
mod command;
mod first_start;
mod force;
