//! A job whose delete was acknowledged is gone: it is not listed or seen any more, no worker claims
//! it, and no report or cancel of it is acknowledged that was sent later.
//!
//! A handler does not begin it, either, one lease after the delete: a daemon learns of what was
//! done through another one with its next beat. A run on a daemon that a fault touched since may
//! have been claimed before.
//!
//! Cannot see: jobs of deletes whose answer was lost; reports of Bedrock's CancelJob, which may
//! have had no effect; requests that name several jobs.

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::{Account, Door, End, Hold, How, Ledger, Moment};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in &ledger.accounts {
        let Some((sent_at, done)) = deleted(account) else { continue };
        found.judge();
        let run = account.holds.iter().find(|hold| is_later(ledger, hold, sent_at, done, terms));
        let acknowledged = |end: &&End| {
            let certain = end.how != How::BedrockCancel && end.span.done.is_some();
            certain && terms.before(done.at, end.span.sent.at)
        };
        let end = account.ends.iter().find(acknowledged);
        let run = run.map(|hold| ledger.hold_evidence(account, hold));
        let end = end.map(|end| ledger.end_evidence(account, end));
        let later: Vec<Evidence> =
            ledger.seen_evidence(account).into_iter().chain(run).chain(end).collect();
        if !later.is_empty() {
            let text = format!("a delete of job {} was acknowledged", account.id);
            let what = format!("job {} was deleted, and is still there", account.id);
            found.add([account.id], what, [Evidence::new(done, text)].into_iter().chain(later));
        }
    }
}

/// The first delete that was acknowledged: when it was sent, and answered.
fn deleted(account: &Account) -> Option<(u64, Moment)> {
    let done = account.deletes.iter().filter_map(|span| Some((span.sent.at, span.done?)));
    done.min_by_key(|(_, done)| *done)
}

fn is_later(ledger: &Ledger, hold: &Hold, sent_at: u64, done: Moment, terms: &Terms) -> bool {
    if hold.door != Door::Handler {
        return terms.before(done.at, hold.asked.at);
    }
    let (from, to) = (sent_at.max(hold.not_before(terms)), hold.began.at);
    let noticed_at = done.at.saturating_add(terms.lease_ns);
    terms.before(noticed_at, to) && !ledger.faults.touch(hold, from, to)
}
