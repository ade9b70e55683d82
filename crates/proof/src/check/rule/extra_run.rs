//! Each run of a job beyond the first has a reason. Of jobs that run once, every run is compared
//! with the one before it. Reasons are:
//!
//! - the earlier attempt asked for another one (1xx, 5xx, `RetryJob`) or was released,
//! - a client may have retried the job,
//! - the lease of the worker may have run out, or the handler reached its time limit,
//! - a fault touched the earlier holder from its begin on, with a lease added to the fault's end,
//! - the later holder is stale: a fault, a cancel or a retry had taken the job from it.
//!
//! Cannot see: attempts that no witness wrote down; which of several reasons it was. One fault
//! explains any number of runs within its reach.

use crate::check::{Findings, Terms};
use crate::ledger::{Account, Door, Hold, How, Ledger, ends_job};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| account.holds.len() > 1) {
        if !ledger.runs_once(account) {
            continue;
        }
        for pair in account.holds.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            if !explained(ledger, account, first, second, terms) {
                let evidence =
                    [ledger.hold_evidence(account, first), ledger.hold_evidence(account, second)];
                let what = format!("job {} ran again without a reason", account.id);
                found.add([account.id], what, evidence);
            }
        }
    }
}

fn explained(
    ledger: &Ledger,
    account: &Account,
    first: &Hold,
    second: &Hold,
    terms: &Terms,
) -> bool {
    let (from, to) = (first.asked.at, second.began.at);
    first.status.is_some_and(|status| !ends_job(status))
        || lapsed(first, second, terms)
        || returned(account, first, to)
        || account.may_have_rerun(from, to)
        || ledger.faults.touch(first, from, to)
        || ledger.may_be_stale(account, second, terms)
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
        };
        let own = end.token.is_none() || end.token == first.token;
        gives_back && own && end.span.may_touch(first.asked.at, to)
    })
}
