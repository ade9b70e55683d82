//! The queue of settlements of attempts that ran in this daemon, and the batches in which they are
//! stored. Both are bounded in number and in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use windlass_core::job::NewJob;
use windlass_core::store::Settlement;

use crate::dispatch::running::RunningJob;
use crate::error::Error;
use crate::shared::Shared;

use super::verdict::{self, Rules};

/// Ended attempts that may wait for the store; beyond that, runners wait.
const SETTLE_QUEUE_MAX: usize = 10_000;
/// Bytes of results, logs and new jobs that may wait for the store; beyond that, runners wait.
const SETTLE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Settlements in one transaction.
pub(super) const SETTLE_BATCH_MAX: usize = 1000;
/// Jobs that enter in one transaction, unless a single attempt emitted more (`EMITTED_MAX`).
const SETTLE_BATCH_ADDS_MAX: usize = 2000;
/// Bytes of one transaction, unless a single settlement has more.
const SETTLE_BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A settlement with more new jobs or bytes than this is stored by itself.
const LIGHT_ADDS_MAX: usize = 200;
const LIGHT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A settlement of an attempt that ran in this daemon.
pub(crate) struct SettleItem {
    pub settlement: Settlement,
    pub attempt: EndedAttempt,
}

/// What the engine knows of an ended attempt and the store does not need.
pub(crate) struct EndedAttempt {
    pub running: RunningJob,
    pub run_time: Duration,
    /// The bytes of the log that are the attempt's own and not about the verdict.
    log_own: usize,
    /// Held until the store has the settlement.
    room: Option<OwnedSemaphorePermit>,
}

impl SettleItem {
    pub(crate) fn new(
        running: RunningJob,
        settlement: Settlement,
        log_own: usize,
        run_time: Duration,
    ) -> SettleItem {
        SettleItem { settlement, attempt: EndedAttempt { running, run_time, log_own, room: None } }
    }

    pub(crate) fn release(running: RunningJob, after: Option<Duration>) -> SettleItem {
        let settlement = verdict::release(running.lease(), after);
        SettleItem::new(running, settlement, 0, Duration::ZERO)
    }

    pub(super) fn bytes(&self) -> usize {
        let Settlement { data, log, adds, follow, .. } = &self.settlement;
        let data = data.as_ref().map_or(0, |data| data.as_str().len());
        let job_bytes = |new: &NewJob| (size_of::<NewJob>() as u64) + new.payload.len();
        let jobs = adds.iter().chain(follow).map(job_bytes).sum::<u64>();
        data + log.len() + usize::try_from(jobs).unwrap_or(usize::MAX)
    }
}

/// The sending end of the queue.
pub(crate) struct SettleQueue {
    items: mpsc::Sender<SettleItem>,
    bytes: Arc<Semaphore>,
}

impl SettleQueue {
    pub(crate) fn new() -> (SettleQueue, mpsc::Receiver<SettleItem>) {
        let (items, settlements) = mpsc::channel(SETTLE_QUEUE_MAX);
        (SettleQueue { items, bytes: Arc::new(Semaphore::new(SETTLE_BYTES_MAX)) }, settlements)
    }

    /// Queues a settlement; waits until there is room for its bytes.
    pub(crate) async fn send(&self, mut item: SettleItem) {
        let bytes = item.bytes().min(SETTLE_BYTES_MAX) as u32;
        // The semaphore is never closed.
        item.attempt.room = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok();
        if self.items.send(item).await.is_err() {
            tracing::error!("an attempt ended after the engine stopped; its lease will expire");
        }
    }
}

/// Settlements of one transaction. They are shared with the store without a copy; each
/// belongs to the attempt at the same index.
pub(super) struct Batch {
    pub settlements: Arc<[Settlement]>,
    pub attempts: Vec<EndedAttempt>,
}

impl Batch {
    pub(super) fn of(items: impl IntoIterator<Item = SettleItem>) -> Batch {
        let items = items.into_iter().map(|item| (item.settlement, item.attempt));
        let (settlements, attempts): (Vec<_>, _) = items.unzip();
        Batch { settlements: settlements.into(), attempts }
    }

    /// For batches that the store refused.
    pub(super) fn into_items(self) -> Vec<SettleItem> {
        let settlements = self.settlements.iter().cloned();
        let items = settlements.zip(self.attempts);
        items.map(|(settlement, attempt)| SettleItem { settlement, attempt }).collect()
    }
}

impl EndedAttempt {
    /// Makes room for others; it waits elsewhere.
    pub(super) fn leave_queue(&mut self) {
        self.room = None;
    }

    /// What is settled instead if the store refused the jobs that the attempt emitted.
    pub(super) fn refused(
        self,
        shared: &Shared,
        settlement: &Settlement,
        why: &Error,
    ) -> SettleItem {
        let RunningJob { job, policy, .. } = &self.running;
        let rules = Rules::now(shared, policy);
        let settlement = verdict::refused(job, settlement, self.log_own, why, &rules);
        SettleItem { settlement, attempt: self }
    }
}

/// Verdicts that were taken from the queue and are in no batch yet. Those that bring very many jobs
/// or bytes take turns with the others, one at a time: an attempt that emits thousands of jobs does
/// not delay the ends of attempts that do not.
#[derive(Default)]
pub(super) struct Pending {
    light: VecDeque<SettleItem>,
    heavy: VecDeque<SettleItem>,
    heavy_next: bool,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.light.len() + self.heavy.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, item: SettleItem) {
        let is_heavy =
            item.settlement.adds.len() > LIGHT_ADDS_MAX || item.bytes() > LIGHT_BYTES_MAX;
        if is_heavy { &mut self.heavy } else { &mut self.light }.push_back(item);
    }

    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = SettleItem>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let heavy = self.light.is_empty() || (self.heavy_next && !self.heavy.is_empty());
        self.heavy_next = !heavy;
        if heavy {
            return self.heavy.pop_front().map(|item| Batch::of([item]));
        }
        let len = batch_len(&self.light);
        Some(Batch::of(self.light.drain(..len)))
    }
}

/// How many of these items fit into a batch; at least one.
fn batch_len<'a>(items: impl IntoIterator<Item = &'a SettleItem>) -> usize {
    let (mut adds, mut bytes) = (0, 0);
    let fits = |(index, item): &(usize, &SettleItem)| {
        adds += item.settlement.adds.len();
        bytes += item.bytes();
        *index == 0 || (adds <= SETTLE_BATCH_ADDS_MAX && bytes <= SETTLE_BATCH_BYTES_MAX)
    };
    items.into_iter().enumerate().take(SETTLE_BATCH_MAX).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_core::{JobId, Json, Log, NewJob, Payload, Timestamp};

    use super::*;
    use crate::dispatch::running::tests::attempt;

    /// The settlement of an attempt that emitted `adds` jobs of `bytes` bytes each.
    fn item(adds: usize, bytes: usize) -> SettleItem {
        let running = attempt(1, 1);
        let (id, key) = (JobId::new(2).unwrap(), running.job.key.clone());
        let payload = Payload::Inline(Bytes::from(vec![0; bytes]));
        let new = NewJob::new(id, key, payload, Timestamp(0));
        let mut item = SettleItem::release(running, None);
        item.settlement.adds = vec![new; adds];
        item
    }

    #[test]
    fn attempts_that_bring_very_many_jobs_take_turns_with_the_others() {
        let mut pending = Pending::default();
        let mut lens = |push: &[usize], batches: usize| -> Vec<(usize, usize)> {
            push.iter().for_each(|adds| pending.push(item(*adds, 0)));
            let batch = |_| pending.next_batch().expect("there are more");
            let size = |batch: Batch| (batch.attempts.len(), batch.settlements[0].adds.len());
            (0..batches).map(batch).map(size).collect()
        };
        let many = LIGHT_ADDS_MAX + 1;
        assert_eq!(lens(&[many, many, many, 0, 0], 2), [(2, 0), (1, many)]);
        assert_eq!(lens(&[0, 0, 0], 2), [(3, 0), (1, many)], "those that came since go first");
        assert_eq!(lens(&[], 1), [(1, many)]);
        assert!(pending.is_empty() && pending.next_batch().is_none());
    }

    #[test]
    fn a_heavy_settlement_waits_for_one_batch_of_the_others_and_not_for_all() {
        let mut pending = Pending::default();
        let many = LIGHT_ADDS_MAX + 1;
        pending.extend((0..=2 * SETTLE_BATCH_MAX).map(|_| item(0, 0)));
        pending.push(item(many, 0));
        let size = |batch: Batch| (batch.attempts.len(), batch.settlements[0].adds.len());
        let sizes: Vec<_> = std::iter::from_fn(|| pending.next_batch()).map(size).collect();
        assert_eq!(sizes, [(SETTLE_BATCH_MAX, 0), (1, many), (SETTLE_BATCH_MAX, 0), (1, 0)]);
    }

    #[test]
    fn a_batch_that_the_store_refused_is_taken_apart_without_loss() {
        let items = Batch::of([item(0, 0), item(2, 0), item(1, 0)]).into_items();
        let adds: Vec<usize> = items.iter().map(|item| item.settlement.adds.len()).collect();
        assert_eq!(adds, [0, 2, 1]);
    }

    #[test]
    fn very_many_jobs_or_bytes_make_a_settlement_heavy() {
        let is_heavy = |adds: usize, bytes: usize| {
            let mut pending = Pending::default();
            pending.push(item(adds, bytes));
            assert!(pending.len() == 1 && !pending.is_empty());
            !pending.heavy.is_empty()
        };
        assert!(!is_heavy(LIGHT_ADDS_MAX, 0) && is_heavy(LIGHT_ADDS_MAX + 1, 0));
        let payload = (2 << 20) - size_of::<NewJob>();
        assert!(!is_heavy(1, payload) && is_heavy(1, payload + 1));
    }

    #[test]
    fn a_batch_is_bounded_by_verdicts_jobs_that_enter_and_bytes() {
        let len = |items: &[(usize, usize)]| {
            let items: Vec<_> = items.iter().map(|(adds, bytes)| item(*adds, *bytes)).collect();
            batch_len(&items)
        };
        assert_eq!(len(&[]), 0);
        assert_eq!(len(&[(0, 0); SETTLE_BATCH_MAX + 1]), SETTLE_BATCH_MAX);
        let half = SETTLE_BATCH_ADDS_MAX / 2;
        assert_eq!(len(&[(half, 0), (0, 0), (half, 0), (1, 0), (0, 0)]), 3);
        assert_eq!(len(&[(SETTLE_BATCH_ADDS_MAX + 1, 0), (0, 0)]), 1, "one is always taken");
        let payload = SETTLE_BATCH_BYTES_MAX - size_of::<NewJob>();
        assert_eq!(len(&[(1, payload), (0, 0), (1, 0)]), 2);
        assert_eq!(len(&[(2, SETTLE_BATCH_BYTES_MAX), (1, 1)]), 1);
    }

    #[tokio::test]
    async fn a_settlement_that_waits_elsewhere_leaves_its_room_to_others() {
        let (queue, mut settlements) = SettleQueue::new();
        queue.send(item(1, SETTLE_BYTES_MAX)).await;
        let mut parked = settlements.recv().await.unwrap();
        assert_eq!(queue.bytes.available_permits(), 0);
        parked.attempt.leave_queue();
        queue.send(item(1, SETTLE_BYTES_MAX)).await;
        assert!(settlements.recv().await.is_some());
    }

    #[test]
    fn results_logs_emitted_jobs_and_followers_take_room() {
        let mut item = item(2, 10);
        item.settlement.follow = item.settlement.adds.pop();
        item.settlement.data = Json::parse("12345".to_owned()).ok();
        item.settlement.log = Log::of_note("its own");
        let jobs = 2 * (size_of::<NewJob>() + 10);
        assert_eq!(item.bytes(), jobs + 5 + item.settlement.log.len());
    }

    #[test]
    fn jobs_without_payloads_take_room_too() {
        assert_eq!(item(0, 0).bytes(), 0);
        assert!(item(1000, 0).bytes() >= 1000 * size_of::<NewJob>());
    }
}
