//! Plain jobs of a type with equal priority start in the order of their adds: if A's add was
//! acknowledged before B's was sent, to the same daemon, then B does not start before A. Jobs of
//! one add start in their order in it.
//!
//! Decidable, and checked, only under these conditions:
//!
//! - both jobs are plain (no delay, repeat, key, unique key, parent), not too large, and were added
//!   through the same daemon, which is named in the history: other ways into the store differ in
//!   length;
//! - the type is served by pulling workers only: a daemon's claims are not visible, and its
//!   contexts work side by side;
//! - both starts are first attempts, and B's claim was answered before A's was sent;
//! - from A's add to its start there was no fault, no retry of A after a cancel, and no claim of
//!   the tenant whose answer was lost: it may have held A for a time;
//! - B was not requeued or retried, which may put it in front.

use std::collections::BTreeMap;

use crate::check::{Findings, Terms};
use crate::ledger::{Account, Door, Hold, Ledger};

const PRIORITY_DEFAULT: u16 = 500;

/// A job that takes part.
struct Member<'a> {
    account: &'a Account,
    start: &'a Hold,
    /// Its add: when it was sent and acknowledged, and its place among all adds.
    sent: u64,
    done: u64,
    add: usize,
    position: u32,
    undisturbed: bool,
}

pub(super) fn check(ledger: &Ledger, terms: &Terms, found: &mut Findings) {
    let mut groups: BTreeMap<_, Vec<Member<'_>>> = BTreeMap::new();
    for account in &ledger.accounts {
        if let Some((key, member)) = member(ledger, account, terms) {
            groups.entry(key).or_default().push(member);
        }
    }
    for members in groups.values_mut() {
        members.sort_by_key(|member| (member.sent, member.add, member.position));
        between_adds(ledger, members, terms, found);
        within_adds(ledger, members, terms, found);
    }
}

type Group = (usize, u16, crate::ledger::Name);

fn member<'a>(
    ledger: &'a Ledger,
    account: &'a Account,
    terms: &Terms,
) -> Option<(Group, Member<'a>)> {
    let (index, position) = account.add.filter(|_| account.acknowledged)?;
    let add = &ledger.adds[index.0];
    let of = &ledger.types[add.of.0];
    let small = add.payload_bytes <= terms.order_payload_bytes_max;
    let start = account.holds.first()?;
    let first = start.door == Door::Pull && start.attempt == 1;
    if !add.is_plain() || !small || !first || of.has_handler {
        return None;
    }
    let (sent, done) = (add.span.sent.at, add.span.done?.at);
    let hidden = ledger.lost_claims.get(&add.tenant);
    let hidden = hidden.is_some_and(|claims| claims.touch(sent, start.began.at));
    let moved = account.may_have_rerun(sent, start.began.at);
    let undisturbed = !hidden && !moved && !ledger.faults.touch_any(sent, start.began.at);
    let group = (add.of.0, add.priority.unwrap_or(PRIORITY_DEFAULT), add.via?);
    Some((group, Member { account, start, sent, done, add: index.0, position, undisturbed }))
}

/// For each member, the one from there on that started first.
fn first_from<'a, 'b>(members: &'b [Member<'a>]) -> Vec<&'b Member<'a>> {
    let mut first: Vec<&Member<'_>> = Vec::with_capacity(members.len());
    for member in members.iter().rev() {
        let best = first.last().copied().filter(|best| best.start.began < member.start.began);
        first.push(best.unwrap_or(member));
    }
    first.reverse();
    first
}

fn between_adds(ledger: &Ledger, members: &[Member<'_>], terms: &Terms, found: &mut Findings) {
    let first = first_from(members);
    for member in members {
        let later = members.partition_point(|other| !terms.before(member.done, other.sent));
        if let Some(other) = first.get(later) {
            compare(ledger, member, other, terms, found);
        }
    }
}

fn within_adds(ledger: &Ledger, members: &[Member<'_>], terms: &Terms, found: &mut Findings) {
    for of_add in members.chunk_by(|one, next| one.add == next.add) {
        let first = first_from(of_add);
        for (member, other) in of_add.iter().zip(first.iter().skip(1)) {
            compare(ledger, member, other, terms, found);
        }
    }
}

fn compare(
    ledger: &Ledger,
    earlier: &Member<'_>,
    later: &Member<'_>,
    terms: &Terms,
    found: &mut Findings,
) {
    let in_turn = later.account.reruns.is_empty();
    if earlier.undisturbed && in_turn {
        found.judge();
    }
    if earlier.undisturbed && in_turn && terms.before(later.start.began.at, earlier.start.asked.at)
    {
        let ids = [earlier.account.id, later.account.id];
        let what = format!("job {} started before job {}, which is older", ids[1], ids[0]);
        let adds = [earlier, later].into_iter().filter_map(|m| ledger.add_evidence(m.account));
        let starts = [earlier, later].map(|m| ledger.hold_evidence(m.account, m.start));
        let evidence: Vec<_> = adds.chain(starts).collect();
        found.add(ids, what, evidence);
    }
}
