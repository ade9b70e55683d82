//! In which order settlements go to the store, and what becomes of those that it cannot take.
//!
//! If the store fails at a batch because something is wrong with one of its jobs, the settlements
//! are stored one by one. Those that fail alone are parked and retried from time to time; the
//! others are not affected.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use windlass_core::JobId;
use windlass_core::store;

use super::queue::{Batch, Pending, SettleItem};

/// Settlements that may be parked, and their bytes unless a single one has more; beyond that, the
/// whole queue waits.
const PARKED_MAX: usize = 1000;
const PARKED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How often parked settlements are retried.
const PARKED_PAUSE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Outbox {
    pub(super) pending: Pending,
    /// Each of these makes a batch of its own, before the others.
    alone: VecDeque<SettleItem>,
    /// On its way to the store; retried until the store takes it.
    batch: Option<Batch>,
    parked: Parked,
}

/// Settlements that the store cannot take.
#[derive(Default)]
struct Parked {
    /// Each with the reason.
    items: Vec<(SettleItem, String)>,
    /// When they are retried; there is a time if there are any.
    until: Option<Instant>,
    /// They differ from those that are shown.
    changed: bool,
}

impl Outbox {
    /// Whether there is nothing to store but what is parked.
    pub(super) fn is_idle(&self) -> bool {
        self.batch.is_none() && self.alone.is_empty() && self.pending.is_empty()
    }

    /// When parked settlements are retried, if there are any.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.parked.until
    }

    pub(super) fn next_batch(&mut self, now: Instant) -> Option<&Batch> {
        if self.batch.is_none() {
            self.alone.extend(self.parked.take_due(now));
            let alone = self.alone.pop_front().map(|item| Batch::of([item]));
            self.batch = alone.or_else(|| self.pending.next_batch());
        }
        self.batch.as_ref()
    }

    /// The store has answered the batch.
    pub(super) fn answered(&mut self) -> Option<Batch> {
        self.batch.take()
    }

    /// The store failed at the batch as a whole. Splits a batch and parks a single settlement;
    /// false when the only way is to try again.
    pub(super) fn set_aside(&mut self, error: &store::Error, now: Instant) -> bool {
        if matches!(error, store::Error::Unavailable(_)) || self.parked.is_full() {
            return false;
        }
        let Some(batch) = self.batch.take() else { return false };
        let is_whole = batch.attempts.len() > 1;
        for item in batch.into_items() {
            if is_whole {
                self.alone.push_back(item);
            } else {
                self.parked.push(item, error.to_string(), now);
            }
        }
        true
    }

    /// The parked settlements if they have changed, once all that were due have been tried.
    pub(super) fn parked_now(&mut self) -> Option<BTreeMap<JobId, String>> {
        if !self.alone.is_empty() || !std::mem::take(&mut self.parked.changed) {
            return None;
        }
        let parked = self.parked.items.iter();
        Some(parked.map(|(item, why)| (item.attempt.running.job.id, why.clone())).collect())
    }
}

impl Parked {
    fn is_full(&self) -> bool {
        let bytes: usize = self.items.iter().map(|(item, _)| item.bytes()).sum();
        self.items.len() >= PARKED_MAX || bytes >= PARKED_BYTES_MAX
    }

    fn push(&mut self, mut item: SettleItem, why: String, now: Instant) {
        item.attempt.leave_queue();
        let id = item.attempt.running.job.id;
        tracing::error!(%id, error = %why, "the store rejected a result; it will be retried");
        self.until.get_or_insert(now + PARKED_PAUSE);
        self.items.push((item, why));
        self.changed = true;
    }

    /// All of them, if it is time to try again.
    fn take_due(&mut self, now: Instant) -> Vec<SettleItem> {
        if self.until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        self.until = None;
        self.changed = true;
        self.items.drain(..).map(|(item, _)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_core::{NewJob, Payload, Timestamp};

    use windlass_test_kit::wait::in_time;

    use super::super::queue::SettleQueue;
    use super::*;
    use crate::dispatch::running::tests::attempt;

    fn item(id: i64) -> SettleItem {
        SettleItem::release(attempt(id, 1), None)
    }

    /// One that emitted a job with so many bytes.
    fn large_item(id: i64, bytes: usize) -> SettleItem {
        let mut item = item(id);
        let payload = Payload::Inline(Bytes::from(vec![0; bytes]));
        let key = item.attempt.running.job.key.clone();
        let new = NewJob::new(JobId::new(1).unwrap(), key, payload, Timestamp(0));
        item.settlement.adds = vec![new];
        item
    }

    fn damaged() -> store::Error {
        store::Error::Corrupt("a row".into())
    }

    /// The jobs of the next batch.
    fn next(outbox: &mut Outbox, now: Instant) -> Vec<i64> {
        let batch = outbox.next_batch(now);
        let attempts = batch.map_or(&[][..], |batch| &batch.attempts);
        attempts.iter().map(|attempt| attempt.running.job.id.get()).collect()
    }

    fn shown(outbox: &mut Outbox) -> Option<Vec<i64>> {
        let parked = outbox.parked_now()?;
        assert!(parked.values().all(|why| why.contains("a row")), "{parked:?}");
        Some(parked.keys().map(|id| id.get()).collect())
    }

    fn outbox_of(items: impl IntoIterator<Item = SettleItem>) -> Outbox {
        let mut outbox = Outbox::default();
        outbox.pending.extend(items);
        outbox
    }

    #[test]
    fn a_batch_that_the_store_cannot_take_is_stored_one_by_one() {
        let (mut outbox, now) = (outbox_of([1, 2, 3].map(item)), Instant::now());
        assert_eq!(next(&mut outbox, now), [1, 2, 3]);
        assert!(outbox.set_aside(&damaged(), now));
        outbox.pending.push(item(4));
        for id in [1, 2, 3] {
            assert!(!outbox.is_idle());
            assert_eq!(next(&mut outbox, now), [id], "before those that came later");
            if id == 2 {
                assert!(outbox.set_aside(&damaged(), now));
            } else {
                assert!(outbox.answered().is_some());
            }
            assert_eq!(shown(&mut outbox), (id == 3).then(|| vec![2]), "after the last one");
        }
        assert_eq!(next(&mut outbox, now), [4]);
        assert!(!outbox.is_idle() && outbox.answered().is_some());
        assert!(outbox.is_idle() && shown(&mut outbox).is_none(), "nothing has changed since");
    }

    #[test]
    fn what_is_parked_is_tried_again_after_a_pause() {
        let (mut outbox, start) = (outbox_of([item(1)]), Instant::now());
        assert_eq!(outbox.retry_at(), None);
        let mut now = start;
        for _ in 0..3 {
            assert_eq!(next(&mut outbox, now), [1]);
            assert!(outbox.set_aside(&damaged(), now));
            assert_eq!(shown(&mut outbox), Some(vec![1]));
            assert_eq!(outbox.retry_at(), Some(now + PARKED_PAUSE));
            let early = now + PARKED_PAUSE - Duration::from_millis(1);
            assert!(next(&mut outbox, early).is_empty());
            now += PARKED_PAUSE;
        }
        assert_eq!(next(&mut outbox, now), [1]);
        assert!(outbox.answered().is_some());
        assert_eq!((shown(&mut outbox), outbox.retry_at()), (Some(Vec::new()), None));
    }

    #[test]
    fn a_batch_that_is_on_its_way_goes_before_what_is_due() {
        let (mut outbox, now) = (outbox_of([item(1)]), Instant::now());
        next(&mut outbox, now);
        assert!(outbox.set_aside(&damaged(), now));
        outbox.pending.push(item(2));
        assert_eq!(next(&mut outbox, now), [2]);
        assert_eq!(next(&mut outbox, now + PARKED_PAUSE), [2], "it is retried first");
    }

    #[tokio::test]
    async fn what_is_parked_leaves_its_room_in_the_queue_to_others() {
        let (queue, mut settlements) = SettleQueue::new();
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        for id in [1, 2, 3] {
            let sent = queue.send(large_item(id, PARKED_BYTES_MAX / 3));
            in_time("there is room", sent).await;
            outbox.pending.extend(settlements.recv().await);
            assert_eq!(next(&mut outbox, now), [id]);
            assert!(outbox.set_aside(&damaged(), now));
        }
        in_time("there is room", queue.send(large_item(4, PARKED_BYTES_MAX))).await;
    }

    #[test]
    fn while_the_store_is_away_nothing_is_set_aside() {
        let (mut outbox, now) = (outbox_of([item(1)]), Instant::now());
        let away = store::Error::Unavailable("away".into());
        assert!(!outbox.set_aside(&damaged(), now), "there is no batch");
        assert_eq!(next(&mut outbox, now), [1]);
        assert!(!outbox.set_aside(&away, now));
        assert_eq!(next(&mut outbox, now), [1]);
    }

    #[test]
    fn so_many_are_parked_and_no_more() {
        let now = Instant::now();
        let fits = |items: Vec<SettleItem>| {
            let mut outbox = outbox_of([item(1)]);
            items.into_iter().for_each(|item| outbox.parked.push(item, "why".into(), now));
            next(&mut outbox, now);
            let fits = outbox.set_aside(&damaged(), now);
            assert_eq!(next(&mut outbox, now).is_empty(), fits, "else it waits in its batch");
            fits
        };
        assert!(fits((0..PARKED_MAX - 1).map(|_| item(2)).collect()));
        assert!(!fits((0..PARKED_MAX).map(|_| item(2)).collect()));
        let bytes = PARKED_BYTES_MAX - size_of::<NewJob>();
        assert!(fits(vec![large_item(2, bytes - 1)]));
        assert!(!fits(vec![large_item(2, bytes)]));
    }
}
