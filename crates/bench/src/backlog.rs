//! A queue of a given depth, in a process of its own: filled through the store, then run, then run
//! while it is fed through the engine as fast as it empties, then pulled from.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use windlass_core::store::{Durability, Insert, LeaseRef};
use windlass_core::time::SystemClock;
use windlass_core::{
    AddOptions, Clock, IdGenerator, NewJob, Payload, Priority, Status, Store, Sysid, TypeKey,
};
use windlass_engine::Engine;
use windlass_engine::api::{AddJob, AddPayload, PullClaim, PullFinish};
use windlass_engine::metrics::Metrics;

use crate::limit::LINE_BYTES;
use crate::noop::{BATCH_JOBS, NoopRunner};
use crate::{daemon, machine, report};

const TENANTS: u64 = 5;
const TYPES: u64 = 10;
/// Jobs in one insert, and between two words of progress.
const INSERT_JOBS: u64 = 5000;
const PROGRESS_JOBS: u64 = 1_000_000;
/// Jobs of one type that come one after the other, in the filled queue as in the adds that feed it,
/// so that jobs of a batch lie equally close together in both.
const RUN_JOBS: u64 = 100;
const FEEDERS: u64 = 8;
const PULLERS: u64 = 8;
const LEASE: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(2);
/// What runs when a phase ends must be settled within this time.
const SETTLE_PATIENCE: Duration = Duration::from_secs(60);
/// A queue is run no lower than this share of its depth: one part in so many.
const LEFT_SHARE: u64 = 10;

/// What came of one depth.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) fill_rate: f64,
    pub(crate) drained: Phase,
    pub(crate) fed: Phase,
    /// Jobs per second.
    pub(crate) pull_rate: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) store_bytes: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Phase {
    /// Jobs per second, from the first pick until all that ran were settled.
    pub(crate) rate: f64,
    pub(crate) batch_jobs: f64,
    pub(crate) cpu_micros: f64,
}

pub(crate) fn run(dir: &Path, waiting: u64, phase: Duration) -> anyhow::Result<()> {
    let runtime = daemon::runtime()?;
    let ran = runtime.block_on(measure(dir, waiting, phase));
    runtime.shutdown_background();
    report::hand_over(&ran?)
}

async fn measure(dir: &Path, waiting: u64, time: Duration) -> anyhow::Result<Ran> {
    let fill_rate = fill(dir, waiting).await?;
    let runner = Arc::new(NoopRunner::new());
    let engine = daemon::start(dir, runner.clone()).await?;
    engine.set_picking(false);
    for number in 0..TYPES {
        engine.handler_set(&key(number)?, daemon::handler()).await?;
    }
    let queue = Queue { engine, runner };
    report::progress(&format!("running with {waiting} waiting"));
    let fed = queue.run(waiting, true, time).await?;
    let drained = queue.run(waiting, false, time).await?;
    let pull_rate = queue.pull(time / 2).await?;
    let peak_bytes = machine::usage("self")?.peak_bytes;
    let store_bytes = daemon::store_bytes(dir);
    queue.engine.shutdown().await?;
    Ok(Ran { fill_rate, drained, fed, pull_rate, peak_bytes, store_bytes })
}

fn key(number: u64) -> anyhow::Result<TypeKey> {
    let number = number % TYPES;
    Ok(TypeKey::new(&format!("tenant{}", number % TENANTS), &format!("type{number}"))?)
}

/// Puts jobs into the store, runs of all types in turn; jobs per second.
async fn fill(dir: &Path, jobs: u64) -> anyhow::Result<f64> {
    let store = daemon::open_store(dir, &Arc::new(Metrics::default()))?;
    // The highest number, which the engine will not get.
    let sysid = Sysid::new(windlass_core::limit::SYSID_MAX).context("the highest sysid is one")?;
    let mut ids = IdGenerator::new(sysid, None);
    let payload = Payload::Inline(Bytes::from(vec![b'x'; LINE_BYTES]));
    let keys: Vec<TypeKey> = (0..TYPES).map(key).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let mut filled = 0;
    while filled < jobs {
        let now = SystemClock.now();
        let batch = INSERT_JOBS.min(jobs - filled);
        let mut new = Vec::with_capacity(batch as usize);
        for number in filled..filled + batch {
            new.push(NewJob {
                id: ids.next(now)?,
                key: keys[(number / RUN_JOBS % TYPES) as usize].clone(),
                priority: Priority::default(),
                run_at: now,
                created_at: now,
                expires_at: None,
                timeout: None,
                unique: None,
                then: None,
                payload: payload.clone(),
            });
        }
        let (keys, mark, durability) = (Vec::new(), None, Durability::Relaxed);
        store.job_insert(Insert { jobs: new, keys, mark, durability }).await?;
        filled += batch;
        if filled.is_multiple_of(PROGRESS_JOBS) {
            report::progress(&format!("{filled} of {jobs} jobs wait"));
        }
    }
    store.flush().await?;
    let rate = filled as f64 / began.elapsed().as_secs_f64();
    store.close().await;
    Ok(rate)
}

struct Queue {
    engine: Engine,
    runner: Arc<NoopRunner>,
}

impl Queue {
    fn ended(&self) -> u64 {
        self.runner.ended.load(Ordering::Relaxed)
    }

    /// Picks for `time`, or until one part in ten is left; then waits until what ran is settled.
    /// A queue that is fed keeps its depth, and ends by time alone.
    async fn run(&self, waiting: u64, fed: bool, time: Duration) -> anyhow::Result<Phase> {
        let (ended_before, batches_before) =
            (self.ended(), self.runner.batches.load(Ordering::Relaxed));
        let cpu_before = machine::usage("self")?.cpu;
        let began = Instant::now();
        self.engine.set_picking(true);
        if fed {
            try_join_all((0..FEEDERS).map(|feeder| self.feed(feeder, ended_before, time))).await?;
        } else {
            let enough = ended_before + waiting - waiting / LEFT_SHARE;
            while began.elapsed() < time && self.ended() < enough {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        }
        self.engine.set_picking(false);
        self.settled().await?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = machine::usage("self")?.cpu - cpu_before;
        let jobs = (self.ended() - ended_before) as f64;
        let batches = (self.runner.batches.load(Ordering::Relaxed) - batches_before) as f64;
        ensure!(jobs > 0.0, "no job ran");
        Ok(Phase {
            rate: jobs / seconds,
            batch_jobs: jobs / batches,
            cpu_micros: crate::figure::micros(cpu) / jobs,
        })
    }

    /// Adds as many jobs as end, so that the depth stays; each feeder does its share.
    async fn feed(&self, feeder: u64, ended_before: u64, time: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        let payload = Bytes::from(vec![b'x'; LINE_BYTES]);
        let (mut fed, mut number) = (0, feeder);
        while began.elapsed() < time {
            if fed > (self.ended() - ended_before) / FEEDERS + RUN_JOBS {
                tokio::time::sleep(LOOK_PAUSE).await;
                continue;
            }
            let job = || AddJob {
                payload: AddPayload::Inline(payload.clone()),
                options: AddOptions::default(),
            };
            let jobs = (0..RUN_JOBS).map(|_| job()).collect();
            self.engine.add(&key(number)?, jobs, None).await?;
            fed += RUN_JOBS;
            number += FEEDERS + 1;
        }
        Ok(())
    }

    /// Waits until nothing runs and everything that ended is in the store.
    async fn settled(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE_PATIENCE;
        while self.engine.status().await.running > 0 {
            ensure!(Instant::now() < deadline, "what ran was not settled in time");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Ok(())
    }

    /// Workers that take a hundred jobs and report each one by itself; jobs per second.
    async fn pull(&self, time: Duration) -> anyhow::Result<f64> {
        let began = Instant::now();
        let pulled = try_join_all((0..PULLERS).map(|puller| self.pull_one(puller, time))).await?;
        Ok(pulled.into_iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64())
    }

    async fn pull_one(&self, puller: u64, time: Duration) -> anyhow::Result<u64> {
        let tenant = key(puller)?.tenant;
        let began = Instant::now();
        let mut finished = 0;
        while began.elapsed() < time {
            let wish = PullClaim {
                tenant: tenant.clone(),
                types: vec!["*".into()],
                limit: BATCH_JOBS,
                lease: LEASE,
                wait: Duration::ZERO,
            };
            let pulled = self.engine.claim(wish).await?;
            if pulled.is_empty() {
                break;
            }
            let finishes = pulled.iter().map(|pulled| {
                let job = &pulled.job;
                let token = job.lease.expect("a pulled job has a lease").token;
                let lease = LeaseRef { tenant: job.key.tenant.clone(), id: job.id, token };
                self.engine.finish(PullFinish { lease, status: Status::OK, data: None })
            });
            finished += try_join_all(finishes).await?.len() as u64;
        }
        Ok(finished)
    }
}
