//! An acknowledged final finish or cancel is in force at the end: the job is listed with that
//! state, status and result. And it is the only one: of two such ends without a retry between them,
//! one was acknowledged wrongly. Tokens do not matter here, so this also finds a late owner whose
//! finish was accepted.
//!
//! Cannot see: whether an end with an unknown answer is in force, which may be either; results, if
//! the listing does not have them; the last end of jobs that repeat or have children, except
//! cancels.

use crate::check::{Findings, Terms};
use crate::history::State;
use crate::ledger::{Account, End, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in &ledger.accounts {
        let mut ends: Vec<&End> = account.ends.iter().collect();
        ends.retain(|end| end.how.is_final() && end.span.done.is_some());
        ends.sort_by_key(|end| end.span.done);
        for pair in ends.windows(2) {
            if both_at_once(ledger, account, pair[0], pair[1], terms) {
                let evidence = pair.iter().map(|end| ledger.end_evidence(account, end));
                let what = format!("job {} was ended twice", account.id);
                found.add([account.id], what, evidence);
            }
        }
        if let Some(end) = ends.last() {
            last(ledger, account, end, found);
        }
    }
}

/// Whether both ends were acknowledged for one life of the job.
fn both_at_once(
    ledger: &Ledger,
    account: &Account,
    first: &End,
    second: &End,
    terms: &Terms,
) -> bool {
    if account.may_have_rerun(first.span.sent.at, second.span.until()) {
        return false;
    }
    let ordered = terms.before(first.span.until(), second.span.sent.at);
    ledger.runs_once(account) || (first.how == How::Cancel && ordered)
}

/// Whether the job is listed as its last end left it.
fn last(ledger: &Ledger, account: &Account, end: &End, found: &mut Findings) {
    let binding = end.how == How::Cancel || ledger.runs_once(account);
    if !binding || account.may_have_rerun(end.span.sent.at, u64::MAX) {
        return;
    }
    let Some(seen) = account.seen() else { return };
    let expected = match end.how {
        How::Finish(status) if status / 100 == 2 => State::Finished,
        How::Finish(_) | How::BedrockFail => State::Failed,
        How::BedrockFinish => State::Finished,
        How::Cancel => State::Cancelled,
        How::Release | How::BedrockRetry => return,
    };
    let status_differs = match (end.how, seen.status) {
        (How::Finish(sent), Some(seen)) => sent != seen,
        _ => false,
    };
    let result_differs = match (&end.data, &seen.result) {
        (Some(sent), Some(seen)) => **sent != **seen,
        _ => false,
    };
    let wrong = if seen.state != expected {
        format!("is {:?}, not {expected:?}", seen.state)
    } else if status_differs {
        "has another status".to_owned()
    } else if result_differs {
        "has another result".to_owned()
    } else {
        return;
    };
    let evidence = ledger.seen_evidence(account).into_iter();
    let evidence = evidence.chain([ledger.end_evidence(account, end)]);
    let what = format!("the acknowledged end of job {} is not in force: it {wrong}", account.id);
    found.add([account.id], what, evidence);
}
