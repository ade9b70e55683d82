//! No more jobs of a type are held at a time than its `concurrency` allows. Counted are holders
//! that certainly had their job, and that got it while the limit was in force: jobs that ran before
//! a limit was set may go on.
//!
//! Cannot see: the time between a daemon's claim and the begin of the handler; what happens while a
//! limit is being changed, and after a change whose answer was lost; holders that a fault touched;
//! jobs that Bedrock workers have with `retryAfter`, which do not count as running.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::check::{Findings, Terms};
use crate::ledger::{Ledger, Start};

use super::segment::{Segment, segments};

/// Holders that are shown as evidence.
const SHOWN_MAX: usize = 8;

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    if ledger.types.iter().all(|of| of.limits.is_empty()) {
        return;
    }
    let starts = ledger.starts_by_type();
    for (of, starts) in ledger.types.iter().zip(&starts) {
        for segment in segments(of) {
            if let Some(most) = segment.limits.concurrency {
                sweep(ledger, starts, &segment, most as usize, terms, found);
            }
        }
    }
}

fn sweep(
    ledger: &Ledger,
    starts: &[Start],
    segment: &Segment,
    most: usize,
    terms: &Terms,
    found: &mut Findings,
) {
    let first = starts.partition_point(|start| ledger.hold(*start).began.at < segment.from);
    let mut held: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
    for start in &starts[first..] {
        let (account, hold) = (&ledger.accounts[start.account], ledger.hold(*start));
        let now = hold.began.at;
        if now > segment.to {
            break;
        }
        let certain = terms.before(segment.from, hold.not_before(terms));
        if !certain || hold.lent || ledger.may_be_stale(account, hold, terms) {
            continue;
        }
        while held.peek().is_some_and(|Reverse((until, ..))| !terms.before(now, *until)) {
            held.pop();
        }
        found.judge();
        let until = ledger.certain_until(account, hold, terms);
        held.push(Reverse((until, start.account, start.hold)));
        if held.len() > most {
            let others = held.iter().map(|Reverse((_, account, hold))| {
                let account = &ledger.accounts[*account];
                (account.id, ledger.hold_evidence(account, &account.holds[*hold]))
            });
            let (jobs, evidence): (Vec<_>, Vec<_>) = others.take(SHOWN_MAX).unzip();
            let what = format!("{} jobs were held at once where {most} may be", held.len());
            found.add(jobs, what, evidence);
        }
    }
}
