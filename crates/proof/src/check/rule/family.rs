//! A parent waits for its children, and they wait for its attempt to end. So a job and its parent
//! never have a holder at the same time; and after an attempt of a parent that ended well, the
//! parent does not run again before children that were there by then have run.
//!
//! Cannot see: families of which a client may have retried a member; children whose add was not
//! acknowledged; jobs that Bedrock workers have with `retryAfter`.

use crate::check::{Findings, Terms};
use crate::ledger::{Account, End, Hold, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for child in ledger.accounts.iter().filter(|account| account.acknowledged) {
        if !ledger.is_form_known(child) || !child.reruns.is_empty() {
            continue;
        }
        let Some(add) = ledger.add_of(child).filter(|add| add.key.is_none()) else { continue };
        let parent = add.parent.and_then(|id| ledger.account(id));
        let Some(parent) = parent.filter(|parent| parent.reruns.is_empty()) else { continue };
        if !parent.holds.is_empty() && !child.holds.is_empty() {
            found.judge();
        }
        if let Some((one, other)) = together(ledger, parent, child, terms) {
            let what = format!("job {} and its parent {} ran together", child.id, parent.id);
            report(ledger, (parent, one), (child, other), what, found);
        }
        let done_at = add.span.until();
        if let Some((one, other)) = overtaken(ledger, (parent, child), done_at, terms) {
            let what = format!("job {} did not wait for its child {}", parent.id, child.id);
            report(ledger, (parent, one), (child, other), what, found);
        }
    }
}

/// Holders of the parent and of the child at the same time.
fn together<'a>(
    ledger: &Ledger,
    parent: &'a Account,
    child: &'a Account,
    terms: &Terms,
) -> Option<(&'a Hold, &'a Hold)> {
    let sure =
        |account: &Account, hold: &&Hold| !hold.lent && !ledger.may_be_stale(account, hold, terms);
    for one in parent.holds.iter().filter(|hold| sure(parent, hold)) {
        let until = ledger.certain_until(parent, one, terms);
        for other in child.holds.iter().filter(|hold| sure(child, hold)) {
            let other_until = ledger.certain_until(child, other, terms);
            let from = one.began.at.max(other.began.at);
            if terms.before(from, until.min(other_until)) {
                return Some((one, other));
            }
        }
    }
    None
}

/// A run of the parent after an attempt that ended well, and a run of the child even later.
fn overtaken<'a>(
    ledger: &Ledger,
    (parent, child): (&'a Account, &'a Account),
    child_done_at: u64,
    terms: &Terms,
) -> Option<(&'a Hold, &'a Hold)> {
    let well = |end: &&End| match end.how {
        How::Finish(status) => status / 100 == 2,
        How::BedrockFinish => true,
        _ => false,
    };
    let ends = parent.ends.iter().filter(well);
    let mut ends = ends.filter(|end| terms.before(child_done_at, end.span.sent.at));
    let ended_at = ends.find_map(|end| end.span.done)?.at;
    let again = parent.holds.iter().find(|hold| terms.before(ended_at, hold.asked.at))?;
    let last = child.holds.last().filter(|last| terms.before(again.began.at, last.asked.at))?;
    let undone = ledger.faults.may_undo(child_done_at, last.began.at);
    let stale =
        ledger.may_be_stale(parent, again, terms) || ledger.may_be_stale(child, last, terms);
    (!undone && !stale).then_some((again, last))
}

fn report(
    ledger: &Ledger,
    (parent, one): (&Account, &Hold),
    (child, other): (&Account, &Hold),
    what: String,
    found: &mut Findings,
) {
    let runs = [ledger.hold_evidence(parent, one), ledger.hold_evidence(child, other)];
    let ends = parent.ends.iter().map(|end| ledger.end_evidence(parent, end));
    let evidence: Vec<_> = ledger.add_evidence(child).into_iter().chain(runs).chain(ends).collect();
    found.add([parent.id, child.id], what, evidence);
}
