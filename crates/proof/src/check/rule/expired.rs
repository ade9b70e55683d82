//! A job whose time is over is not claimed any more. It expires at the latest so long after the
//! acknowledgement of its add as that says.
//!
//! Cannot see: handlers that began within `claim_ahead_ns` after that, because their claim may have
//! been earlier; jobs that a client may have retried; times after a step of the clock, because
//! adds name theirs by the clients' clock.

use crate::check::{Findings, Terms};
use crate::ledger::{Account, Hold, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in &ledger.accounts {
        let Some((from, until)) = lifetime(ledger, account) else { continue };
        let late = |hold: &&Hold| terms.before(until, hold.not_before(terms));
        let over = terms.before(until, ledger.end_at) && account.reruns.is_empty();
        if over && ledger.faults.clock_moved_ns(0, until) == 0 {
            found.judge();
        }
        let Some(hold) = account.holds.iter().find(late) else { continue };
        let began = hold.began.at;
        if account.may_have_rerun(from, began) || ledger.faults.clock_moved_ns(0, began) > 0 {
            continue;
        }
        let evidence = ledger.add_evidence(account).into_iter();
        let evidence = evidence.chain([ledger.hold_evidence(account, hold)]);
        let ms = (began - until) / 1_000_000;
        found.add([account.id], format!("job {} started {ms} ms too late", account.id), evidence);
    }
}

/// From when until when at most the job may be started.
fn lifetime(ledger: &Ledger, account: &Account) -> Option<(u64, u64)> {
    let known = account.acknowledged && ledger.is_form_known(account);
    let add = ledger.add_of(account).filter(|_| known)?;
    let done = add.span.done?;
    let until = done.at.saturating_add(add.expires_ns?);
    Some((add.span.sent.at, until))
}
