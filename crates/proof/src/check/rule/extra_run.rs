//! Each run of a job beyond the first has a reason. Of jobs that run once, every run is compared
//! with the one before it; of jobs that repeat, every attempt beyond the first of a round. Claims
//! may be answered in another order than they were carried out: of two runs, the one with the
//! smaller token may be the earlier one. Reasons are:
//!
//! - the earlier attempt asked for another one (1xx, 5xx, `RetryJob`) or was released,
//! - a client may have retried the job,
//! - the lease of the worker may have run out, or the handler reached its time limit,
//! - a fault touched the earlier holder from its begin on, with a lease added to the fault's end,
//! - the later holder is stale: a fault, a cancel or a retry had taken the job from it.
//!
//! A handler's run that ended for good is stored within `stored_ns`, unless a fault is under way,
//! or another daemon is stopped, which may hold the store's lock then. What comes later is no
//! reason, except a fault that may undo what was not synced.
//!
//! Cannot see: attempts that no witness wrote down; which of several reasons it was. One fault
//! explains any number of runs within its reach.

use crate::check::{Findings, Terms};
use crate::ledger::{Account, Door, Hold, How, Ledger, ends_job};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| account.holds.len() > 1) {
        let once = ledger.runs_once(account);
        if !once && !ledger.certainly_repeats(account) {
            continue;
        }
        for pair in account.holds.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            let counted = once || is_again(ledger, account, first, second);
            if counted {
                found.judge();
            }
            let crossed = second.token.is_some() && second.token < first.token;
            let explained = explained(ledger, account, first, second, terms)
                || (crossed && explained(ledger, account, second, first, terms));
            if counted && !explained {
                let evidence =
                    [ledger.hold_evidence(account, first), ledger.hold_evidence(account, second)];
                let what = format!("job {} ran again without a reason", account.id);
                found.add([account.id], what, evidence);
            }
        }
    }
}

/// Whether the second one is a further attempt of a round of a repeating job. The first attempt of
/// that round may be missing from the history, if its holder died before it could record it.
fn is_again(ledger: &Ledger, account: &Account, first: &Hold, second: &Hold) -> bool {
    let (from, to) = (first.asked.at, second.began.at);
    let lost = account.of.and_then(|of| ledger.lost_claims.get(&ledger.types[of.0].tenant));
    let unseen = ledger.faults.touch_any(from, to) || lost.is_some_and(|it| it.touch(from, to));
    second.attempt > 1 && second.door != Door::Bedrock && !unseen
}

fn explained(
    ledger: &Ledger,
    account: &Account,
    first: &Hold,
    second: &Hold,
    terms: &Terms,
) -> bool {
    let (from, to) = (first.asked.at, second.began.at);
    let stored_by = stored_by(ledger, first, terms);
    let claimed_before = second.not_before(terms) <= stored_by;
    first.status.is_some_and(|status| !ends_job(status))
        || lapsed(first, second, terms)
        || returned(account, first, to)
        || account.may_have_rerun(from, to)
        || ledger.faults.touch(first, from, to.min(stored_by))
        || ledger.faults.may_undo(from, to)
        || (claimed_before && ledger.may_be_stale(account, second, terms))
}

/// When the end of this run was stored at the latest, if no fault of its own kept it from that. A
/// run without an end that is final may have been under way until something ended it.
fn stored_by(ledger: &Ledger, hold: &Hold, terms: &Terms) -> u64 {
    let ended = hold.ended.filter(|_| hold.status.is_some_and(ends_job));
    let Some(ended) = ended else { return u64::MAX };
    let within_ns = terms.stored_ns.unwrap_or(terms.lease_ns);
    let mut by = ended.at.saturating_add(within_ns);
    while let Some(over) = ledger.faults.stops_over(ended.at, by)
        && over.saturating_add(within_ns) > by
    {
        by = over.saturating_add(within_ns);
    }
    by
}

/// The first holder had it as long as it may.
fn lapsed(first: &Hold, second: &Hold, terms: &Terms) -> bool {
    match first.door {
        Door::Pull | Door::Bedrock => !terms.before(second.began.at, first.lease_until),
        Door::Handler => {
            let until = first.ended.unwrap_or(second.began).at;
            !terms.before(until, first.began.at.saturating_add(terms.attempt_timeout_ns))
        }
    }
}

/// The first holder may have given it back.
fn returned(account: &Account, first: &Hold, to: u64) -> bool {
    account.ends.iter().any(|end| {
        let gives_back = match end.how {
            How::Finish(status) => !ends_job(status),
            How::Release | How::BedrockRetry => true,
            How::Cancel | How::BedrockFinish | How::BedrockFail => false,
            How::BedrockCancel | How::Looked(_) => false,
        };
        let own = end.token.is_none() || end.token == first.token;
        gives_back && own && end.span.may_touch(first.asked.at, to)
    })
}
