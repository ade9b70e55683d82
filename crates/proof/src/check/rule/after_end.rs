//! A job whose final finish or cancel was acknowledged, or that a client saw to have ended, is not
//! started again, unless a client may have retried it, it repeats, or it had children to wait for.
//!
//! A worker's claim counts if it was sent after the acknowledgement. A handler's run counts if it
//! began after it; where the end reached another daemon than the one that runs the job, one lease
//! later, because only then must that daemon have noticed. A run on a daemon that a fault touched
//! since the end, and since the run may have been claimed, may have been claimed before the end.
//!
//! Cannot see: ends of handlers that nobody saw (`extra_run` covers these); starts while the
//! acknowledgement was under way; ends that were only seen, if a fault may have undone them.

use crate::check::{Findings, Terms};
use crate::ledger::{Account, Door, End, Hold, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in &ledger.accounts {
        for end in &account.ends {
            let binding = end.how == How::Cancel || ledger.runs_once(account);
            if !end.how.is_final() || !binding {
                continue;
            }
            if end.span.done.is_some() {
                found.judge();
            }
            if let Some(hold) = first_after(ledger, account, end, terms) {
                let evidence =
                    [ledger.end_evidence(account, end), ledger.hold_evidence(account, hold)];
                let what = format!("job {} ran after it had ended", account.id);
                found.add([account.id], what, evidence);
            }
        }
    }
}

/// The first hold that certainly began after this end, without an excuse.
fn first_after<'a>(
    ledger: &Ledger,
    account: &'a Account,
    end: &End,
    terms: &Terms,
) -> Option<&'a Hold> {
    let done_at = end.span.done?.at;
    let later = account.holds.partition_point(|hold| hold.began.at <= done_at);
    for hold in &account.holds[later..] {
        if account.may_have_rerun(end.span.sent.at, hold.began.at) {
            return None;
        }
        let handler = hold.door == Door::Handler;
        let elsewhere = handler && (hold.daemon != end.via || end.via.is_none());
        let noticed_at = done_at.saturating_add(if elsewhere { terms.lease_ns } else { 0 });
        let (from, to) = (end.span.sent.at, hold.began.at);
        let undone = matches!(end.how, How::Looked(_)) && ledger.faults.may_undo(from, to);
        let claimed_from = from.max(hold.not_before(terms));
        let touched = undone || (handler && ledger.faults.touch(hold, claimed_from, to));
        if terms.before(noticed_at, hold.asked.at) && !touched {
            return Some(hold);
        }
    }
    None
}
