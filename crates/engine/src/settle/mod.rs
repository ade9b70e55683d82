//! Settle: verdicts on ended attempts go into the store in batches, each with the jobs that the
//! attempt asked for, and everybody who cares hears of it. An attempt stays in the running table,
//! and its lease is renewed, until its verdict is stored.
//!
//! A batch that the store cannot take, because something is wrong with one of its jobs, is settled
//! one by one. What fails then too is parked, shown (`house::health`), and tried again from time to
//! time; everything else goes on.

pub(crate) mod verdict;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::edit::Moved;
use windlass_core::retry::Verdict;
use windlass_core::store::{self, Durability, SettleAnswer, Settled, Settlement};
use windlass_core::{Job, State, TypeKey};

use crate::accept::direct;
use crate::ask::decide;
use crate::dispatch::running::RunningJob;
use crate::error::Error;
use crate::event;
use crate::house::service::{Backoff, Failed, Next, Service};
use crate::shared::Shared;

use verdict::Rules;

/// Ended attempts that may wait for the store; beyond that, runners wait.
const SETTLE_QUEUE_MAX: usize = 10_000;
/// Results, logs and payloads that may wait for the store; beyond that, runners wait.
const SETTLE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Verdicts in one transaction.
const SETTLE_BATCH_MAX: usize = 1000;
/// Jobs that enter in one transaction, unless a single attempt asked for more (`EMITTED_MAX`).
const SETTLE_BATCH_ADDS_MAX: usize = 2000;
/// Bytes of one transaction, unless a single attempt left more behind.
const SETTLE_BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Verdicts that may be parked; beyond that, all of them wait.
const PARKED_MAX: usize = 1000;
/// How often those that are parked are tried again.
const PARKED_PAUSE: Duration = Duration::from_secs(5);
/// Pauses while the store does not take anything.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A verdict on an attempt that ran in this daemon.
pub(crate) struct SettleItem {
    pub running: RunningJob,
    settlement: Settlement,
    /// How much of the log is the attempt's own, and not about the verdict.
    said: usize,
    run: Duration,
    /// Held until the store has it.
    room: Option<OwnedSemaphorePermit>,
}

impl SettleItem {
    pub(crate) fn new(
        running: RunningJob,
        settlement: Settlement,
        said: usize,
        run: Duration,
    ) -> SettleItem {
        SettleItem { running, settlement, said, run, room: None }
    }

    pub(crate) fn release(running: RunningJob, after: Option<Duration>) -> SettleItem {
        let settlement = verdict::release(running.lease(), after);
        SettleItem::new(running, settlement, 0, Duration::ZERO)
    }

    fn bytes(&self) -> usize {
        let Settlement { data, log, adds, follow, .. } = &self.settlement;
        let data = data.as_ref().map_or(0, |data| data.as_str().len());
        let payloads = adds.iter().chain(follow).map(|new| new.payload.len()).sum::<u64>();
        data + log.len() + usize::try_from(payloads).unwrap_or(usize::MAX)
    }
}

/// The way to the store for verdicts, bounded in number and in memory.
pub(crate) struct SettleQueue {
    items: mpsc::Sender<SettleItem>,
    bytes: Arc<Semaphore>,
}

impl SettleQueue {
    pub(crate) fn new() -> (SettleQueue, mpsc::Receiver<SettleItem>) {
        let (items, settlements) = mpsc::channel(SETTLE_QUEUE_MAX);
        (SettleQueue { items, bytes: Arc::new(Semaphore::new(SETTLE_BYTES_MAX)) }, settlements)
    }

    /// Hands a verdict over; waits until there is room for what it carries.
    pub(crate) async fn send(&self, mut item: SettleItem) {
        let bytes = item.bytes().min(SETTLE_BYTES_MAX) as u32;
        // Nobody closes it, so that there is room sooner or later.
        item.room = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok();
        if self.items.send(item).await.is_err() {
            tracing::error!("an attempt ended after the engine stopped; its lease will expire");
        }
    }
}

pub(crate) struct Settle {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<SettleItem>,
    stop: CancellationToken,
    /// Taken from the queue, in no batch yet.
    taken: Vec<SettleItem>,
    /// Each of them makes a batch of its own, before any other.
    alone: VecDeque<SettleItem>,
    /// On its way to the store; tried until that takes it.
    batch: Option<Batch>,
    /// The store cannot take these, and says why not.
    parked: Vec<(SettleItem, String)>,
    /// When they are tried again.
    parked_until: Instant,
    /// They are others than those that are shown.
    parked_changed: bool,
    backoff: Backoff,
}

/// Verdicts of one transaction.
struct Batch {
    settlements: Arc<[Settlement]>,
    /// What else is known of each attempt.
    about: Vec<About>,
}

struct About {
    running: RunningJob,
    said: usize,
    run: Duration,
    room: Option<OwnedSemaphorePermit>,
}

impl Batch {
    fn of(items: impl IntoIterator<Item = SettleItem>) -> Batch {
        let split = |SettleItem { running, settlement, said, run, room }| {
            (settlement, About { running, said, run, room })
        };
        let (settlements, about): (Vec<_>, _) = items.into_iter().map(split).unzip();
        Batch { settlements: settlements.into(), about }
    }

    fn into_items(self) -> impl Iterator<Item = SettleItem> {
        let item = |(settlement, About { running, said, run, room }): (&Settlement, About)| {
            SettleItem { running, settlement: settlement.clone(), said, run, room }
        };
        let settlements = self.settlements;
        let items: Vec<_> = settlements.iter().zip(self.about).map(item).collect();
        items.into_iter()
    }
}

impl About {
    /// What is settled instead when the store refused the jobs that the attempt asked for. Nothing
    /// enters with it any more, so that it is not refused again.
    fn refused(self, shared: &Shared, settlement: &Settlement, why: Error) -> SettleItem {
        let About { running, said, run, room } = self;
        let rules = Rules::now(shared, &running.policy);
        let settlement = verdict::refused(&running.job, settlement, said, &why, &rules);
        SettleItem { running, settlement, said, run, room }
    }
}

/// How many of these make a batch; one always does.
fn batch_len(items: &[SettleItem]) -> usize {
    let (mut adds, mut bytes) = (0, 0);
    let fits = |(index, item): &(usize, &SettleItem)| {
        adds += item.settlement.adds.len();
        bytes += item.bytes();
        *index == 0 || (adds <= SETTLE_BATCH_ADDS_MAX && bytes <= SETTLE_BATCH_BYTES_MAX)
    };
    items.iter().enumerate().take(SETTLE_BATCH_MAX).take_while(fits).count()
}

impl Settle {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: mpsc::Receiver<SettleItem>,
        stop: CancellationToken,
    ) -> Settle {
        Settle {
            shared,
            queue,
            stop,
            taken: Vec::new(),
            alone: VecDeque::new(),
            batch: None,
            parked: Vec::new(),
            parked_until: Instant::now(),
            parked_changed: false,
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
        }
    }

    /// Waits until there is something to do; false when that is to stop.
    async fn something_to_do(&mut self) -> bool {
        if self.batch.is_some() || !self.alone.is_empty() || !self.taken.is_empty() {
            return true;
        }
        tokio::select! {
            () = self.stop.cancelled() => return false,
            _ = self.queue.recv_many(&mut self.taken, SETTLE_BATCH_MAX) => {}
            () = tokio::time::sleep_until(self.parked_until), if !self.parked.is_empty() => {}
        }
        true
    }

    fn next_batch(&mut self) -> Option<&Batch> {
        if self.batch.is_none() && !self.parked.is_empty() && Instant::now() >= self.parked_until {
            self.parked_until = Instant::now() + PARKED_PAUSE;
            self.parked_changed = true;
            self.alone.extend(self.parked.drain(..).map(|(item, _)| item));
        }
        if self.batch.is_none() {
            self.batch = self.alone.pop_front().map(|item| Batch::of([item]));
        }
        if self.batch.is_none() && !self.taken.is_empty() {
            let len = batch_len(&self.taken);
            self.batch = Some(Batch::of(self.taken.drain(..len)));
        }
        self.batch.as_ref()
    }

    /// The store failed at the batch as a whole. True when there is another way than to try again:
    /// a batch is taken apart, a single verdict is parked.
    fn set_aside(&mut self, error: &store::Error) -> bool {
        if matches!(error, store::Error::Unavailable(_)) || self.parked.len() >= PARKED_MAX {
            return false;
        }
        let Some(batch) = self.batch.take() else { return false };
        if batch.about.len() > 1 {
            self.alone.extend(batch.into_items());
            return true;
        }
        for item in batch.into_items() {
            let id = item.running.job.id;
            tracing::error!(%id, %error, "the store cannot take a result; it is tried again");
            if self.parked.is_empty() {
                self.parked_until = Instant::now() + PARKED_PAUSE;
            }
            self.parked.push((item, error.to_string()));
            self.parked_changed = true;
        }
        true
    }

    /// When all that were to be tried have been.
    fn show_parked(&mut self) {
        if !self.alone.is_empty() || !std::mem::take(&mut self.parked_changed) {
            return;
        }
        let parked = self.parked.iter().map(|(item, why)| (item.running.job.id, why.clone()));
        self.shared.health.set_parked(parked.collect());
    }

    /// The store has taken the batch.
    fn settled(&mut self, answer: SettleAnswer) {
        let Some(Batch { settlements, about }) = self.batch.take() else { return };
        let shared = &self.shared;
        let mut over = Vec::with_capacity(about.len());
        for ((settlement, about), answer) in settlements.iter().zip(about).zip(answer.settled) {
            match answer {
                Settled::Unfit { parent, unfit } => {
                    let why = direct::unfit_parent(parent, unfit);
                    self.taken.push(about.refused(shared, settlement, why));
                }
                answer => {
                    shared.running.remove(about.running.attempt_id());
                    over.push((settlement, about, answer));
                }
            }
        }
        for (settlement, About { running, run, .. }, answer) in over {
            conclude(shared, &running.job, settlement, answer, run);
        }
        tell_entered(shared, &answer.moved);
    }
}

#[async_trait]
impl Service for Settle {
    fn name(&self) -> &'static str {
        "settle"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        if !self.something_to_do().await {
            return Ok(Next::OnWake);
        }
        let Some(batch) = self.next_batch() else { return Ok(Next::Now) };
        let settlements = batch.settlements.clone();
        let waiting = settlements.len();
        // A power cut may undo this and run the jobs again; it never loses one.
        match self.shared.store.job_settle(settlements, Durability::Relaxed).await {
            Ok(answer) => self.settled(answer),
            Err(error) if self.set_aside(&error) => {}
            Err(error) => {
                let why = format!("{waiting} results wait: {error}");
                return Err(Failed::new(why, self.backoff.pause()));
            }
        }
        self.show_parked();
        self.backoff.reset();
        Ok(Next::Now)
    }
}

/// Carries out verdicts that do not come through the queue. Where the store fails at all of them
/// together, they go one by one, so that one damaged job does not keep the others. The answers, and
/// why there are not more of them.
pub(crate) async fn settle_each(
    shared: &Shared,
    settlements: Arc<[Settlement]>,
) -> (Vec<Option<Settled>>, Result<(), store::Error>) {
    let settle = |batch| shared.store.job_settle(batch, Durability::Relaxed);
    match settle(settlements.clone()).await {
        Ok(answer) => return (answer.settled.into_iter().map(Some).collect(), Ok(())),
        Err(error @ store::Error::Unavailable(_)) => return (Vec::new(), Err(error)),
        Err(_) => {}
    }
    let (mut answers, mut all) = (Vec::with_capacity(settlements.len()), Ok(()));
    for settlement in &*settlements {
        let settled = settle([settlement.clone()].into()).await;
        answers.push(settled.as_ref().ok().and_then(|answer| answer.settled.first().copied()));
        all = all.and(settled.map(drop));
    }
    (answers, all)
}

/// After a verdict was stored (or refused): the log, the numbers, whoever waits, the scheduler.
pub(crate) fn conclude(
    shared: &Shared,
    job: &Job,
    settlement: &Settlement,
    answer: Settled,
    run: Duration,
) {
    shared.job_waiters.wake(&job.id);
    if answer == Settled::Stale {
        event::returned(job, "lease lost");
        return;
    }
    let paused = answer == Settled::Paused;
    match (settlement.ended, settlement.verdict) {
        (Some(ended), verdict) => {
            let again = matches!(verdict, Verdict::Again { .. });
            shared.metrics.ended(&job.key, ended.code, again);
            let what = if paused { State::Paused.as_str() } else { what_next(verdict) };
            event::ended(job, ended, run, what);
        }
        (None, _) => event::returned(job, "released"),
    }
    shared.ready.announce_room(&job.key);
    if paused || is_in_family(job) {
        shared.ready.look();
    }
    if paused {
        return;
    }
    let now = shared.now();
    let run_at = match settlement.verdict {
        Verdict::End(_) => return,
        Verdict::Again { after } => now + after,
        Verdict::Release { after } => now + after.unwrap_or_default(),
        Verdict::Repeat { run_at } => run_at,
    };
    if run_at <= now {
        shared.ready.announce([(job.key.clone(), 1)]);
    } else {
        shared.ready.announce_due(run_at);
    }
}

/// Tells of jobs that entered with the ends of others.
pub(crate) fn tell_entered(shared: &Shared, moved: &Moved) {
    let mut numbers: HashMap<&TypeKey, u64> = HashMap::new();
    for (_, key) in &moved.entered {
        *numbers.entry(key).or_default() += 1;
    }
    numbers.into_iter().for_each(|(key, jobs)| shared.metrics.followed(key, jobs));
    decide::tell(shared, moved);
}

/// Whether others may have moved with this job; only the store knows which.
pub(crate) fn is_in_family(job: &Job) -> bool {
    job.children || job.parent.is_some()
}

fn what_next(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::End(ending) => ending.state().as_str(),
        Verdict::Again { .. } => "again",
        Verdict::Release { .. } => "released",
        Verdict::Repeat { .. } => "repeats",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_core::job::Token;
    use windlass_core::{JobId, NewJob, Payload, TypeSettings};

    use super::*;
    use crate::dispatch::policy::Policy;
    use crate::options::Options;

    /// The verdict on an attempt that asked for so many jobs with so many bytes each.
    fn item(adds: usize, bytes: usize) -> SettleItem {
        let key = TypeKey::new("acme", "t").unwrap();
        let payload = Payload::Inline(Bytes::from(vec![0; bytes]));
        let new = NewJob::new(JobId::new(1).unwrap(), key, payload, windlass_core::Timestamp(0));
        let policy = Policy::of(None, &TypeSettings::default(), &Options::new("".into()));
        let running = RunningJob {
            job: Arc::new(Job::queued(new.clone())),
            token: Token(1),
            policy: Arc::new(policy),
            live: Arc::default(),
            lost: false,
            started: true,
        };
        let mut item = SettleItem::release(running, None);
        item.settlement.adds = vec![new; adds];
        item
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
        assert_eq!(len(&[(1, SETTLE_BATCH_BYTES_MAX), (0, 0), (1, 1)]), 2);
        assert_eq!(len(&[(2, SETTLE_BATCH_BYTES_MAX), (1, 1)]), 1);
    }
}
