//! How much was tried, and whether that was all.

// Numbers are reported.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;

use crate::call::Kind;
use crate::disk::Fault;

/// How much was tried.
#[derive(Debug, Default)]
pub struct Tally {
    pub(crate) step: usize,
    /// Calls of one run without a fault.
    pub calls: BTreeMap<Kind, u64>,
    /// Nothing if a single call was asked for.
    pub tried: Vec<Tried>,
    pub checks: u64,
}

/// How much was tried with one fault.
#[derive(Debug)]
pub struct Tried {
    pub fault: Fault,
    /// The first call that fails in this way; then every `step`th.
    pub first: u64,
    /// Calls that can fail in this way, of one run without a fault.
    pub calls: u64,
    /// Runs in which one of them did.
    pub runs: u64,
}

impl Tally {
    /// Prints the numbers, for the table in docs/reliability.md.
    ///
    /// # Panics
    /// If calls of an operation that always makes the same ones were left out.
    pub fn report(&self, what: &str) {
        self.print(what);
        for tried in &self.tried {
            let (Tried { fault, runs, .. }, due) = (tried, tried.due(self.step as u64));
            assert!(*runs >= due, "{fault:?} came at {runs} calls instead of {due}");
        }
    }

    /// As `report`, for an operation that makes more calls in one run than in another, such as on a
    /// slow machine: each fault comes at every `step`th call of the shortest run without a fault.
    /// The check must see to it that all of these did what they should.
    ///
    /// # Panics
    /// If a fault has never come.
    pub fn report_varying(&self, what: &str) {
        self.print(what);
        for Tried { fault, runs, .. } in &self.tried {
            assert!(*runs > 0, "{fault:?} has never come");
        }
    }

    fn print(&self, what: &str) {
        let Tally { step, calls, tried, checks } = self;
        let all: u64 = calls.values().sum();
        let faults: u64 = tried.iter().map(|tried| tried.runs).sum();
        eprintln!("{what}: {all} calls {calls:?}, {faults} faults, {checks} checks, step {step}");
        for Tried { fault, first, calls, runs } in tried {
            eprintln!("{what}: {fault:?}: {runs} runs for {calls} calls, from call {first} on");
        }
    }
}

impl Tried {
    /// How often it must have come.
    fn due(&self, step: u64) -> u64 {
        (self.calls + step).saturating_sub(self.first) / step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_due_at_every_step_from_its_first_call_on() {
        let due =
            |first, calls, step| Tried { fault: Fault::Kill, first, calls, runs: 0 }.due(step);
        assert_eq!([due(1, 7, 1), due(1, 0, 1)], [7, 0]);
        assert_eq!(due(33, 365, 97), 4, "33, 130, 227 and 324");
        assert_eq!([due(97, 97, 97), due(97, 96, 97)], [1, 0]);
        assert_eq!(due(65, 3, 97), 0, "it makes fewer calls than that");
    }

    #[test]
    #[should_panic(expected = "Kill has never come")]
    fn a_fault_that_never_comes_is_noticed() {
        let tried = vec![Tried { fault: Fault::Kill, first: 1, calls: 3, runs: 0 }];
        Tally { step: 1, tried, ..Tally::default() }.report_varying("nothing");
    }
}
