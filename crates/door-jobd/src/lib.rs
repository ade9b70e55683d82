//! The jobd door: a worker that runs the jobs of a table which others fill, a master that speaks to
//! many workers, and a command line for both. Programs, configuration files, protocol and tables
//! are those of jobd, so that it can be exchanged in place.
//!
//! | module | owns |
//! |---|---|
//! | `daemon` | the two daemons, from their configuration to their end |
//! | `worker`, `master` | what they do |
//! | `ctl` | the command line |
//! | `client` | asking a daemon, for other programs |
//! | `config`, `ini`, `password` | the configuration files |
//! | `net`, `wire` | connections and messages |
//! | `table` | the jobs, in every database |
//! | `log`, `memory_usage` | what people and programs look at |

mod client;
mod config;
mod ctl;
mod daemon;
mod ini;
mod log;
mod master;
mod memory_usage;
mod net;
mod password;
mod table;
mod wire;
mod worker;

pub use client::Client;
pub use ctl::run as ctl;
pub use daemon::Daemon;
pub use log::Log;
