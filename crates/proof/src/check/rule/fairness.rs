//! A type with a ready job is not passed over for ever: while it waits, the consumers that finally
//! take its job start at most `passed_over_max` jobs of any one other type. Counted in jobs and not
//! in time, so that a slow machine is not an unfair queue, and for each other type alone, so that
//! many busy types are not either.
//!
//! Consumers are those that claim the same list of types, or the contexts of one daemon. Checked
//! for the first attempt of plain jobs of ordinary priority, in times without a fault, without a
//! change of the type, and while it has no limit. A daemon's own jobs must have been
//! added through it, because others reach it later.
//!
//! Bedrock's workers get the most urgent and oldest job of all types that they name, so they take
//! no part.
//!
//! Cannot see: types that are never served at all (`stuck` does, in a drained run); jobs of high or
//! low priority.

use std::collections::BTreeMap;

use crate::check::{Findings, Terms};
use crate::ledger::{Door, Hold, Ledger, Start, TypeAccount};

/// The starts of the same consumers by type, each in the order of their begin.
type Line = BTreeMap<usize, Vec<Start>>;

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let Some(most) = terms.passed_over_max else { return };
    let mut lines: BTreeMap<_, Line> = BTreeMap::new();
    for (index, account) in ledger.accounts.iter().enumerate() {
        let Some(of) = account.of else { continue };
        for (number, hold) in account.holds.iter().enumerate() {
            let line = lines.entry(hold.line).or_default();
            line.entry(of.0).or_default().push(Start { account: index, hold: number });
        }
    }
    for line in lines.values_mut() {
        for starts in line.values_mut() {
            starts.sort_by_key(|start| ledger.hold(*start).began);
        }
        for of in line.keys() {
            of_type(ledger, line, *of, terms, most, found);
        }
    }
}

/// Compares the waits of one type with what the same consumers started of the others meanwhile.
fn of_type(
    ledger: &Ledger,
    line: &Line,
    of: usize,
    terms: &Terms,
    most: u64,
    found: &mut Findings,
) {
    let mut before = 0;
    for start in &line[&of] {
        let (account, hold) = (&ledger.accounts[start.account], ledger.hold(*start));
        let last = std::mem::replace(&mut before, hold.began.at);
        let Some(ready_at) = ready_at(ledger, *start) else { continue };
        // Its context may have to be started first, while those of others are at work.
        let cold_ns = if hold.door == Door::Handler { terms.context_start_ns } else { 0 };
        let from = ready_at.max(last).saturating_add(cold_ns);
        // A breach would have shown by then.
        let others = line.iter().filter(|(other, _)| **other != of);
        let full = others.filter_map(|(_, starts)| full_at(ledger, starts, from, most)).min();
        let Some(full_at) = full else { continue };
        let decided = full_at.max(hold.asked.at);
        let disturbed = ledger.faults.touch_any(from, full_at)
            // By then, its time may have been ahead of the clock, or the type suspended.
            || ledger.faults.clock_moved_ns(ready_at, decided) > 0
            || is_changed(&ledger.types[of], from, decided);
        if disturbed {
            continue;
        }
        found.judge();
        if full_at >= hold.asked.at {
            continue;
        }
        let what = format!(
            "more than {most} jobs of another type were started while job {} was ready",
            account.id
        );
        let evidence = ledger.add_evidence(account).into_iter();
        let evidence = evidence.chain([ledger.hold_evidence(account, hold)]);
        found.add([account.id], what, evidence);
    }
}

/// When, after this time, one job too many of these had been claimed and started.
fn full_at(ledger: &Ledger, starts: &[Start], from: u64, most: u64) -> Option<u64> {
    let first = starts.partition_point(|start| ledger.hold(*start).began.at <= from);
    let passed = starts[first..].iter().map(|start| ledger.hold(*start));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    passed.filter(|hold| hold.asked.at > from).nth(most).map(|hold| hold.began.at)
}

/// Whether a client may have changed the type in this time, or a limit may be in force.
pub(super) fn is_changed(of: &TypeAccount, from: u64, to: u64) -> bool {
    of.changes.iter().any(|change| change.may_touch(from, to)) || is_limited(of, to)
}

fn is_limited(of: &TypeAccount, at: u64) -> bool {
    let earlier = of.limits.iter().filter(|limits| limits.span.sent.at <= at);
    let unknown = earlier.clone().any(|limits| limits.span.done.is_none());
    let last = earlier.max_by_key(|limits| limits.span.sent);
    unknown || last.is_some_and(|last| last.concurrency.is_some() || last.rate.is_some())
}

/// Since when the job was certainly ready, if it takes part.
fn ready_at(ledger: &Ledger, start: Start) -> Option<u64> {
    let (account, hold): (_, &Hold) = (&ledger.accounts[start.account], ledger.hold(start));
    let add = ledger.add_of(account).filter(|add| add.is_plain() && add.priority.is_none())?;
    let near = match hold.door {
        Door::Handler => add.via == hold.daemon,
        Door::Pull => true,
        Door::Bedrock => false,
    };
    let first = start.hold == 0 && hold.attempt == 1;
    let done = add.span.done.filter(|_| account.acknowledged)?;
    (near && first).then_some(done.at)
}
