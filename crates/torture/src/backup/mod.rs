//! Backups under load: `windlass backup` while clients, workers and faults are at work; then each
//! backup is restored, run to its end, and checked.
//!
//! | module | owns |
//! |---|---|
//! | `take` | taking backups, and what had been seen to have ended by then |
//! | `cut` | the history as it was known when a backup began |
//! | `restored` | a daemon on a restored directory, and the verdict on it |

mod cut;
mod restored;
mod take;

use std::path::PathBuf;

pub(crate) use restored::judge;
pub(crate) use take::Backups;

/// A backup that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    dir: PathBuf,
    /// Everything that was acknowledged before this is in it.
    began_ns: u64,
    /// Nothing that was sent after this is in it.
    ended_ns: u64,
}
