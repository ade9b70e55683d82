//! In a run that was drained, nothing that could run is left. Checked for jobs that run once,
//! without a delay or a family, whose last attempt did not ask for another one, of types that are
//! not suspended and that was served. A job that a worker still has is not stuck, nor one that
//! a claim whose answer was lost may have taken.
//!
//! Cannot see: jobs that wait for a time, for a parent or for children; types that nobody served.

use std::collections::HashSet;

use crate::check::{Findings, Terms};
use crate::history::State;
use crate::ledger::{Account, Door, Ledger, ends_job};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    if !terms.drained {
        return;
    }
    let worked = ledger.accounts.iter().filter(|account| !account.holds.is_empty());
    let served: HashSet<usize> = worked.filter_map(|account| account.of).map(|of| of.0).collect();
    for account in &ledger.accounts {
        let (Some(seen), Some(of)) = (account.seen(), account.of) else { continue };
        let open = ledger.types[of.0].suspended.is_none() && served.contains(&of.0);
        if seen.state.is_ended() || !open || !could_run(ledger, account) {
            continue;
        }
        let waits_to_retry = seen.status.is_some_and(|status| !ends_job(status));
        let taken = seen.state == State::Running
            && ledger.lost_claims.contains_key(&ledger.types[of.0].tenant);
        if waits_to_retry || taken || is_held(ledger, account) {
            continue;
        }
        let evidence = ledger.add_evidence(account).into_iter();
        let evidence = evidence.chain(ledger.seen_evidence(account));
        found.add([account.id], format!("job {} was never finished", account.id), evidence);
    }
}

fn could_run(ledger: &Ledger, account: &Account) -> bool {
    let add = ledger.add_of(account);
    ledger.runs_once(account) && add.is_none_or(|add| add.delay_ns == 0 && add.parent.is_none())
}

fn is_held(ledger: &Ledger, account: &Account) -> bool {
    let last = account.holds.last();
    last.is_some_and(|hold| hold.door != Door::Handler && hold.lease_until >= ledger.end_at)
}
