//! The jobd door: a worker that runs the jobs of a table which others fill, a master that speaks to
//! many workers, and a command line for both. Programs, configuration files, protocol and tables
//! are those of jobd, so that it can be exchanged in place.

pub mod config;
pub mod ctl;
pub mod ini;
pub mod log;
pub mod master;
mod memory_usage;
pub mod net;
pub mod password;
pub mod table;
pub mod wire;
pub mod worker;
