//! The execution node: claims tasks from the queues of a shared database, runs them, and sends
//! heartbeats.
//!
//! | module | owns |
//! |---|---|
//! | `start` | what a node needs before it runs anything |
//! | `node` | the life cycle of a node: passes, shutdown, and loss of the name |
//! | `entry`, `lease` | the name and the lease: acquired, renewed, lost; when the fence may tick |
//! | `liveness`, `orphan` | silent nodes, and what happens to their tasks |
//! | `pass`, `turn`, `limit` | claims in fair turns, within every limit |
//! | `runs`, `reconcile` | the tasks of this node; comparison with the database |
//! | `plugins` | which queues are served, by which programs |
//! | `tend` | background work besides the passes: the next three |
//! | `due` | tasks that wait for a time or for others |
//! | `report`, `counters` | queue statistics of the seed's dialect |
//! | `settings`, `hook` | settings that change while it runs; the program before each pass |
//! | `invalid` | logs tasks that no node can take because of the types of their fields |
//! | `log_once`, `refusal` | logging a change once; continuing after a refused operation |
//! | `here` | facts about this machine |

mod counters;
mod due;
mod entry;
mod here;
mod hook;
mod invalid;
mod lease;
mod limit;
mod liveness;
mod log_once;
mod node;
mod orphan;
mod pass;
mod plugins;
mod reconcile;
mod refusal;
mod report;
mod runs;
mod settings;
mod start;
mod tend;
mod turn;

#[cfg(test)]
mod simulation_tests;

use std::sync::Arc;

use windlass_core::launch::{Fence, Launcher};
use windlass_program::Stop;

pub(crate) use self::lease::fence_time;
use self::node::Node;
use crate::config::Config;

/// What a node needs from its machine.
pub struct Tools {
    pub launcher: Arc<dyn Launcher>,
    /// Its mark must be new at every start, and its time limit must be [`Config::fence_time`].
    pub fence: Arc<dyn Fence>,
    /// The program's version, for the node's entry.
    pub version: String,
    /// Maximum number of tasks on this machine.
    pub runs_max: u64,
}

/// Runs an execution node until `stop`: then it claims nothing more, and running tasks have the
/// configured time to end.
///
/// # Errors
///
/// If it cannot start, or a fatal hook fails. It waits for a database that becomes unavailable
/// later.
pub async fn run(config: Config, tools: Tools, stop: Stop) -> Result<(), String> {
    let quiet = entry::idle(&tools.fence);
    let ready = tokio::select! {
        ready = start::start(&config, &tools) => ready?,
        () = stop.asked.cancelled() => return Ok(()),
    };
    drop(quiet);
    Node::new(config, tools, ready).live(&stop).await
}
