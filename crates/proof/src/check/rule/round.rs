//! A job that repeats comes due again: after the end of a round, its next one begins within
//! `round_max_ns`, or a client ends or changes the job before that. Waiting in line is no breach,
//! so it takes a younger job of the type, added when the next round was due and started within that
//! time: the line has come past the job. A daemon claims a batch as a whole, so for runs of
//! handlers it may be later by `claim_ahead_ns`.
//!
//! Checked for rounds that ended well, in times without a fault, without a change of the type and
//! while it has no limit, for jobs of ordinary priority that do not expire.
//!
//! Cannot see: rounds of which no witness wrote the end down; times between two rounds that are
//! shorter than the bound; the exact time of a round; types to which nobody adds anything.

use std::collections::BTreeMap;

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::{Account, Door, Hold, Ledger, ends_job};

use super::fairness::is_changed;

/// By type: when jobs were added that wait in line without further conditions, and when they
/// started, in the order of their adds.
type Lines = BTreeMap<usize, Vec<(u64, u64)>>;

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let Some(most) = terms.round_max_ns else { return };
    let lines = lines(ledger);
    for account in ledger.accounts.iter().filter(|account| ledger.certainly_repeats(account)) {
        let of_form = ledger.add_of(account);
        if of_form.is_none_or(|add| add.expires_ns.is_some() || add.priority.is_some()) {
            continue;
        }
        for (number, hold) in account.holds.iter().enumerate() {
            let Some(ended_at) = ended_well_at(account, hold) else { continue };
            let handled = hold.door == Door::Handler;
            let ahead = if handled { terms.claim_ahead_ns } else { 0 };
            let by = ended_at.saturating_add(most).saturating_add(ahead);
            // A run may begin up to a lease after a cancel that another daemon acknowledged.
            let from = hold.asked.at.saturating_sub(terms.lease_ns);
            let known_until = ledger.end_at.min(touched_at(account, from));
            let due_at = ended_at.saturating_add(terms.round_interval_ns);
            let passed_by = by.saturating_sub(ahead);
            let decided = known_until > by
                && is_calm(ledger, account, hold, by)
                && is_passed(&lines, account, due_at, passed_by);
            if !decided {
                continue;
            }
            found.judge();
            let next = account.holds.get(number + 1).map(|next| next.asked.at);
            if next.is_none_or(|next| next > by) {
                let what = format!("job {} repeats, but did not come due again", account.id);
                let evidence = ledger.add_evidence(account).into_iter();
                let evidence = evidence.chain([ledger.hold_evidence(account, hold)]);
                let evidence: Vec<Evidence> =
                    evidence.chain(ledger.seen_evidence(account)).collect();
                found.add([account.id], what, evidence);
            }
        }
    }
}

fn lines(ledger: &Ledger) -> Lines {
    let mut lines = Lines::new();
    for account in ledger.accounts.iter().filter(|account| account.acknowledged) {
        let add = ledger.add_of(account).filter(|add| add.is_plain() && add.priority.is_none());
        if let (Some(add), Some(of), Some(first)) = (add, account.of, account.holds.first()) {
            lines.entry(of.0).or_default().push((add.span.sent.at, first.began.at));
        }
    }
    lines.values_mut().for_each(|line| line.sort_unstable());
    lines
}

/// Whether a job of the same type was added after one time and started before the other.
fn is_passed(lines: &Lines, account: &Account, added_after: u64, started_by: u64) -> bool {
    let line = account.of.and_then(|of| lines.get(&of.0)).map_or(&[][..], Vec::as_slice);
    let younger = line.partition_point(|(sent, _)| *sent <= added_after);
    let before = line[younger..].iter().take_while(|(sent, _)| *sent < started_by);
    before.into_iter().any(|(_, began)| *began < started_by)
}

/// When this attempt certainly had ended its round.
fn ended_well_at(account: &Account, hold: &Hold) -> Option<u64> {
    if hold.door == Door::Handler {
        return hold.ended.filter(|_| hold.status.is_some_and(ends_job)).map(|ended| ended.at);
    }
    let own = |token| token == hold.token && hold.token.is_some();
    let end = account.ends.iter().find(|end| own(end.token) && end.how.is_final())?;
    end.span.done.map(|done| done.at)
}

/// When a client sent what may have done something to the job after this time, other than this
/// attempt's report.
fn touched_at(account: &Account, from: u64) -> u64 {
    let ends = account.ends.iter().filter(|end| end.token.is_none()).map(|end| &end.span);
    let spans = ends.chain(&account.reruns).chain(&account.deletes);
    let later = spans.filter(|span| span.until() >= from).map(|span| span.sent.at);
    later.min().unwrap_or(u64::MAX)
}

/// Nothing kept the type from its work, and its times are those of the present clock.
fn is_calm(ledger: &Ledger, account: &Account, hold: &Hold, until: u64) -> bool {
    let from = hold.asked.at;
    let added_at = ledger.add_of(account).map_or(0, |add| add.span.sent.at);
    let stepped = ledger.faults.clock_moved_ns(added_at, until) > 0;
    let changed = account.of.is_none_or(|of| is_changed(&ledger.types[of.0], from, until));
    !stepped && !changed && !ledger.faults.touch_any(from, until)
}
