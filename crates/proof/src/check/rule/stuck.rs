//! In a run that was drained, nothing that could run is left. Checked for jobs that run once,
//! without a delay or a family, whose last attempt did not ask for another one, of types that are
//! not suspended and that were served. A job that a worker still has is not stuck, nor one that
//! a claim whose answer was lost may have taken.
//!
//! And no parent waits for nothing: one that is paused has a listed child that has neither finished
//! nor been cancelled. A child that failed keeps its parent waiting. A child's end and what it does
//! to the parent are one commit, so faults are no excuse.
//!
//! Cannot see: jobs that wait for a time or for a parent; types that nobody served.

use std::collections::{BTreeMap, HashSet};

use crate::check::{Findings, Terms};
use crate::history::{JobId, State};
use crate::ledger::{Account, Door, Ledger, ends_job};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    if !terms.drained {
        return;
    }
    let worked = ledger.accounts.iter().filter(|account| !account.holds.is_empty());
    let served: HashSet<usize> = worked.filter_map(|account| account.of).map(|of| of.0).collect();
    parents(ledger, found);
    for account in &ledger.accounts {
        let (Some(seen), Some(of)) = (account.seen(), account.of) else { continue };
        let open = ledger.types[of.0].suspended.is_none() && served.contains(&of.0);
        if !open || !could_run(ledger, account) {
            continue;
        }
        found.judge();
        if seen.state.is_ended() {
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

/// Parents that wait although no child of theirs is left that they could wait for.
fn parents(ledger: &Ledger, found: &mut Findings) {
    let mut families: BTreeMap<JobId, Vec<&Account>> = BTreeMap::new();
    for account in &ledger.accounts {
        if let Some(parent) = account.seen().and_then(|seen| seen.parent) {
            families.entry(parent).or_default().push(account);
        }
    }
    for account in ledger.accounts.iter().filter(|account| account.is_parent) {
        // One that is a child itself may wait for its own parent.
        let seen = account.seen().filter(|seen| seen.parent.is_none());
        let Some(seen) = seen.filter(|_| ledger.is_listed(account)) else { continue };
        found.judge();
        let children = families.get(&account.id).map_or(&[][..], Vec::as_slice);
        let is_over = |child: &&Account| {
            let state = child.seen().map(|seen| seen.state);
            matches!(state, Some(State::Finished | State::Cancelled))
        };
        if seen.state != State::Paused || !children.iter().all(is_over) {
            continue;
        }
        let own = ledger.add_evidence(account).into_iter().chain(ledger.seen_evidence(account));
        let children = children.iter().flat_map(|child| {
            let last = child.holds.last().map(|hold| ledger.hold_evidence(child, hold));
            ledger.seen_evidence(child).into_iter().chain(last)
        });
        let evidence: Vec<_> = own.chain(children).collect();
        found.add([account.id], format!("job {} waits for no child", account.id), evidence);
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
