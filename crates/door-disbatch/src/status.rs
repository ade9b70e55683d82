//! What the status of a task means.

/// It was running, and its outcome is unknown.
pub(crate) const ORPHANED: i32 = -6;
pub(crate) const CANCELLED: i32 = -5;
/// It waits for a time or for other tasks.
pub(crate) const BLOCKED: i32 = -4;
pub(crate) const QUEUED: i32 = -2;
/// A node has claimed it but not yet started it.
pub(crate) const CLAIMED: i32 = -1;
pub(crate) const RUNNING: i32 = 0;
pub(crate) const SUCCEEDED: i32 = 1;
/// Every higher number is a failure too, defined by the plugin.
pub(crate) const FAILED: i32 = 2;

/// The statuses that count against limits.
pub(crate) const ACTIVE: [i32; 2] = [CLAIMED, RUNNING];

/// The class in which a task is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Queued,
    Running,
    Completed,
    /// Counted as queued by the original, although no node will ever take it.
    Orphaned,
}

impl Class {
    pub(crate) fn of(status: i64) -> Self {
        match status {
            -6 => Self::Orphaned,
            ..=-2 => Self::Queued,
            -1 | 0 => Self::Running,
            1.. => Self::Completed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_one_class() {
        let classes = [-7, -6, -5, -2, -1, 0, 1, 2, 900].map(Class::of);
        use Class::{Completed, Orphaned, Queued, Running};
        assert_eq!(
            classes,
            [Queued, Orphaned, Queued, Queued, Running, Running, Completed, Completed, Completed]
        );
    }
}
