//! A later claim of a job has a larger token, and no two claims have the same one. No fault excuses
//! this: tokens are what outside resources rely on when everything else has failed.
//!
//! Cannot see: the order of claims that were under way at the same time; attempts without a token
//! (Bedrock, and handlers that do not write it down).

use crate::check::{Findings, Terms};
use crate::ledger::{Account, Hold, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| account.holds.len() > 1) {
        let holds: Vec<&Hold> = account.holds.iter().filter(|hold| hold.token.is_some()).collect();
        for (first, second) in twins(&holds).chain(shrunk(&holds, terms)) {
            report(ledger, account, first, second, found);
        }
    }
}

fn report(ledger: &Ledger, account: &Account, first: &Hold, second: &Hold, found: &mut Findings) {
    let what = format!("the tokens of job {} do not grow", account.id);
    let evidence = [ledger.hold_evidence(account, first), ledger.hold_evidence(account, second)];
    found.add([account.id], what, evidence);
}

/// Pairs with the same token.
fn twins<'a>(holds: &[&'a Hold]) -> impl Iterator<Item = (&'a Hold, &'a Hold)> {
    let mut sorted = holds.to_vec();
    sorted.sort_by_key(|hold| (hold.token, hold.began));
    let pairs: Vec<_> = sorted.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().filter(|(first, second)| first.token == second.token)
}

/// Pairs of which the second was asked for when the first had been answered, and has a smaller
/// token.
fn shrunk<'a>(holds: &[&'a Hold], terms: &Terms) -> impl Iterator<Item = (&'a Hold, &'a Hold)> {
    let mut largest: Vec<&Hold> = Vec::with_capacity(holds.len());
    for hold in holds {
        let before = largest.last().copied().unwrap_or(hold);
        largest.push(if before.token > hold.token { before } else { hold });
    }
    let mut pairs = Vec::new();
    for hold in holds {
        let earlier = holds.partition_point(|other| terms.before(other.began.at, hold.asked.at));
        let before = earlier.checked_sub(1).map(|last| largest[last]);
        pairs.extend(before.filter(|before| before.token > hold.token).map(|first| (first, *hold)));
    }
    pairs.into_iter()
}
