//! What was done in a run, and what no fault explains.

use std::collections::BTreeMap;
use std::fmt;

use windlass_proof::history::FaultKind;

use crate::clock::Steps;

/// What is counted, in the order in which it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Count {
    Kills,
    PowerCuts,
    Stops,
    Restarts,
    FullDisks,
    FailedSyncs,
    ReadErrors,
    WriteErrors,
    DiskHangs,
    StoreHangs,
    /// Read, write and sync errors after which all daemons worked again without a restart.
    GoneOn,
    TornTails,
    DamagedJournals,
    ClockSteps,
    Contexts,
}

impl Count {
    /// What faults of this kind are counted as, if the run has them.
    fn of(kind: FaultKind) -> Option<Count> {
        Some(match kind {
            FaultKind::Kill => Count::Kills,
            FaultKind::Stop => Count::Stops,
            FaultKind::Restart => Count::Restarts,
            FaultKind::PowerCut => Count::PowerCuts,
            FaultKind::DiskFull => Count::FullDisks,
            FaultKind::ReadError => Count::ReadErrors,
            FaultKind::WriteError => Count::WriteErrors,
            FaultKind::FailedSync => Count::FailedSyncs,
            FaultKind::ClockStep { .. } => Count::ClockSteps,
            FaultKind::TornTail => Count::TornTails,
            FaultKind::DamagedJournal => Count::DamagedJournals,
            FaultKind::DiskHang => Count::DiskHangs,
            FaultKind::StoreHang => Count::StoreHangs,
            FaultKind::StoreForgets | FaultKind::Partition => return None,
        })
    }

    fn text(self) -> &'static str {
        match self {
            Count::Kills => "kills",
            Count::PowerCuts => "power cuts",
            Count::Stops => "stops",
            Count::Restarts => "restarts",
            Count::FullDisks => "full disks",
            Count::FailedSyncs => "failed syncs",
            Count::ReadErrors => "read errors",
            Count::WriteErrors => "write errors",
            Count::DiskHangs => "hanging disks",
            Count::StoreHangs => "hanging stores",
            Count::GoneOn => "I/O errors outlived without a restart",
            Count::TornTails => "torn journals",
            Count::DamagedJournals => "damaged journals",
            Count::ClockSteps => "clock steps",
            Count::Contexts => "faults of contexts",
        }
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Done {
    counts: BTreeMap<Count, u64>,
    /// What daemons did that no fault explains.
    pub(crate) problems: Vec<String>,
    /// How the daemons' clock was set.
    pub(crate) clock: Steps,
}

impl Done {
    pub(crate) fn add(&mut self, what: Count) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Those of these kinds that have not come.
    pub(crate) fn missing(&self, kinds: &[FaultKind]) -> Vec<&'static str> {
        let counts = kinds.iter().filter_map(|kind| Count::of(*kind));
        counts.filter(|count| !self.counts.contains_key(count)).map(Count::text).collect()
    }

    pub(crate) fn merge(&mut self, other: &Done) {
        for (what, count) in &other.counts {
            *self.counts.entry(*what).or_default() += count;
        }
        self.problems.extend_from_slice(&other.problems);
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.counts.iter().map(|(what, count)| format!("{count} {}", what.text()));
        f.write_str(&shown.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_and_never_came_is_missing() {
        let kinds = [FaultKind::Kill, FaultKind::ClockStep { by_ms: 0 }, FaultKind::TornTail];
        let mut done = Done::default();
        done.add(Count::Kills);
        assert_eq!(done.missing(&kinds), ["clock steps", "torn journals"]);
        // A fault of a context, and one that nobody asked for, stand for no other.
        done.add(Count::Contexts);
        done.add(Count::Stops);
        let mut all = Done::default();
        all.add(Count::ClockSteps);
        all.merge(&done);
        assert_eq!(all.missing(&kinds), ["torn journals"]);
        assert_eq!(all.missing(&[]), [""; 0]);
    }
}
