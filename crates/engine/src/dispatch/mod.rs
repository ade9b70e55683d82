//! Dispatch: while there are slots, pick, claim a small batch, and hand it to the runner.
//!
//! Wake-ups, not polling: adds and ended jobs of this daemon wake it at once. What other daemons
//! do it learns from the store's notifications, or by looking at the store less and less often.

pub(crate) mod batch;
pub(crate) mod catalogue;
pub(crate) mod policy;
pub(crate) mod progress;
mod reserved;
pub(crate) mod running;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use windlass_core::store::{Claim, Claimed, Hold, Pick};
use windlass_core::{Handler, HandlerId, Payload, TypeKey};

use crate::dispatch::policy::Policy;
use crate::dispatch::reserved::Reserved;
use crate::dispatch::running::RunningJob;
use crate::error::Error;
use crate::house::service::{Backoff, Next, Service};
use crate::settle::{self, SettleItem};
use crate::shared::Shared;

/// Batches that one claim asks for.
const PICKS_MAX: usize = 64;
/// A look at the store may take this share of the daemon's time: one part in so many.
const LOOK_SHARE: u32 = 10;
/// The pause after the store refused a claim.
const CLAIM_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    batches: TaskTracker,
    poll: Backoff,
    poll_at: Instant,
    /// No look before this moment, so that many waiting types do not eat the daemon's time.
    look_from: Instant,
}

/// What one claim asks for, type by type.
type Wanted = HashMap<TypeKey, WantedType>;

struct WantedType {
    pick: Pick,
    batches: Vec<Reserved>,
    /// Jobs of the type noted before the claim.
    noted: u64,
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>, batches: TaskTracker) -> Dispatch {
        let poll = Backoff::new(shared.options.poll_min, shared.options.poll_max);
        let now = Instant::now();
        Dispatch { shared, batches, poll, poll_at: now, look_from: now }
    }

    /// Looks at the store for what waits, when there is a reason to.
    async fn look_if_due(&mut self) {
        let began = Instant::now();
        let shared = &self.shared;
        let due = shared.next_due.borrow().is_some_and(|at| at <= shared.now());
        let wanted = shared.look_wanted.load(Ordering::SeqCst);
        if began < self.look_from || !(due || wanted || began >= self.poll_at) {
            return;
        }
        shared.look_wanted.store(false, Ordering::SeqCst);
        shared.next_due.send_replace(None);
        shared.scheduler().look_begins();
        match shared.store.type_waiting(shared.now()).await {
            Ok(waiting) => {
                let hungry = !shared.hunger.is_empty();
                let types = waiting.types.iter().filter(|_| hungry);
                let types: Vec<TypeKey> = types.map(|waiting| waiting.key.clone()).collect();
                shared.scheduler().look_ends(waiting.types);
                waiting.next_due_at.into_iter().for_each(|at| shared.announce_due(at));
                shared.looks.send_modify(|looks| *looks += 1);
                let hope = shared.scheduler().hope_for(types);
                shared.hunger.wake(hope.iter().map(|(key, jobs)| (key, *jobs)));
                if due {
                    shared.hunger.wake_mocked();
                }
                if due || wanted {
                    self.poll.reset();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot see what waits");
                shared.look_wanted.store(true, Ordering::SeqCst);
                self.look_from = began + CLAIM_PAUSE;
                return;
            }
        }
        self.look_from = Instant::now() + began.elapsed() * LOOK_SHARE;
        self.poll_at = Instant::now() + self.poll.pause();
    }

    /// Tells waiting workers of types that are not over their rate any more.
    fn wake_rested(&self) {
        let rested = self.shared.scheduler().take_rested(self.shared.now());
        self.shared.hunger.wake(rested.iter().map(|(key, jobs)| (key, *jobs)));
    }

    /// Picks for the free slots and reserves them.
    fn pick(&self) -> Wanted {
        let shared = &self.shared;
        let mut wanted = Wanted::new();
        if !shared.picking.load(Ordering::SeqCst) {
            return wanted;
        }
        let warm = shared.runner.warm().into_iter().collect();
        let now = shared.now();
        let mut scheduler = shared.scheduler();
        let mut rng = shared.rng();
        for _ in 0..PICKS_MAX {
            let Some((mut pick, handler)) = scheduler.select(now, &warm, &mut rng) else { break };
            pick.limit = pick.limit.min(self.batch_max(handler));
            let noted = scheduler.claiming(&pick.key, pick.limit);
            scheduler.started(&pick.key, handler, u64::from(pick.limit), now);
            let entry = wanted.entry(pick.key.clone()).or_insert_with(|| WantedType {
                pick: Pick { limit: 0, ..pick.clone() },
                batches: Vec::new(),
                noted,
            });
            entry.pick.limit += pick.limit;
            entry.pick.floor = entry.pick.floor.or(pick.floor);
            let (shared, key, jobs) = (shared.clone(), pick.key, pick.limit);
            entry.batches.push(Reserved { shared, key, handler, jobs, over: false });
        }
        wanted
    }

    /// The first batch of a handler that was never seen is one job; it brings the handler along.
    fn batch_max(&self, handler: HandlerId) -> u32 {
        let known = self.shared.catalogue.known(handler);
        known.map_or(1, |handler| self.shared.runner.batch_max(&handler).max(1))
    }

    async fn claim(&self, wanted: Wanted) -> bool {
        let shared = &self.shared;
        let token = match shared.token().await {
            Ok(token) => token,
            Err(error) => {
                tracing::warn!(%error, "cannot claim jobs");
                self.give_up_claim(wanted);
                return false;
            }
        };
        let claim = Claim {
            picks: wanted.values().map(|wanted| wanted.pick.clone()).collect(),
            owner: shared.grant.sysid,
            token,
            hold: Hold::Beat(shared.grant.boot),
            now: shared.now(),
        };
        // Until all that it takes is in the running table.
        let _under_way = shared.tokens.under_way(token);
        let claimed = match shared.store.job_claim(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "cannot claim jobs");
                self.give_up_claim(wanted);
                return false;
            }
        };
        let mut by_type: HashMap<TypeKey, Vec<Claimed>> = HashMap::new();
        for job in claimed {
            by_type.entry(job.job.key.clone()).or_default().push(job);
        }
        for (key, wanted) in wanted {
            let jobs = by_type.remove(&key).unwrap_or_default();
            let (asked, got) = (wanted.pick.limit, jobs.len() as u32);
            shared.scheduler().claimed(&key, asked, got, wanted.noted);
            self.start_batches(&key, wanted, jobs).await;
        }
        true
    }

    fn give_up_claim(&self, wanted: Wanted) {
        for (key, wanted) in wanted {
            self.shared.scheduler().note(&key, u64::from(wanted.pick.limit));
            drop(wanted.batches);
        }
    }

    /// Fills the reserved batches in order; those that stay empty free their slots.
    async fn start_batches(&self, key: &TypeKey, wanted: WantedType, jobs: Vec<Claimed>) {
        let mut jobs = jobs.into_iter();
        for mut reserved in wanted.batches {
            let batch: Vec<Claimed> = jobs.by_ref().take(reserved.jobs as usize).collect();
            reserved.shrink(batch.len() as u32);
            if !batch.is_empty() {
                self.start_batch(key, reserved, batch).await;
            }
        }
    }

    async fn start_batch(&self, key: &TypeKey, reserved: Reserved, jobs: Vec<Claimed>) {
        let shared = &self.shared;
        let handler = self.handler_for(key, jobs[0].handler).await;
        let settings = shared.scheduler().settings(key).unwrap_or_default();
        let policy = Arc::new(Policy::of(handler.as_deref(), &settings, &shared.options));
        let mut running = Vec::with_capacity(jobs.len());
        for Claimed { job, payload, .. } in jobs {
            let Some(lease) = job.lease else { continue };
            let policy = policy.clone();
            let (token, lost, started) = (lease.token, false, false);
            let claimed = RunningJob {
                job: Arc::new(job),
                token,
                policy,
                live: Arc::default(),
                lost,
                started,
            };
            shared.running.insert(claimed.clone());
            running.push((claimed, payload));
        }
        match handler {
            Some(handler) => {
                self.batches.spawn(reserved.run(handler, running));
            }
            None => self.hand_back(reserved, running).await,
        }
    }

    /// The handler to run, if there is one and this machine can run it.
    async fn handler_for(&self, key: &TypeKey, version: Option<HandlerId>) -> Option<Arc<Handler>> {
        let shared = &self.shared;
        let version = version.or_else(|| {
            shared.scheduler().set_handler(key, None);
            None
        })?;
        let handler = match shared.catalogue.get(shared.store.as_ref(), key, version).await {
            Ok(handler) => handler?,
            Err(error) => {
                tracing::warn!(%error, r#type = %key, "cannot read a handler");
                return None;
            }
        };
        if let Err(why) = shared.runner.check(&handler.spec) {
            tracing::warn!(r#type = %key, %why, "this machine cannot run a handler");
            shared.scheduler().set_unrunnable(version);
            return None;
        }
        let batches_max = shared.runner.batches_max(&handler);
        let mut scheduler = shared.scheduler();
        scheduler.set_handler(key, Some(version));
        scheduler.set_contexts(key, version, batches_max);
        drop(scheduler);
        Some(handler)
    }

    /// Jobs whose handler went away in the meantime return to the queue unharmed.
    async fn hand_back(&self, reserved: Reserved, jobs: Vec<(RunningJob, Payload)>) {
        let now = self.shared.now();
        drop(reserved);
        for (running, _) in jobs {
            let settlement = settle::release(running.lease(), now, now);
            let room = &self.shared.settle_room;
            let item = SettleItem::new(room, running.job, settlement, Duration::ZERO).await;
            if self.shared.settle_queue.send(item).await.is_err() {
                return;
            }
        }
    }

    /// How long nothing will happen unless somebody wakes us.
    fn pause(&self) -> Duration {
        let shared = &self.shared;
        let now = shared.now();
        let rested = shared.scheduler().next_rested_at().map(|at| at.since(now));
        let due = shared.next_due.borrow().map(|at| at.since(now));
        let instant = Instant::now();
        let look = self.look_from.saturating_duration_since(instant);
        let looking = shared.look_wanted.load(Ordering::SeqCst).then_some(look);
        let poll = self.poll_at.saturating_duration_since(instant);
        let poll = (!shared.store.capabilities().wakes).then_some(poll);
        let due = due.map(|due| due.max(look));
        [rested, due, looking, poll].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }
}

#[async_trait]
impl Service for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    /// The scheduler may think that jobs are gone that the panic kept from being claimed.
    async fn recover(&mut self) -> Result<(), Error> {
        self.shared.look();
        Ok(())
    }

    async fn pass(&mut self) -> Next {
        self.look_if_due().await;
        self.wake_rested();
        let wanted = self.pick();
        if wanted.is_empty() {
            return Next::After(self.pause());
        }
        if self.claim(wanted).await { Next::Now } else { Next::After(CLAIM_PAUSE) }
    }
}
