//! A job that repeats comes due again: after the end of a round, its next one begins within
//! `round_max_ns`, or a client ends or changes the job before that.
//!
//! Checked for rounds that ended well, in times without a fault, without a change of the type and
//! while it has no limit, for jobs that do not expire.
//!
//! Cannot see: rounds of which no witness wrote the end down; times between two rounds that are
//! shorter than the bound; the exact time of a round.

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::{Account, Door, Hold, Ledger, ends_job};

use super::fairness::is_limited;

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let Some(most) = terms.round_max_ns else { return };
    for account in ledger.accounts.iter().filter(|account| ledger.certainly_repeats(account)) {
        if ledger.add_of(account).is_none_or(|add| add.expires_ns.is_some()) {
            continue;
        }
        for (number, hold) in account.holds.iter().enumerate() {
            let Some(ended_at) = ended_well_at(account, hold) else { continue };
            let next = account.holds.get(number + 1).map(|next| next.asked.at);
            // A run may begin up to a lease after a cancel that another daemon acknowledged.
            let from = hold.asked.at.saturating_sub(terms.lease_ns);
            let until = next.unwrap_or(ledger.end_at).min(touched_at(account, from));
            if until.saturating_sub(ended_at) > most && is_calm(ledger, account, hold, until) {
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

fn is_calm(ledger: &Ledger, account: &Account, hold: &Hold, until: u64) -> bool {
    let from = hold.asked.at;
    account.of.is_some_and(|of| {
        let of = &ledger.types[of.0];
        let changed = of.changes.iter().any(|change| change.may_touch(from, until));
        !changed && !is_limited(of, until) && !ledger.faults.touch_any(from, until)
    })
}
