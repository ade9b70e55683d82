//! A later claim of a job has a larger token, and no two claims have the same one. Tokens are what
//! outside resources rely on when everything else has failed, so only one fault excuses a smaller
//! one: a store that has forgotten the claim before it, while its daemons lived on.
//!
//! A report is acknowledged only under a token that a claim of the job had.
//!
//! Cannot see: the order of claims that were under way at the same time; attempts without a token
//! (Bedrock, and handlers that do not write it down).

use crate::check::{Findings, Terms};
use crate::ledger::{Account, End, Hold, How, Ledger};

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    for account in ledger.accounts.iter().filter(|account| account.holds.len() > 1) {
        let holds: Vec<&Hold> = account.holds.iter().filter(|hold| hold.token.is_some()).collect();
        let forgotten = |(first, second): &(&Hold, &Hold)| {
            ledger.faults.may_have_forgotten(first.not_before(terms), second.began.at)
        };
        let shrunk = shrunk(&holds, terms).filter(|pair| !forgotten(pair));
        if holds.len() > 1 {
            found.judge();
        }
        for (first, second) in twins(&holds).chain(shrunk) {
            report(ledger, account, first, second, found);
        }
    }
    for account in &ledger.accounts {
        reports(ledger, account, found);
    }
}

/// Acknowledged reports whose token no claim had. What older tokens may do says `fence`.
fn reports(ledger: &Ledger, account: &Account, found: &mut Findings) {
    let is_report = |end: &&End| matches!(end.how, How::Finish(_) | How::Release);
    for end in account.ends.iter().filter(is_report).filter(|end| end.span.done.is_some()) {
        if !account.holds.iter().any(|hold| hold.token == end.token) {
            let what = format!("a report of job {} has a token that no claim had", account.id);
            found.add([account.id], what, [ledger.end_evidence(account, end)]);
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
        let asked = hold.not_before(terms);
        let earlier = holds.partition_point(|other| terms.before(other.began.at, asked));
        let before = earlier.checked_sub(1).map(|last| largest[last]);
        pairs.extend(before.filter(|before| before.token > hold.token).map(|first| (first, *hold)));
    }
    pairs.into_iter()
}
