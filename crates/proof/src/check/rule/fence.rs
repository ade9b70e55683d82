//! Only the newest claim of a job is obeyed: no finish, release, renewal or progress is
//! acknowledged that was sent with an older token when a newer one had been answered. And the
//! result of a job is not that of an attempt which ended when a newer one had begun.
//!
//! A power cut may undo a claim, and leave the job to the one before it.
//!
//! Cannot see: Bedrock, whose workers have no tokens; results, where the listing has none; results
//! of jobs that a client may have retried, and that repeat.

use crate::check::{Evidence, Findings, Terms};
use crate::history::Token;
use crate::ledger::{Account, Hold, Ledger, Span};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| account.holds.len() > 1) {
        let ends = account.ends.iter().filter_map(|end| Some((end.token?, end.span)));
        for (token, span) in ends.chain(account.touches.iter().copied()) {
            obeyed(ledger, account, (token, span), terms, found);
        }
        result(ledger, account, terms, found);
    }
}

fn obeyed(
    ledger: &Ledger,
    account: &Account,
    (token, span): (Token, Span),
    terms: &Terms,
    found: &mut Findings,
) {
    let Some(done) = span.done else { return };
    found.judge();
    let newer = |hold: &&Hold| {
        hold.token.is_some_and(|other| other > token)
            && terms.before(hold.began.at, span.sent.at)
            && !ledger.faults.may_undo(hold.asked.at, done.at)
    };
    if let Some(hold) = account.holds.iter().find(newer) {
        let stale = Evidence::new(done, format!("a request with token {token} was acknowledged"));
        let what = format!("an old token of job {} was accepted", account.id);
        found.add([account.id], what, [ledger.hold_evidence(account, hold), stale]);
    }
}

fn result(ledger: &Ledger, account: &Account, terms: &Terms, found: &mut Findings) {
    let Some(result) = account.seen().and_then(|seen| seen.result.as_deref()) else { return };
    if !ledger.runs_once(account) || !account.reruns.is_empty() {
        return;
    }
    let own = |hold: &&Hold| hold.data.as_deref() == Some(result);
    let Some(hold) = account.holds.iter().find(own) else { return };
    let newest = account.holds.iter().max_by_key(|hold| hold.attempt).unwrap_or(hold);
    let undone = ledger.faults.may_undo(newest.asked.at, ledger.end_at);
    let late = hold.ended.is_some_and(|ended| terms.before(newest.began.at, ended.at));
    if newest.attempt > hold.attempt && late && !undone {
        let what = format!("job {} has the result of an old attempt", account.id);
        let holds = [hold, newest].map(|hold| ledger.hold_evidence(account, hold));
        found.add([account.id], what, holds.into_iter().chain(ledger.seen_evidence(account)));
    }
}
