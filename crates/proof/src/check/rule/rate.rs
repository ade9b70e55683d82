//! In any time, no more jobs of a type start on all daemons together than its `rate` allows: rate ×
//! time + burst. The burst is what the rate allows in a second, at least one. A start has no exact
//! time: it was after the request, and before its answer. A new rate counts one lease after its
//! acknowledgement.
//!
//! Cannot see: windows in which the store may have forgotten what it had not synced (claims among
//! it, with their starts), or across a change of the rate. For handlers, each window is longer by
//! `claim_ahead_ns`, so only a small value of it makes this rule strict.

use crate::check::{Findings, Terms};
use crate::ledger::{Hold, Ledger, Start};

use super::segment::{Segment, segments};

/// For rounding, in starts.
const TOLERANCE: f64 = 1e-6;

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    if ledger.types.iter().all(|of| of.limits.is_empty()) {
        return;
    }
    let starts = ledger.starts_by_type();
    for (of, starts) in ledger.types.iter().zip(&starts) {
        for mut segment in segments(of) {
            let Some(rate) = segment.limits.rate else { continue };
            segment.from = segment.from.saturating_add(terms.lease_ns);
            for segment in without_forgetting(ledger, segment) {
                windows(ledger, starts, &segment, rate, terms, found);
            }
        }
    }
}

/// The parts of a segment in which no fault may undo claims.
fn without_forgetting(ledger: &Ledger, segment: Segment) -> Vec<Segment> {
    let (mut parts, mut from) = (Vec::new(), segment.from);
    for (undone_from, undone_to) in ledger.faults.undoing() {
        if undone_from > from {
            parts.push(Segment { from, to: undone_from.min(segment.to), ..segment });
        }
        from = from.max(undone_to);
    }
    parts.push(Segment { from, ..segment });
    parts.retain(|part| part.from < part.to);
    parts
}

/// Looks for the window with the most starts too many. With starts in the order of their latest
/// times, `count - rate × time` of a window from i to j is a difference of two terms, one of i and
/// one of j; the smallest term of all i before j is enough.
fn windows(
    ledger: &Ledger,
    starts: &[Start],
    segment: &Segment,
    rate: f64,
    terms: &Terms,
    found: &mut Findings,
) {
    let first = starts.partition_point(|start| ledger.hold(*start).began.at <= segment.from);
    let within = |start: &&Start| {
        ledger.hold(**start).not_before(terms) > segment.from.saturating_add(terms.slack_ns)
    };
    let until = |start: &&Start| ledger.hold(**start).began.at <= segment.to;
    let starts: Vec<&Start> = starts[first..].iter().take_while(until).filter(within).collect();
    let burst = rate.floor().max(1.0);
    let mut from = earliest(ledger, &starts, terms);
    from.iter_mut().for_each(|at| *at = at.saturating_sub(terms.slack_ns));
    let allowed_by = |at: u64| rate * (at as f64 / 1e9);
    let mut best: Option<(f64, usize)> = None;
    for (index, start) in starts.iter().enumerate() {
        found.judge();
        let term = index as f64 - allowed_by(from[index]);
        if best.is_none_or(|(smallest, _)| term < smallest) {
            best = Some((term, index));
        }
        let hold = ledger.hold(**start);
        let here = (index + 1) as f64 - allowed_by(hold.began.at);
        let Some((smallest, since)) = best else { continue };
        if here - smallest > burst + TOLERANCE {
            let count = index + 1 - since;
            let ms = (hold.began.at - from[since]) / 1_000_000;
            let what = format!("{count} jobs started within {ms} ms, at a rate of {rate}");
            let ends = [starts[since], *start].map(|start| &ledger.accounts[start.account]);
            let holds: [&Hold; 2] = [starts[since], *start].map(|start| ledger.hold(*start));
            let evidence =
                ends.iter().zip(holds).map(|(job, hold)| ledger.hold_evidence(job, hold));
            found.add(ends.iter().map(|account| account.id), what, evidence);
        }
    }
}

/// For each start, the earliest time at which it or a later one may have been: never falls.
fn earliest(ledger: &Ledger, starts: &[&Start], terms: &Terms) -> Vec<u64> {
    let mut from: Vec<u64> =
        starts.iter().map(|start| ledger.hold(**start).not_before(terms)).collect();
    let mut earliest = u64::MAX;
    for at in from.iter_mut().rev() {
        earliest = earliest.min(*at);
        *at = earliest;
    }
    from
}
