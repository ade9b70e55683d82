//! The Disbatch door: an execution node, a task runner and a command interface on a MongoDB that
//! other programs use, too. Collections, documents, routes and configuration files are those of
//! Disbatch, in both of its dialects, so that it can work side by side with the original or replace
//! it.
//!
//! Those programs change the collections at any moment, so this door has no store and no engine:
//! `database` makes every change as one conditional update, and `doc` reads fields of any type. A
//! node decides in pure modules (`den::{liveness, lease, turn, limit}`) and acts in `den::node`: a
//! pass each second reads the other nodes, claims tasks and looks after its own, and a separate
//! task renews the lease. The fence of a node (`runner::fence`) ends everything that it started
//! before another node may declare it dead. The command interface reads and writes documents, and
//! never talks to a node.
//!
//! Our additions are in the field `windlass` of a document; all other fields keep their meaning.
//!
//! | module | owns |
//! |---|---|
//! | `config`, `relaxed` | the configuration file |
//! | `den` | the execution node |
//! | `task` | running one task, for the node and as a stand-alone program |
//! | `dci`, `balance` | the command interface and its balancer |
//! | `client` | the command line client of a command interface |
//! | `database`, `gridfs` | all changes to the collections |
//! | `doc`, `dialect`, `status` | documents, in both dialects |
//! | `fuzz` | rules for any request and file, for the fuzzer and the tests |

mod balance;
mod client;
mod config;
mod database;
mod dci;
mod den;
mod dialect;
mod doc;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod gridfs;
mod relaxed;
mod status;
mod task;
#[cfg(test)]
mod tests;

pub use client::{ClientEnv, Failure, client};
pub use config::{Config, DEFAULT_PATH};
pub use dci::run as dci;
pub use den::{Tools, run as den};
pub use task::{RunnerArgs, runner as task_runner};
