//! What was done in a run, and what no fault explains.

use std::collections::BTreeMap;
use std::fmt;

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
    IoErrors,
    Hangs,
    TornTails,
    DamagedJournals,
    ClockSteps,
    Contexts,
}

impl Count {
    fn text(self) -> &'static str {
        match self {
            Count::Kills => "kills",
            Count::PowerCuts => "power cuts",
            Count::Stops => "stops",
            Count::Restarts => "restarts",
            Count::FullDisks => "full disks",
            Count::FailedSyncs => "failed syncs",
            Count::IoErrors => "read and write errors",
            Count::Hangs => "hanging disks",
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
