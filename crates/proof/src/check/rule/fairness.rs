//! A type with a ready job is not passed over for ever: while it waits, the consumers that finally
//! take its job start at most `passed_over_max` jobs of other types. Counted in jobs and not in
//! time, so that a slow machine is not an unfair queue.
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

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let Some(most) = terms.passed_over_max else { return };
    let mut lines: BTreeMap<_, Vec<Start>> = BTreeMap::new();
    for (index, account) in ledger.accounts.iter().enumerate() {
        for (number, hold) in account.holds.iter().enumerate() {
            lines.entry(hold.line).or_default().push(Start { account: index, hold: number });
        }
    }
    for starts in lines.values_mut() {
        starts.sort_by_key(|start| ledger.hold(*start).began);
        line(ledger, starts, terms, most, found);
    }
}

fn line(ledger: &Ledger, starts: &[Start], terms: &Terms, most: u64, found: &mut Findings) {
    let mut last_start: BTreeMap<usize, u64> = BTreeMap::new();
    for start in starts {
        let (account, hold) = (&ledger.accounts[start.account], ledger.hold(*start));
        let Some(of) = account.of else { continue };
        let before = last_start.insert(of.0, hold.began.at);
        let Some(ready_at) = ready_at(ledger, *start) else { continue };
        // Its context may have to be started first, while those of others are at work.
        let cold_ns = if hold.door == Door::Handler { terms.context_start_ns } else { 0 };
        let from = ready_at.max(before.unwrap_or(0)).saturating_add(cold_ns);
        let to = hold.asked.at;
        let passed_from = starts.partition_point(|start| ledger.hold(*start).asked.at <= from);
        let passed_to = starts.partition_point(|start| ledger.hold(*start).began.at < to);
        let passed = passed_to.saturating_sub(passed_from) as u64;
        let of = &ledger.types[of.0];
        let changed = || of.changes.iter().any(|change| change.may_touch(from, to));
        if passed <= most || ledger.faults.touch_any(from, to) || changed() || is_limited(of, to) {
            continue;
        }
        let what =
            format!("{passed} jobs of other types were started while job {} was ready", account.id);
        let evidence = ledger.add_evidence(account).into_iter();
        let evidence = evidence.chain([ledger.hold_evidence(account, hold)]);
        found.add([account.id], what, evidence);
    }
}

/// Whether a limit may be in force at this time.
pub(super) fn is_limited(of: &TypeAccount, at: u64) -> bool {
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
