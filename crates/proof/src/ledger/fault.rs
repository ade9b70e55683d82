//! Which fault may have touched a hold, in logarithmic time.
//!
//! A fault reaches from its begin to its end and one lease further: only then is every lease that
//! it cost its owner broken, or renewed again.

use std::collections::HashMap;

use crate::history::{FaultKind, Target};

use super::account::{FaultAccount, Hold};
use super::name::{Name, Names};

#[derive(Debug, Default)]
pub(crate) struct Faults {
    all: Intervals,
    daemons: HashMap<Name, Intervals>,
    holders: HashMap<Name, Intervals>,
    /// Every fault, whatever its target.
    any: Intervals,
    /// Those after which commits may be gone that were not synced.
    undoing: Intervals,
    /// When the clock was set, and by how many nanoseconds, in either direction.
    clock_steps: Vec<(u64, u64)>,
    /// When the store forgot what it had not synced, while daemons lived on.
    forgets: Intervals,
    /// When daemons were stopped; one may hold the store's lock meanwhile.
    stops: Intervals,
    /// When daemons may have had no answer from the store; `None` stands for all of them.
    cut_off: HashMap<Option<Name>, Intervals>,
}

impl Faults {
    pub(crate) fn new(
        faults: impl Iterator<Item = FaultAccount>,
        names: &mut Names,
        lease_ns: u64,
    ) -> Faults {
        let mut index = Faults::default();
        for fault in faults {
            let from = fault.began.at;
            let to = fault.ended.map_or(u64::MAX, |ended| ended.at.saturating_add(lease_ns));
            index.any.add(from, to);
            if undoes(fault.kind) {
                index.undoing.add(from, to);
            }
            let ended = fault.ended.map_or(u64::MAX, |ended| ended.at);
            let whose = match &fault.target {
                Target::All => {
                    index.all.add(from, to);
                    Some(None)
                }
                Target::Daemon(name) => {
                    let name = names.of(name);
                    if fault.kind == FaultKind::Stop {
                        index.stops.add(from, ended);
                    }
                    index.daemons.entry(name).or_default().add(from, to);
                    Some(Some(name))
                }
                Target::Holder(name) => {
                    index.holders.entry(names.of(name)).or_default().add(from, to);
                    None
                }
            };
            if let Some(whose) = whose.filter(|_| cuts_off(fault.kind)) {
                index.cut_off.entry(whose).or_default().add(from, ended);
            }
            if fault.kind == FaultKind::StoreForgets {
                index.forgets.add(from, ended);
            }
            if let FaultKind::ClockStep { by_ms } = fault.kind {
                index.clock_steps.push((from, by_ms.unsigned_abs().saturating_mul(1_000_000)));
            }
        }
        let lines = index.daemons.values_mut().chain(index.holders.values_mut());
        lines.chain(index.cut_off.values_mut()).for_each(Intervals::sort);
        index.all.sort();
        index.forgets.sort();
        index.stops.sort();
        index.any.sort();
        index.undoing.sort();
        index
    }

    /// Whether a fault that concerns the holder reached into this time.
    pub(crate) fn touch(&self, hold: &Hold, from: u64, to: u64) -> bool {
        self.lines(hold).any(|line| line.touch(from, to))
    }

    /// Whether any fault at all reached into this time.
    pub(crate) fn touch_any(&self, from: u64, to: u64) -> bool {
        self.any.touch(from, to)
    }

    /// Whether a fault reached into this time that may undo what was not synced.
    pub(crate) fn may_undo(&self, from: u64, to: u64) -> bool {
        self.undoing.touch(from, to)
    }

    /// The times, in order, in which a fault may undo what was not synced.
    pub(crate) fn undoing(&self) -> impl Iterator<Item = (u64, u64)> {
        self.undoing.iter()
    }

    /// When the next fault that concerns the holder begins.
    pub(crate) fn next_after(&self, hold: &Hold, at: u64) -> Option<u64> {
        self.lines(hold).filter_map(|line| line.next_after(at)).min()
    }

    /// Whether the store may have forgotten within this time what it had answered.
    pub(crate) fn may_have_forgotten(&self, from: u64, to: u64) -> bool {
        self.forgets.touch(from, to)
    }

    /// When all stops of daemons were over that were under way in between.
    pub(crate) fn stops_over(&self, from: u64, to: u64) -> Option<u64> {
        self.stops.last_end(from, to)
    }

    /// Whether this daemon may have had no answer from the store at some time in between.
    pub(crate) fn may_cut_off(&self, daemon: Option<Name>, from: u64, to: u64) -> bool {
        let lines = [None, daemon].map(|whose| self.cut_off.get(&whose));
        lines.into_iter().flatten().any(|line| line.touch(from, to))
    }

    /// By how much the wall clock was set between these times, in all.
    pub(crate) fn clock_moved_ns(&self, from: u64, to: u64) -> u64 {
        let within = self.clock_steps.iter().filter(|(at, _)| (from..=to).contains(at));
        within.fold(0, |sum, (_, by)| sum.saturating_add(*by))
    }

    fn lines(&self, hold: &Hold) -> impl Iterator<Item = &Intervals> {
        let daemon = hold.daemon.and_then(|name| self.daemons.get(&name));
        let holder = self.holders.get(&hold.by);
        [Some(&self.all), daemon, holder].into_iter().flatten()
    }
}

/// What is done to a journal undoes nothing: it gets bytes behind its last record, or a bit that
/// flips back.
fn undoes(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::PowerCut | FaultKind::StoreForgets | FaultKind::FailedSync)
}

fn cuts_off(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::DiskHang
            | FaultKind::StoreHang
            | FaultKind::Partition
            | FaultKind::DiskFull
            | FaultKind::ReadError
            | FaultKind::WriteError
            | FaultKind::FailedSync
    )
}

/// Intervals in the order of their begin.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    spans: Vec<(u64, u64)>,
    /// The latest end of each span and all before it.
    reach: Vec<u64>,
}

impl Intervals {
    pub(super) fn add(&mut self, from: u64, to: u64) {
        self.spans.push((from, to));
    }

    pub(super) fn extend_ends(&mut self, by: u64) {
        self.spans.iter_mut().for_each(|(_, to)| *to = to.saturating_add(by));
    }

    pub(super) fn sort(&mut self) {
        self.spans.sort_unstable();
        let ends = self.spans.iter().scan(0, |latest, (_, to)| {
            *latest = (*latest).max(*to);
            Some(*latest)
        });
        self.reach = ends.collect();
    }

    pub(crate) fn touch(&self, from: u64, to: u64) -> bool {
        self.last_end(from, to).is_some()
    }

    /// The last end of the intervals that reach into this time.
    fn last_end(&self, from: u64, to: u64) -> Option<u64> {
        let begun = self.spans.partition_point(|(begin, _)| *begin <= to);
        self.reach[..begun].last().copied().filter(|end| *end >= from)
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spans.iter().copied()
    }

    fn next_after(&self, at: u64) -> Option<u64> {
        self.spans.get(self.spans.partition_point(|(begin, _)| *begin < at)).map(|span| span.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_found_where_they_overlap_and_nowhere_else() {
        let mut line = Intervals::default();
        line.add(50, 60);
        line.add(10, 100);
        line.add(200, 210);
        line.sort();
        for (from, to, touched) in
            [(0, 9, false), (0, 10, true), (70, 80, true), (101, 199, false), (205, 300, true)]
        {
            assert_eq!(line.touch(from, to), touched, "{from}..{to}");
        }
        assert_eq!([0, 11, 201].map(|at| line.next_after(at)), [Some(10), Some(50), None]);
    }
}
