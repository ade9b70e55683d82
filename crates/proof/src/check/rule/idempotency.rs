//! All acknowledged adds of a tenant with one idempotency key were answered with the same ids.
//! Another set is allowed if its jobs are cancelled and ran only if a client had them run again,
//! because its add had gone into a journal and another one was first; or if the key had been
//! forgotten, by the time that has passed and by which the clock was set.
//!
//! Cannot see: adds whose answer was lost, except by the origin of their jobs (`add_once`).

use std::collections::BTreeMap;

use crate::check::{Evidence, Findings, Terms};
use crate::history::State;
use crate::ledger::{Account, AddAccount, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut keys: BTreeMap<_, Vec<&AddAccount>> = BTreeMap::new();
    for add in ledger.adds.iter().filter(|add| add.span.done.is_some()) {
        if let Some(key) = add.key {
            keys.entry((add.tenant, key)).or_default().push(add);
        }
    }
    for ((_, key), mut adds) in keys {
        adds.retain(|add| lived(ledger, add));
        let Some((first, others)) = adds.split_first() else { continue };
        others.iter().for_each(|_| found.judge());
        for other in others.iter().filter(|other| other.ids != first.ids) {
            if may_be_forgotten(ledger, first, other, terms) {
                continue;
            }
            let key = ledger.names.text(key);
            let what = format!("the idempotency key '{key}' stands for two sets of jobs");
            let evidence = [first, other].map(|add| {
                let ids: Vec<String> = add.ids.iter().map(ToString::to_string).collect();
                let at = add.span.done.unwrap_or(add.span.sent);
                Evidence::new(at, format!("answered with {}", ids.join(", ")))
            });
            found.add(first.ids.iter().chain(&other.ids).copied(), what, evidence);
        }
    }
}

/// Whether the key of an add may have been forgotten when another was decided.
fn may_be_forgotten(
    ledger: &Ledger,
    first: &AddAccount,
    other: &AddAccount,
    terms: &Terms,
) -> bool {
    let to = ledger.decided_until(first).max(ledger.decided_until(other));
    let from = first.span.sent.at;
    let stepped = ledger.faults.clock_moved_ns(from, to);
    to.saturating_sub(from).saturating_add(stepped) >= terms.key_ttl_ns
}

/// Whether any of its jobs was ever more than a cancelled entry.
fn lived(ledger: &Ledger, add: &AddAccount) -> bool {
    let mut accounts = add.ids.iter().map(|id| ledger.account(*id));
    accounts.any(|account| !account.is_some_and(|job| never_lived(job) || was_revived(job)))
}

/// Entered as cancelled, or may have; nobody had it.
pub(super) fn never_lived(account: &Account) -> bool {
    let idle = account.holds.is_empty() && account.reruns.is_empty();
    idle && match account.seen() {
        Some(seen) => seen.state == State::Cancelled,
        None => !account.deletes.is_empty(),
    }
}

/// Whether a client retried it before its first attempt.
pub(super) fn was_revived(account: &Account) -> bool {
    let first = account.holds.first().map_or(u64::MAX, |hold| hold.began.at);
    account.reruns.iter().any(|rerun| rerun.sent.at < first)
}
