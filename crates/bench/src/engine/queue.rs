//! Waiting jobs and how fast they run: a queue is filled through the store, then only run, or run
//! while it is fed through the engine as fast as it empties. The caller chooses the runner.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Insert};
use windlass_core::time::SystemClock;
use windlass_core::{
    AddOptions, Clock, HandlerSpec, IdGenerator, NewJob, Payload, Runner, Store, Sysid, TypeKey,
};
use windlass_engine::Engine;
use windlass_engine::api::{AddJob, AddPayload};
use windlass_engine::metrics::Metrics;

use crate::engine::daemon;
use crate::engine::watched::Watched;
use crate::limits::disk::LINE_BYTES;
use crate::report::figure::micros;
use crate::{machine, report};

/// Jobs per insert, and between two progress messages.
const INSERT_JOBS: u64 = 5000;
const PROGRESS_JOBS: u64 = 1_000_000;
/// Consecutive jobs of one type, in the filled queue and in the adds that feed it, so that the jobs
/// of a batch are equally close together in both.
const RUN_JOBS: u64 = 100;
const FEEDERS: u64 = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(2);
/// Jobs that run when a phase ends must be settled within this time.
const SETTLE_PATIENCE: Duration = Duration::from_secs(60);

/// The tenants of the waiting jobs.
#[derive(Clone, Copy)]
pub(crate) struct Kinds {
    pub(crate) tenants: u64,
    pub(crate) types: u64,
}

impl Kinds {
    pub(crate) fn key(self, number: u64) -> anyhow::Result<TypeKey> {
        let number = number % self.types;
        Ok(TypeKey::new(&format!("tenant{}", number % self.tenants), &format!("type{number}"))?)
    }
}

/// The results of one phase.
#[derive(Serialize, Deserialize)]
pub(crate) struct Phase {
    /// Jobs per second, from the first pick until everything that ran was settled.
    pub(crate) rate: f64,
    pub(crate) batch_jobs: f64,
    /// CPU time per job: of this process, and of its children.
    pub(crate) cpu_micros: f64,
    pub(crate) children_micros: f64,
    /// Processes alive at the end of the phase.
    pub(crate) children: usize,
}

/// Inserts jobs into the store, runs of all types in turn; returns jobs per second.
pub(crate) async fn fill(dir: &Path, kinds: Kinds, jobs: u64) -> anyhow::Result<f64> {
    let store = daemon::open_store(dir, &Arc::new(Metrics::default()))?;
    // The highest number, which the engine will not get.
    let sysid = Sysid::new(windlass_core::limit::SYSID_MAX).context("the highest sysid is one")?;
    let mut ids = IdGenerator::new(sysid, None);
    let payload = Payload::Inline(Bytes::from(vec![b'x'; LINE_BYTES]));
    let keys: Vec<TypeKey> =
        (0..kinds.types).map(|number| kinds.key(number)).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let mut filled = 0;
    while filled < jobs {
        let now = SystemClock.now();
        let batch = INSERT_JOBS.min(jobs - filled);
        let mut new = Vec::with_capacity(batch as usize);
        for number in filled..filled + batch {
            let key = keys[(number / RUN_JOBS % kinds.types) as usize].clone();
            new.push(NewJob::new(ids.next(now)?, key, payload.clone(), now));
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

/// An engine on a filled store. It runs jobs only while it is measured.
pub(crate) struct Queue {
    pub(crate) engine: Engine,
    runner: Arc<Watched>,
    kinds: Kinds,
}

impl Queue {
    /// All types get the same handler.
    pub(crate) async fn open(
        dir: &Path,
        kinds: Kinds,
        runner: Box<dyn Runner>,
        handler: &HandlerSpec,
    ) -> anyhow::Result<Queue> {
        let runner = Arc::new(Watched::new(runner));
        let engine = daemon::start(dir, runner.clone()).await?;
        engine.set_picking(false);
        for number in 0..kinds.types {
            engine.handler_set(&kinds.key(number)?, handler.clone()).await?;
        }
        Ok(Queue { engine, runner, kinds })
    }

    /// Runs about this many jobs, or as many as there is time for.
    pub(crate) async fn drain(&self, jobs: u64, time: Duration) -> anyhow::Result<Phase> {
        let (began, enough) = (Instant::now(), self.runner.ended() + jobs);
        self.phase(async {
            while began.elapsed() < time && self.runner.ended() < enough {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            Ok(())
        })
        .await
    }

    /// Runs for a while, and adds as many jobs as end, which keeps the depth constant.
    pub(crate) async fn feed(&self, time: Duration) -> anyhow::Result<Phase> {
        let ended_before = self.runner.ended();
        self.phase(async {
            let feeders = (0..FEEDERS).map(|feeder| self.feed_share(feeder, ended_before, time));
            try_join_all(feeders).await?;
            Ok(())
        })
        .await
    }

    /// Picks during `work`, then waits until everything that ran is settled.
    async fn phase(&self, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Phase> {
        let (ended_before, batches_before) = (self.runner.ended(), self.runner.batches());
        let (cpu_before, family_before) = (machine::cpu("self")?, machine::family("self")?);
        let began = Instant::now();
        self.engine.set_picking(true);
        work.await?;
        let children = machine::family("self")?.alive;
        self.engine.set_picking(false);
        self.settled().await?;
        let seconds = began.elapsed().as_secs_f64();
        let (cpu, family) = (machine::cpu("self")?, machine::family("self")?);
        let jobs = (self.runner.ended() - ended_before) as f64;
        ensure!(jobs > 0.0, "no job ran");
        ensure!(self.runner.failed() == 0, "{} jobs failed", self.runner.failed());
        Ok(Phase {
            rate: jobs / seconds,
            batch_jobs: jobs / (self.runner.batches() - batches_before) as f64,
            cpu_micros: micros(cpu - cpu_before) / jobs,
            children_micros: micros(family.cpu.saturating_sub(family_before.cpu)) / jobs,
            children,
        })
    }

    /// What one feeder adds.
    async fn feed_share(
        &self,
        feeder: u64,
        ended_before: u64,
        time: Duration,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let payload = Bytes::from(vec![b'x'; LINE_BYTES]);
        let (mut fed, mut number) = (0, feeder);
        while began.elapsed() < time {
            if fed > (self.runner.ended() - ended_before) / FEEDERS + RUN_JOBS {
                tokio::time::sleep(LOOK_PAUSE).await;
                continue;
            }
            let job = || AddJob {
                payload: AddPayload::Inline(payload.clone()),
                options: AddOptions::default(),
            };
            let jobs = (0..RUN_JOBS).map(|_| job()).collect();
            self.engine.add(&self.kinds.key(number)?, jobs, None).await?;
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
}
