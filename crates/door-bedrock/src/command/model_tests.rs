//! Random sequences of commands on the reference store, with the family rules checked after each:
//! no parent waits without a child that can still make progress, and whatever happened before,
//! every family can be completed.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::edit::{
    Ask, Claimant, Decided, Decision, FamilyView, Names, Take, TakeAnswer, Target,
};
use windlass_core::job::Token;
use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Error, List};
use windlass_core::time::{Clock, ManualClock};
use windlass_core::{Job, JobId, State, Sysid, Tenant, Timestamp};

use super::create::{self, CreateRequest};
use super::get::hand_out;
use super::report::Report;
use super::{Refusal, cancel, delete, fail, finish, requeue, retry, view};

const SEEDS: u64 = 300;
const STEPS: usize = 60;
/// Rounds in which everything due is taken and finished: more than any family needs.
const ROUNDS_MAX: usize = 20;

struct World {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    tenant: Tenant,
    luck: fastrand::Rng,
    now: Timestamp,
    ids: i64,
    told: Vec<String>,
}

impl World {
    fn new(seed: u64) -> World {
        let now = Timestamp(1_800_000_000_000);
        let clock = Arc::new(ManualClock::at(now));
        World {
            store: MemoryStore::new(clock.clone()),
            clock,
            tenant: Tenant::new("default").unwrap(),
            luck: fastrand::Rng::with_seed(seed),
            now,
            ids: 0,
            told: Vec::new(),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.now = self.clock.now();
    }

    async fn jobs(&self) -> Vec<Job> {
        let list = List {
            tenant: self.tenant.clone(),
            name: None,
            state: None,
            before: None,
            limit: 1000,
        };
        let jobs = self.store.job_list(list).await.unwrap().jobs;
        jobs.into_iter().filter(view::exists).collect()
    }

    async fn decide<F>(&mut self, target: Target, decide: F) -> Option<Decided>
    where
        F: Fn(&FamilyView, Timestamp) -> Result<Decision, Refusal> + Send + Sync + 'static,
    {
        let ask = Ask {
            tenant: self.tenant.clone(),
            targets: vec![target],
            decide: Arc::new(move |_, seen, now| decide(seen, now).map_err(|no| no.0)),
            durability: Durability::Relaxed,
        };
        match self.store.job_decide(ask).await {
            Ok(decided) => Some(decided),
            Err(Error::Refused(refusal)) => {
                self.told.push(refusal.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn create(&mut self, parent: Option<JobId>) {
        self.ids += 1;
        let (id, tenant) = (JobId::new(self.ids).unwrap(), self.tenant.clone());
        let retry_after = self.luck.bool().then(|| "+1 MINUTE".to_owned());
        let repeat = (self.luck.u8(..5) == 0).then(|| "FINISHED, +1 HOUR".to_owned());
        let unique = (self.luck.u8(..6) == 0).then(|| "true".to_owned());
        let name = format!("n{}", self.luck.u8(..3));
        let field = |key: &str| match key {
            "name" => Some(name.clone()),
            "parentJobID" => parent.map(|id| id.to_string()),
            "retryAfter" => retry_after.clone(),
            "repeat" => repeat.clone(),
            "unique" => unique.clone(),
            _ => None,
        };
        let wish = CreateRequest::new(&field, false).unwrap();
        let target = wish.target();
        self.decide(target, move |seen, now| create::decision(&wish, seen, &tenant, id, now)).await;
    }

    async fn take(&self, limit: u32) -> TakeAnswer {
        let claimant = Claimant { owner: Sysid::FIRST, token: Token(1) };
        let take = Take {
            tenant: self.tenant.clone(),
            names: Names::Glob("*".into()),
            priority: None,
            hidden: false,
            limit,
            payload_bytes_max: u64::MAX,
            bytes_max: u64::MAX,
            after: None,
            claimant,
            decide: Arc::new(move |whole, claimant, now| hand_out(whole, false, claimant, now)),
        };
        self.store.job_take(take).await.unwrap()
    }

    async fn finish(&mut self, id: JobId, ignore_repeat: bool) {
        let report = Report::plain(id, ignore_repeat);
        let keep = Duration::from_secs(60);
        // None of its jobs has a follower.
        let decide = move |seen: &FamilyView, now| finish::decision(&report, seen, now, keep, None);
        self.decide(Target::Job(id), decide).await;
    }

    async fn step(&mut self) {
        let seconds = self.luck.u64(..90);
        self.pass(seconds);
        let jobs = self.jobs().await;
        let Some(job) = self.luck.choice(&jobs).cloned() else { return self.create(None).await };
        let target = Target::Job(job.id);
        match self.luck.u8(..14) {
            0 => self.create(None).await,
            1..=3 => self.create(Some(job.id)).await,
            4..=6 => drop(self.take(1 + self.luck.clone().u32(..3)).await),
            7..=9 => self.finish(job.id, false).await,
            10 => drop(self.decide(target, |seen, now| fail::decision(None, seen, now)).await),
            11 => drop(self.decide(target, cancel::decision).await),
            12 => drop(self.decide(target, |seen, _| delete::decision(seen)).await),
            _ if self.luck.bool() => {
                let keep = Duration::from_secs(60);
                let retry = retry::Retry::plain(job.id);
                let decide = move |seen: &FamilyView, now| retry::decision(&retry, seen, now, keep);
                self.decide(target, decide).await;
            }
            _ => {
                let requeue =
                    |seen: &FamilyView, now| Ok(requeue::decision(seen, None, false, now));
                self.decide(target, requeue).await;
            }
        }
    }

    /// A waiting parent has a child that has not ended, or that failed and can be requeued.
    async fn check(&self, seed: u64) {
        let jobs = self.jobs().await;
        let waits = |job: &&Job| job.state == State::Paused && job.parent.is_none();
        for parent in jobs.iter().filter(waits) {
            let alive = jobs.iter().any(|child| {
                child.parent == Some(parent.id)
                    && !matches!(child.state, State::Finished | State::Cancelled)
            });
            assert!(alive, "seed {seed}: parent {} waits for nobody: {:?}", parent.id, self.told);
        }
        for child in jobs.iter().filter(|job| job.parent.is_some()) {
            assert!(!child.children, "seed {seed}: {} has a grandparent", child.id);
        }
    }

    /// Completes everything: failed jobs are requeued, due ones are finished.
    async fn bring_to_an_end(&mut self, seed: u64) {
        for _ in 0..ROUNDS_MAX {
            self.pass(3600);
            for job in self.jobs().await.iter().filter(|job| job.state == State::Failed) {
                let requeue =
                    |seen: &FamilyView, now| Ok(requeue::decision(seen, None, false, now));
                self.decide(Target::Job(job.id), requeue).await;
            }
            self.take(1000).await;
            // Children first, so that parents find them gone.
            let mut out: Vec<Job> = self.jobs().await;
            out.retain(Job::is_out);
            out.sort_by_key(|job| job.parent.is_none());
            for job in out {
                self.finish(job.id, true).await;
            }
        }
        let left: Vec<Job> = self.jobs().await;
        let waits = |job: &&Job| job.state == State::Paused && job.parent.is_none();
        let stuck: Vec<JobId> = left.iter().filter(waits).map(|job| job.id).collect();
        assert!(stuck.is_empty(), "seed {seed}: {stuck:?} wait for ever; said: {:?}", self.told);
        assert!(left.iter().all(|job| job.run_at < Timestamp::NEVER), "seed {seed}");
    }
}

#[tokio::test]
async fn no_sequence_of_commands_leaves_a_parent_waiting_for_nobody() {
    let mut paused = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step().await;
            world.check(seed).await;
        }
        let jobs = world.jobs().await;
        paused += jobs.iter().filter(|job| job.state == State::Paused).count();
        world.bring_to_an_end(seed).await;
    }
    assert!(paused > 100, "families were made: {paused}");
}
