//! An add adds each of its jobs once, whatever its answer was. Payloads carry a mark; a mark that
//! was sent n times without an idempotency key may be found in n jobs at each position, with a key
//! in one, unless the key may have been forgotten in between. Then each add that may have been
//! tried in the store and gone into a journal as well counts twice. And the job that an add was
//! answered with has that add's payload.
//!
//! Jobs that entered as cancelled and never ran do not count for a key: their add had gone into a
//! journal, and another one was first. Nor do those that ran only because a client had them run
//! again.
//!
//! Cannot see: empty payloads, and payloads that nobody read.

use std::collections::BTreeMap;

use crate::check::{Evidence, Findings, Terms};
use crate::history::{JobId, Origin};
use crate::ledger::{Account, AddAccount, Ledger};

use super::idempotency::{never_lived, was_revived};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut marks: BTreeMap<u64, Vec<&AddAccount>> = BTreeMap::new();
    for add in ledger.adds.iter().filter(|add| !add.refused) {
        marks.entry(add.mark).or_default().push(add);
    }
    for (mark, adds) in &marks {
        let count = adds.iter().map(|add| add.count).max().unwrap_or(0);
        let keyed = adds.iter().all(|add| add.key.is_some()) && is_key_kept(ledger, adds, terms);
        for index in 0..count {
            duplicates(ledger, *mark, index, (adds, keyed), found);
        }
    }
    for account in ledger.accounts.iter().filter(|account| account.acknowledged) {
        payload(ledger, account, found);
    }
}

/// Whether the key of these adds was certainly remembered until the last of them was decided, by
/// the time that has passed and by which the clock was set.
fn is_key_kept(ledger: &Ledger, adds: &[&AddAccount], terms: &Terms) -> bool {
    let sent = || adds.iter().map(|add| add.span.sent.at);
    let (from, last) = (sent().min().unwrap_or(0), sent().max().unwrap_or(0));
    let decided = adds.iter().map(|add| ledger.decided_until(add)).max();
    let stepped = ledger.faults.clock_moved_ns(from, decided.unwrap_or(last));
    (last - from).saturating_add(stepped) < terms.key_ttl_ns
}

/// `adds` have this mark, and a key that makes them one if `keyed`.
fn duplicates(
    ledger: &Ledger,
    mark: u64,
    index: u32,
    (adds, keyed): (&[&AddAccount], bool),
    found: &mut Findings,
) {
    let seen = ledger.origins.get(&Origin::Add { mark, index });
    if seen.is_some() {
        found.judge();
    }
    let mut ids: Vec<JobId> = seen.into_iter().flatten().copied().collect();
    if !keyed {
        // Also those whose payload nobody has read. A unique key returns jobs of other adds.
        let own = adds.iter().filter(|add| add.unique.is_none());
        ids.extend(own.filter_map(|add| add.ids.get(index as usize)));
    }
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| !ledger.account(*id).is_some_and(|job| ledger.may_be_undone(job)));
    if keyed {
        ids.retain(|id| {
            !ledger.account(*id).is_some_and(|job| never_lived(job) || was_revived(job))
        });
    }
    let tries = |add: &&AddAccount| if ledger.may_be_tried_twice(add) { 2 } else { 1 };
    let most = if keyed { 1 } else { adds.iter().map(tries).sum() };
    if ids.len() > most {
        let what = format!("{} jobs come from job {index} of the add with mark {mark}", ids.len());
        let sent = adds.iter().map(|add| Evidence::new(add.span.sent, "the add was sent"));
        let accounts = ids.iter().filter_map(|id| ledger.account(*id));
        let jobs = accounts.filter_map(|job| {
            ledger
                .seen_evidence(job)
                .or_else(|| job.holds.first().map(|hold| ledger.hold_evidence(job, hold)))
        });
        let evidence: Vec<Evidence> = sent.chain(jobs).collect();
        found.add(ids, what, evidence);
    }
}

fn payload(ledger: &Ledger, account: &Account, found: &mut Findings) {
    let (Some((_, index)), Some(add)) = (account.add, ledger.add_of(account)) else { return };
    let expected = Origin::Add { mark: add.mark, index };
    let own = add.unique.is_none() && add.key.is_none();
    let Some(origin) = account.origin.filter(|origin| own && *origin != expected) else { return };
    let what = format!("job {} has a payload that says {origin:?}, not {expected:?}", account.id);
    let evidence = ledger.add_evidence(account).into_iter().chain(ledger.seen_evidence(account));
    found.add([account.id], what, evidence);
}
