//! The jobd door: a worker that runs jobs from a table which other programs fill, a master for many
//! workers, and a command line for both. Programs, configuration files, protocol and tables are
//! those of jobd, so that it is a drop-in replacement.
//!
//! | module | owns |
//! |---|---|
//! | `daemon` | the two daemons, from configuration to shutdown |
//! | `worker`, `master` | their work |
//! | `ctl` | the command line |
//! | `client` | a client for other programs |
//! | `config`, `ini`, `password` | the configuration files |
//! | `net`, `wire` | connections and messages |
//! | `table` | the jobs, in every database |
//! | `fuzz` | rules for any message and file, for the fuzzer and the tests |
//! | `log`, `memory_usage` | the log, and the memory usage in `status` |

mod client;
mod config;
mod ctl;
mod daemon;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
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
