//! A job does not start before its time: not before the delay of its add has passed, and not before
//! the shortest pause after an attempt that asked for another one.
//!
//! A delay counts from when the add was first sent. It does not hold for jobs that a client may
//! have retried, nor after a step of the clock, because adds name their time by the clients'
//! clock, which was not set. A pause counts from the end of a handler's run, or
//! from when the finish was sent; it does not hold if a fault touched that attempt, whose end may
//! then be that of its lease.
//!
//! Cannot see: times of the rounds of repeating jobs, and of `RetryJob`.

use std::collections::HashMap;

use crate::check::{Evidence, Findings, Terms};
use crate::ledger::{Account, Door, Hold, How, Ledger, ends_job};

/// Daemons keep times in milliseconds.
const ROUNDING_NS: u64 = 2_000_000;

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut first_sent: HashMap<u64, u64> = HashMap::new();
    for add in &ledger.adds {
        let sent = first_sent.entry(add.mark).or_insert(add.span.sent.at);
        *sent = (*sent).min(add.span.sent.at);
    }
    for account in &ledger.accounts {
        let add = ledger.add_of(account).filter(|_| ledger.is_form_known(account));
        if let (Some(add), Some(hold)) = (add, account.holds.first()) {
            let sent_at = first_sent.get(&add.mark).copied().unwrap_or(add.span.sent.at);
            let due = sent_at.saturating_add(add.delay_ns);
            let same_clock = ledger.faults.clock_moved_ns(0, hold.began.at) == 0;
            let delayed = add.delay_ns > 0 && same_clock;
            if delayed {
                found.judge();
            }
            if delayed && before(ledger, account, (sent_at, due), hold, terms) {
                let evidence = [
                    Evidence::new(add.span.sent, "its add was sent"),
                    ledger.hold_evidence(account, hold),
                ];
                found.add([account.id], text(account, due, hold), evidence);
            }
        }
        if let Some(pause_ns) = terms.retry_pause_ns {
            account.holds.windows(2).for_each(|pair| {
                retried(ledger, account, (&pair[0], &pair[1]), pause_ns, terms, found);
            });
        }
    }
}

fn retried(
    ledger: &Ledger,
    account: &Account,
    (first, second): (&Hold, &Hold),
    pause_ns: u64,
    terms: &Terms,
    found: &mut Findings,
) {
    let Some(asked_at) = asked_for_another(account, first) else { return };
    let touched = ledger.faults.touch(first, first.asked.at, second.began.at)
        || ledger.may_be_stale(account, second, terms);
    let due = asked_at.saturating_add(pause_ns);
    if !touched {
        found.judge();
    }
    if !touched && before(ledger, account, (first.asked.at, due), second, terms) {
        let evidence =
            [ledger.hold_evidence(account, first), ledger.hold_evidence(account, second)];
        found.add([account.id], text(account, due, second), evidence);
    }
}

/// When this attempt asked for another one, if it did.
fn asked_for_another(account: &Account, hold: &Hold) -> Option<u64> {
    if hold.door == Door::Handler {
        return hold.ended.filter(|_| hold.status.is_some_and(|it| !ends_job(it))).map(|it| it.at);
    }
    let own = account.ends.iter().find(|end| end.token.is_some() && end.token == hold.token)?;
    match own.how {
        How::Finish(status) if !ends_job(status) => own.span.done.map(|_| own.span.sent.at),
        _ => None,
    }
}

/// Whether the hold certainly began before it was due, and nothing allows that.
fn before(
    ledger: &Ledger,
    account: &Account,
    (from, due): (u64, u64),
    hold: &Hold,
    terms: &Terms,
) -> bool {
    let began = hold.began.at;
    terms.before(began.saturating_add(ROUNDING_NS), due)
        && !account.may_have_rerun(from, began)
        && ledger.faults.clock_moved_ns(from, began) == 0
}

fn text(account: &Account, due: u64, hold: &Hold) -> String {
    let ms = due.saturating_sub(hold.began.at) / 1_000_000;
    format!("job {} started {ms} ms before its time", account.id)
}
