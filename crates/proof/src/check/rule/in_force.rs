//! An acknowledged final finish or cancel is in force at the end: the job is listed with that
//! state, status and result, and after as many attempts. And it is the only one: of two such ends
//! without a retry between them, one was acknowledged wrongly. Tokens do not matter here, so this
//! also finds a late owner whose finish was accepted. A state in which a client has seen an ended
//! job is in force as well, unless a fault may have undone what was not synced.
//!
//! Cannot see: whether an end with an unknown answer is in force, which may be either; results, if
//! the listing does not have them; the last end of jobs that repeat or have children, except
//! cancels.

use crate::check::{Findings, Terms};
use crate::history::State;
use crate::ledger::{Account, End, Hold, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in &ledger.accounts {
        let mut ends: Vec<&End> = account.ends.iter().collect();
        ends.retain(|end| end.how.is_final() && end.span.done.is_some());
        ends.sort_by_key(|end| end.span.done);
        let looks = |end: &&End| matches!(end.how, How::Looked(_));
        let look = ends.iter().rev().copied().find(looks);
        if let Some(look) = look.filter(|look| !may_be_undone(ledger, look)) {
            last(ledger, account, look, found);
        }
        ends.retain(|end| !looks(end));
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
    // The one that was acknowledged later may have been in force first.
    let from = first.span.sent.at.min(second.span.sent.at);
    if account.may_have_rerun(from, second.span.until()) {
        return false;
    }
    let ordered = terms.before(first.span.until(), second.span.sent.at);
    ledger.runs_once(account) || (first.how == How::Cancel && ordered)
}

/// Whether what was seen may not have been synced, and have been undone.
fn may_be_undone(ledger: &Ledger, look: &End) -> bool {
    ledger.faults.may_undo(look.span.sent.at, ledger.end_at)
}

/// The number of the attempt that this report ended, if that is the newest. What the report of an
/// older one may do says `fence`.
fn attempt_of(account: &Account, end: &End) -> Option<u32> {
    let own = |hold: &&Hold| hold.token.is_some() && hold.token == end.token;
    let attempt = account.holds.iter().find(own)?.attempt;
    account.holds.iter().all(|hold| hold.attempt <= attempt).then_some(attempt)
}

/// Whether the job is listed as its last end left it.
fn last(ledger: &Ledger, account: &Account, end: &End, found: &mut Findings) {
    let binding = end.how == How::Cancel || ledger.runs_once(account);
    let later =
        |other: &End| other.how == How::BedrockCancel && other.span.until() >= end.span.sent.at;
    if !binding
        || account.may_have_rerun(end.span.sent.at, u64::MAX)
        || account.ends.iter().any(later)
    {
        return;
    }
    let Some(seen) = account.seen() else { return };
    found.judge();
    let expected = match end.how {
        How::Finish(status) if status / 100 == 2 => State::Finished,
        How::Finish(_) | How::BedrockFail => State::Failed,
        How::BedrockFinish => State::Finished,
        How::Cancel => State::Cancelled,
        How::Looked(state) => state,
        How::Release | How::BedrockRetry | How::BedrockCancel => return,
    };
    let status_differs = match (end.how, seen.status) {
        (How::Finish(sent), Some(seen)) => sent != seen,
        _ => false,
    };
    let attempts_differ = match end.how {
        How::Finish(_) => attempt_of(account, end).is_some_and(|attempt| attempt != seen.attempts),
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
    } else if attempts_differ {
        format!("is listed after {} attempts", seen.attempts)
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
