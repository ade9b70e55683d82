//! The verdict on a history. A verdict without violations is worth as much as the history has in
//! it, so the report says that too.

use std::collections::BTreeMap;
use std::fmt;

use crate::ledger::Ledger;

use super::violation::{Findings, Violation};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Of each rule, the first ones.
    pub violations: Vec<Violation>,
    /// All, by rule; rules that found nothing are not there.
    pub totals: Vec<(&'static str, u64)>,
    pub coverage: Coverage,
}

/// How much there was to check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    pub events: u64,
    /// Adds that were acknowledged.
    pub adds: u64,
    /// Jobs of acknowledged adds.
    pub jobs: u64,
    /// Jobs in the final listing.
    pub listed: u64,
    /// Attempts of handlers and workers.
    pub attempts: u64,
    /// Attempts beyond the first of a job that runs once; all of them are explained.
    pub repeated: u64,
    pub faults: u64,
    /// Files whose last line was torn.
    pub torn_files: u64,
    /// By rule: cases in which a breach would have been found. A rule with none has shown nothing.
    pub judged: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(super) fn new(coverage: Coverage) -> Report {
        Report { coverage, ..Report::default() }
    }

    pub(super) fn take(&mut self, found: Findings) {
        self.coverage.judged.insert(found.rule, found.judged);
        if found.total > 0 {
            self.totals.push((found.rule, found.total));
            self.violations.extend(found.kept);
        }
    }

    pub(super) fn name_files(&mut self, names: &[String]) {
        for evidence in self.violations.iter_mut().flat_map(|violation| &mut violation.evidence) {
            evidence.file = names.get(evidence.source as usize).cloned().unwrap_or_default();
        }
    }

    /// Whether no rule found anything.
    pub fn is_clean(&self) -> bool {
        self.totals.is_empty()
    }
}

impl Coverage {
    pub(super) fn of(ledger: &Ledger) -> Coverage {
        let accounts = &ledger.accounts;
        let count = |n: usize| n as u64;
        let beyond_first = accounts.iter().filter(|account| ledger.runs_once(account));
        Coverage {
            events: ledger.events,
            adds: count(ledger.adds.iter().filter(|add| add.span.done.is_some()).count()),
            jobs: count(accounts.iter().filter(|account| account.acknowledged).count()),
            listed: count(accounts.iter().filter(|account| account.seen.is_some()).count()),
            attempts: accounts.iter().map(|account| count(account.holds.len())).sum(),
            repeated: beyond_first.map(|job| count(job.holds.len().saturating_sub(1))).sum(),
            faults: ledger.fault_count,
            torn_files: 0,
            judged: BTreeMap::new(),
        }
    }

    /// The rules that had nothing to judge.
    pub fn idle_rules(&self) -> Vec<&'static str> {
        self.judged.iter().filter(|(_, count)| **count == 0).map(|(rule, _)| *rule).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coverage { events, adds, jobs, listed, attempts, repeated, faults, torn_files, .. } =
            &self.coverage;
        writeln!(
            f,
            "{events} events: {adds} adds of {jobs} jobs, {listed} listed at the end, {attempts} \
             attempts ({repeated} repeated), {faults} faults, {torn_files} torn files"
        )?;
        let idle = self.coverage.idle_rules();
        if !idle.is_empty() {
            writeln!(f, "rules that had nothing to judge: {}", idle.join(", "))?;
        }
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        for (rule, total) in &self.totals {
            writeln!(f, "{rule}: {total} violations")?;
        }
        if self.is_clean() { f.write_str("no violations") } else { Ok(()) }
    }
}
