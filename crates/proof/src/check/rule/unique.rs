//! A unique key of a type has at most one live holder. Found are: two live jobs with one key in the
//! final listing; and an add that was sent while a job certainly held the key, and was answered
//! with another one. A job certainly held its key until a later claim of it was sent, or until the
//! end if it is listed as not ended.
//!
//! Cannot see: adds that have an idempotency key too; holders that ended before anything shows that
//! they lived on; jobs that were retried.

use std::collections::{BTreeMap, HashMap};

use crate::check::{Evidence, Findings, Terms};
use crate::history::JobId;
use crate::ledger::{Account, AddAccount, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut keys: BTreeMap<_, Vec<&AddAccount>> = BTreeMap::new();
    for add in ledger.adds.iter().filter(|add| add.span.done.is_some() && !add.ids.is_empty()) {
        if let Some(unique) = add.unique {
            keys.entry((add.of.0, unique)).or_default().push(add);
        }
    }
    for adds in keys.values_mut() {
        second_holder(ledger, adds, terms, found);
    }
    live_at_end(ledger, found);
}

/// Adds that were answered with another job while one held the key.
fn second_holder(ledger: &Ledger, adds: &mut [&AddAccount], terms: &Terms, found: &mut Findings) {
    let mut by_done = adds.to_vec();
    by_done.sort_by_key(|add| add.span.done);
    adds.sort_by_key(|add| add.span.sent);
    let mut passed = by_done.iter().peekable();
    // The two jobs, known before an add was sent, that held the key for longest.
    let mut held: [Option<(u64, JobId)>; 2] = [None; 2];
    for add in adds {
        while let Some(known) =
            passed.next_if(|known| terms.before(known.span.until(), add.span.sent.at))
        {
            note(&mut held, ledger, known.ids[0], terms);
        }
        if add.key.is_some() {
            // Its answer may be that of an earlier add.
            continue;
        }
        let id = add.ids[0];
        found.judge();
        let revived = ledger.account(id).is_none_or(|account| !account.reruns.is_empty());
        let other = held.iter().flatten().find(|(_, other)| *other != id);
        let Some((until, other)) = other.filter(|_| !revived) else { continue };
        if terms.before(add.span.until(), *until) {
            let what = format!("job {other} held a unique key that job {id} got");
            let of = |id| ledger.account(id).and_then(|account| ledger.add_evidence(account));
            let at = add.span.done.unwrap_or(add.span.sent);
            let answer = Evidence::new(at, format!("an add was answered with job {id}"));
            let evidence = of(*other).into_iter().chain([answer]);
            found.add([*other, id], what, evidence);
        }
    }
}

fn note(held: &mut [Option<(u64, JobId)>; 2], ledger: &Ledger, id: JobId, terms: &Terms) {
    let until = ledger.account(id).and_then(|account| alive_until(ledger, account, terms));
    let Some(until) = until.filter(|_| held.iter().flatten().all(|(_, known)| *known != id)) else {
        return;
    };
    let [first, second] = *held;
    if first.is_none_or(|(longest, _)| until > longest) {
        *held = [Some((until, id)), first];
    } else if second.is_none_or(|(longest, _)| until > longest) {
        held[1] = Some((until, id));
    }
}

/// The last time at which the job certainly had not ended.
fn alive_until(ledger: &Ledger, account: &Account, terms: &Terms) -> Option<u64> {
    if !account.reruns.is_empty() {
        return None;
    }
    if account.seen().is_some_and(|seen| !seen.state.is_ended()) {
        return Some(ledger.end_at);
    }
    let fresh = account.holds.iter().filter(|hold| !ledger.may_be_stale(account, hold, terms));
    fresh.map(|hold| hold.not_before(terms)).max()
}

/// Several live jobs with one key in the final listing.
fn live_at_end(ledger: &Ledger, found: &mut Findings) {
    let mut holders: HashMap<_, &Account> = HashMap::new();
    for account in &ledger.accounts {
        let Some(seen) = account.seen().filter(|seen| !seen.state.is_ended()) else { continue };
        let add = ledger.add_of(account);
        let Some(add) = add.filter(|add| add.unique.is_some()) else { continue };
        let key = (add.of.0, add.unique);
        if let Some(other) = holders.insert(key, account) {
            let what = format!("jobs {} and {} have the same unique key", other.id, seen.job);
            let evidence = [other, account].into_iter().filter_map(|of| ledger.seen_evidence(of));
            found.add([other.id, account.id], what, evidence);
        }
    }
}
