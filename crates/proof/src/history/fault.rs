//! Faults: what was done to the daemons, their store and their disks while clients were at work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was done. Each has a begin and an end in the history; the end of a kill or a restart is
/// that the daemon is ready again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// SIGKILL.
    Kill,
    /// SIGSTOP; ends with SIGCONT.
    Stop,
    /// SIGTERM and a start: the daemon hands back what it does not finish.
    Restart,
    /// Everything that was not synced is gone.
    PowerCut,
    DiskFull,
    ReadError,
    WriteError,
    FailedSync,
    /// The wall clock was set; negative is back.
    ClockStep {
        by_ms: i64,
    },
    /// A journal got bytes behind its last record, as of a write that was not completed, while its
    /// daemon was down. No record is gone.
    TornTail,
    /// A bit in the middle of a journal was changed while its daemon was down, and changed back
    /// when that had been noticed. No record is gone.
    DamagedJournal,
    /// The disk does not answer, and with it store and journals.
    DiskHang,
    /// The store does not answer.
    StoreHang,
    /// The store forgot what it had not synced, while the daemons lived on.
    StoreForgets,
    /// The network between a daemon and the store was cut.
    Partition,
}

/// What it was done to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Everything that all daemons share: the store, the disk, the clock, the machine.
    All,
    Daemon(String),
    /// A context, by the name that its handler writes down, or a worker, by its name.
    Holder(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::All => f.write_str("all daemons"),
            Target::Daemon(name) | Target::Holder(name) => f.write_str(name),
        }
    }
}
