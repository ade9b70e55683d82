//! Entries of the audit that wait for the store, within bounds: pure.
//!
//! Refusals of one kind share an entry for a `WINDOW`: those from one address, by one key, for one
//! reason. The entry tells of the first, and how many there were until when. It is stored soon
//! after the first refusal, and once more with its count when the window is over. What one address
//! can do is bounded by that; what many can do together, by a budget of entries. Refusals beyond
//! that are counted in one entry for all.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::audit::{Act, Actor, AuditCursor, AuditEntry, AuditId, Reason, Subject, action};
use windlass_core::key::KeyId;
use windlass_core::{Timestamp, audit};

use crate::api::Refusal;

/// How long refusals of one kind share an entry.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Kinds of refusals that are counted at the same time.
const KINDS_MAX: usize = 1024;
/// Entries that refusals may begin at once, and how often one more is allowed after that: some
/// 20,000 a day.
const ENTRIES_MAX: u64 = 300;
const ENTRY_INTERVAL: Duration = Duration::from_secs(4);
/// Entries that may wait in their last form. Beyond that, those of changes stay without outcomes.
const LAST_MAX: usize = 2000;
/// How many of them may be about refusals. Beyond that, windows last longer.
const LAST_REFUSALS_MAX: usize = LAST_MAX / 2;
/// Entries in one change of the store.
const BATCH_MAX: usize = 500;

#[derive(Default)]
pub(super) struct Waiting {
    refusals: BTreeMap<Kind, Counted>,
    /// Entries in their last form: of refusals whose window is over, and of changes.
    last: BTreeMap<AuditCursor, AuditEntry>,
    budget: Budget,
}

/// Refusals that share an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    source: u128,
    key: Option<KeyId>,
    /// `None` for those beyond the bounds.
    reason: Option<Reason>,
}

const DROPPED: Kind = Kind { source: 0, key: None, reason: None };

struct Counted {
    entry: AuditEntry,
    /// By the steady clock.
    began: Duration,
    /// The count that the store has.
    stored: u64,
}

/// What became of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted {
    Entered,
    /// Beyond the bounds; the first such one of its window.
    Dropped {
        first: bool,
    },
}

/// An entry that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due {
    /// Whose first form it is; `None` for a last one.
    kind: Option<Kind>,
    pub entry: AuditEntry,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.refusals.is_empty() && self.last.is_empty()
    }

    /// Counts a refusal at a steady time and a time of the store.
    pub(super) fn note(
        &mut self,
        refusal: Refusal,
        now: Duration,
        at: Timestamp,
        make_id: impl FnOnce() -> AuditId,
    ) -> Noted {
        let Refusal { act, status, reason } = refusal;
        let kind =
            Kind { source: audit::source(act.address), key: act.by.key(), reason: Some(reason) };
        if self.count(kind, at) {
            return Noted::Entered;
        }
        let begins = self.refusals.len() < KINDS_MAX && self.budget.take(now);
        if !begins && self.count(DROPPED, at) {
            return Noted::Dropped { first: false };
        }
        let (kind, act) = if begins { (kind, act) } else { (DROPPED, dropped()) };
        let (status, reason) = (status.filter(|_| begins), kind.reason);
        let entry = AuditEntry { at, id: make_id(), act, status, reason, count: 1, last_at: at };
        self.refusals.insert(kind, Counted { entry, began: now, stored: 0 });
        if begins { Noted::Entered } else { Noted::Dropped { first: true } }
    }

    /// Counts one more of a kind, if there is an entry for it.
    fn count(&mut self, kind: Kind, at: Timestamp) -> bool {
        let Some(counted) = self.refusals.get_mut(&kind) else { return false };
        counted.entry.count += 1;
        counted.entry.last_at = at;
        true
    }

    /// The outcome of a change, which the store did not take. False if there is no room.
    pub(super) fn put_last(&mut self, entry: AuditEntry) -> bool {
        let has_room = self.last.len() < LAST_MAX;
        if has_room {
            self.last.insert(entry.cursor(), entry);
        }
        has_room
    }

    /// Ends windows that are over or, at the end of the daemon, `all`. Refusals of that kind begin
    /// a new entry then. A window does not end before the store has its entry.
    pub(super) fn end_windows(&mut self, now: Duration, all: bool) {
        let last = &mut self.last;
        self.refusals.retain(|_, Counted { entry, began, stored }| {
            let is_over = all || now.saturating_sub(*began) >= WINDOW;
            if !is_over || *stored == 0 {
                return true;
            }
            if *stored < entry.count {
                if last.len() >= LAST_REFUSALS_MAX {
                    return true;
                }
                last.insert(entry.cursor(), entry.clone());
            }
            false
        });
    }

    /// What is to be stored now, at most `BATCH_MAX`.
    pub(super) fn due(&self) -> Vec<Due> {
        let last = self.last.values().map(|entry| Due { kind: None, entry: entry.clone() });
        let first = self.refusals.iter().filter(|(_, counted)| counted.stored == 0);
        let first =
            first.map(|(kind, counted)| Due { kind: Some(*kind), entry: counted.entry.clone() });
        last.chain(first).take(BATCH_MAX).collect()
    }

    /// These are stored.
    pub(super) fn stored(&mut self, stored: &[Due]) {
        for Due { kind, entry } in stored {
            match kind.map(|kind| self.refusals.get_mut(&kind)) {
                None => drop(self.last.remove(&entry.cursor())),
                Some(counted) => {
                    if let Some(counted) = counted {
                        counted.stored = entry.count;
                    }
                }
            }
        }
    }
}

fn dropped() -> Act {
    let subject = Subject::default();
    Act { by: Actor::Daemon, address: None, action: action::DROPPED.to_owned(), subject }
}

/// How many entries may begin.
struct Budget {
    left: u64,
    /// The steady time up to which it was filled.
    filled_to: Duration,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: ENTRIES_MAX, filled_to: Duration::ZERO }
    }
}

impl Budget {
    fn take(&mut self, now: Duration) -> bool {
        let interval = ENTRY_INTERVAL.as_secs();
        let more = now.saturating_sub(self.filled_to).as_secs() / interval;
        self.filled_to += Duration::from_secs(more * interval);
        self.left = (self.left + more).min(ENTRIES_MAX);
        let has = self.left > 0;
        self.left -= u64::from(has);
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const NOW: Duration = Duration::from_secs(1_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn refusal(source: u32, reason: Reason) -> Refusal {
        let subject = Subject::default();
        let act = Act {
            by: Actor::Nobody,
            address: Some(IpAddr::V4(source.into())),
            action: format!("{source}"),
            subject,
        };
        Refusal { act, status: Some(401), reason }
    }

    struct Stage {
        waiting: Waiting,
        now: Duration,
        ids: i64,
    }

    impl Stage {
        fn new() -> Stage {
            Stage { waiting: Waiting::default(), now: NOW, ids: 0 }
        }

        fn note(&mut self, source: u32, reason: Reason) -> Noted {
            self.ids += 1;
            let (at, id) = (Timestamp(self.now.as_millis() as i64), AuditId(self.ids));
            self.waiting.note(refusal(source, reason), self.now, at, || id)
        }

        /// Stores what is due; returns the action and the count of each.
        fn store(&mut self) -> Vec<(String, u64)> {
            self.waiting.end_windows(self.now, false);
            self.store_batch()
        }

        fn store_batch(&mut self) -> Vec<(String, u64)> {
            let due = self.waiting.due();
            self.waiting.stored(&due);
            due.into_iter().map(|due| (due.entry.act.action, due.entry.count)).collect()
        }
    }

    #[test]
    fn refusals_of_one_kind_share_an_entry_which_is_stored_twice_in_a_window() {
        let mut stage = Stage::new();
        for _ in 0..10_000 {
            assert_eq!(stage.note(1, Reason::WrongKey), Noted::Entered);
        }
        assert_eq!(stage.store(), [("1".to_owned(), 10_000)]);
        stage.now += SECOND;
        stage.note(1, Reason::WrongKey);
        assert_eq!(stage.store(), [], "its window is not over");
        stage.now += WINDOW;
        stage.waiting.end_windows(stage.now, false);
        let due = stage.waiting.due();
        let last = &due[0].entry;
        assert_eq!((due.len(), last.count, last.id), (1, 10_001, AuditId(1)));
        assert_eq!(last.last_at.since(last.at), SECOND);
        stage.note(1, Reason::WrongKey);
        stage.waiting.stored(&due);
        assert_eq!(stage.store(), [("1".to_owned(), 1)], "a new window");
        stage.now += WINDOW;
        assert_eq!(stage.store(), [], "the store has it already");
        assert!(stage.waiting.is_empty());
    }

    #[test]
    fn at_the_end_all_counts_are_stored() {
        let mut stage = Stage::new();
        stage.note(1, Reason::Role);
        stage.store();
        stage.note(1, Reason::Role);
        stage.waiting.end_windows(stage.now, true);
        assert_eq!(stage.store_batch(), [("1".to_owned(), 2)]);
        assert!(stage.waiting.is_empty());
    }

    #[test]
    fn other_addresses_and_reasons_have_entries_of_their_own() {
        let mut stage = Stage::new();
        for (source, reason) in [(1, Reason::WrongKey), (1, Reason::NoKey), (2, Reason::NoKey)] {
            stage.note(source, reason);
        }
        assert_eq!(stage.store().len(), 3);
    }

    #[test]
    fn very_many_addresses_take_a_bounded_number_of_entries_and_the_rest_is_counted() {
        let mut stage = Stage::new();
        let dropped: Vec<Noted> = (1..=10_000)
            .map(|source| stage.note(source, Reason::WrongKey))
            .filter(|noted| *noted != Noted::Entered)
            .collect();
        assert_eq!(dropped.len() as u64, 10_000 - ENTRIES_MAX);
        assert_eq!(dropped.iter().filter(|d| **d == Noted::Dropped { first: true }).count(), 1);
        let stored = stage.store();
        assert_eq!(stored.len() as u64, ENTRIES_MAX + 1);
        assert!(stored.contains(&(action::DROPPED.to_owned(), 10_000 - ENTRIES_MAX)));
        let mut begun = 0;
        for source in 20_000..30_000 {
            stage.now += SECOND;
            begun += u64::from(stage.note(source, Reason::WrongKey) == Noted::Entered);
            stage.store();
        }
        assert!(begun <= 10_000 / ENTRY_INTERVAL.as_secs() + 1, "{begun}");
        assert!(stage.waiting.refusals.len() <= KINDS_MAX + 1);
    }

    #[test]
    fn what_the_store_did_not_take_waits_within_bounds() {
        let mut stage = Stage::new();
        for hour in 0..48 {
            stage.now = NOW + 3600 * hour * SECOND;
            for source in 0..1000 {
                stage.note(source + 1000 * hour, Reason::NoKey);
            }
            stage.waiting.end_windows(stage.now, false);
        }
        let waiting = stage.waiting.refusals.len();
        assert!(waiting <= KINDS_MAX + 1 && stage.waiting.last.is_empty(), "{waiting}");
        let at = Timestamp(0);
        let (act, status) = (dropped(), Some(200));
        let entry = |id| {
            let (act, id) = (act.clone(), AuditId(id));
            AuditEntry { at, id, act, status, reason: None, count: 1, last_at: at }
        };
        let taken = (0..2 * LAST_MAX as i64).filter(|id| stage.waiting.put_last(entry(*id)));
        assert_eq!(taken.count(), LAST_MAX);
        let batches = std::iter::from_fn(|| Some(stage.store_batch().len()).filter(|n| *n > 0));
        let batches: Vec<usize> = batches.collect();
        assert!(batches.iter().all(|entries| *entries <= BATCH_MAX), "{batches:?}");
        assert_eq!(batches.iter().sum::<usize>(), LAST_MAX + waiting);
    }
}
