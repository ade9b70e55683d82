//! What very many waiting types cost new ones: how long the first job of a new type takes to start,
//! and how long a worker's claim by name takes, with ten types and with a million, one job each,
//! with and without handlers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use async_trait::async_trait;
use futures_util::future::try_join_all;
use tokio::sync::watch;

use windlass_core::runner::{Batch, Reports, Stop};
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Insert};
use windlass_core::time::SystemClock;
use windlass_core::{
    AddOptions, AttemptId, Clock, Handler, HandlerId, HandlerSpec, Invalid, JobId, NewJob, Payload,
    Runner, Tenant, TypeKey,
};
use windlass_engine::Engine;
use windlass_engine::api::{AddJob, AddPayload, PullClaim};
use windlass_engine::metrics::Metrics;

use crate::engine::daemon;
use crate::engine::noop::NoopRunner;
use crate::report::figure::{Figure, Outcome, Samples, micros};
use crate::report::progress;
use crate::scale::Scale;

/// The baseline.
const FEW: (u64, u64) = (10, 1);
/// New types, and claims, per measurement.
const TIMES: u64 = 30;
const ALLOWED: Duration = Duration::from_secs(1);
/// A job that has not started by then never will.
const PATIENCE: Duration = Duration::from_secs(120);
const FILL_BATCH: u64 = 10_000;
/// The tenant of the new types.
const NEWCOMER: &str = "newcomer";

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let many = scale.types;
    let (mut figures, mut worst) = (Vec::new(), Duration::ZERO);
    for (types, tenants, handled) in
        [(FEW.0, FEW.1, true), (many.0, many.1, false), (many.0, many.1, true)]
    {
        let dir = tempfile::Builder::new().prefix("many-types-").tempdir_in(dir)?;
        let runtime = daemon::runtime()?;
        let measured = runtime.block_on(one(dir.path(), types, tenants, handled));
        runtime.shutdown_background();
        let Measured { starts, claims, opened } = measured?;
        let handlers = if handled { "with handlers" } else { "without handlers" };
        let name = format!("{} types {handlers}", Figure::count(types));
        let slowest = starts.percentile(1.0);
        figures.push(Figure::micros(format!("{name}: first start, p50"), starts.p50()));
        figures.push(Figure::micros(format!("{name}: first start, slowest"), slowest));
        figures.push(Figure::micros(format!("{name}: claim by name, p50"), claims.p50()));
        figures.push(Figure::micros(
            format!("{name}: claim by name, slowest"),
            claims.percentile(1.0),
        ));
        figures.push(Figure::new(format!("{name}: start of the daemon"), micros(opened), "µs"));
        worst = worst.max(slowest);
    }
    Ok(Outcome {
        promise: "1 M types of 10,000 tenants: a new type's first job starts within 1 s",
        reached: format!("{:.3} s, the slowest of {TIMES}", worst.as_secs_f64()),
        kept: worst < ALLOWED,
        figures,
    })
}

struct Measured {
    /// From the add of a new type's first job to its start.
    starts: Samples,
    claims: Samples,
    opened: Duration,
}

async fn one(dir: &Path, types: u64, tenants: u64, handled: bool) -> anyhow::Result<Measured> {
    fill(dir, types, tenants, handled).await?;
    progress(&format!("running beside {types} types"));
    let started = watch::Sender::new(0);
    let began = Instant::now();
    let engine = daemon::start(dir, Arc::new(CountingRunner(started.clone()))).await?;
    let opened = began.elapsed();
    let mut starts = Samples::default();
    for number in 0..TIMES {
        starts.push(first_start(&engine, &started, number).await?);
    }
    let mut claims = Samples::default();
    for number in 0..TIMES {
        claims.push(claim(&engine, number % tenants, number + tenants).await?);
    }
    engine.shutdown().await?;
    Ok(Measured { starts, claims, opened })
}

async fn fill(dir: &Path, types: u64, tenants: u64, handled: bool) -> anyhow::Result<()> {
    let store = daemon::open_store(dir, &Arc::new(Metrics::default()))?;
    let now = SystemClock.now();
    for first in (1..=types).step_by(FILL_BATCH as usize) {
        let mut jobs = Vec::new();
        for number in first..(first + FILL_BATCH).min(types + 1) {
            let key = TypeKey::new(&tenant(number % tenants), &type_name(number))?;
            let id = JobId::new(number as i64).context("a good id")?;
            jobs.push(NewJob::new(id, key, Payload::Inline("x".into()), now));
        }
        if handled {
            let version = |job: &NewJob| JobId::new(types as i64 + job.id.get());
            let puts = jobs.iter().filter_map(|job| {
                Some(store.handler_put(version(job)?, &job.key, daemon::handler()))
            });
            try_join_all(puts).await?;
        }
        let (keys, mark, durability) = (Vec::new(), None, Durability::Relaxed);
        store.job_insert(Insert { jobs, keys, mark, durability }).await?;
    }
    store.close().await;
    Ok(())
}

fn tenant(number: u64) -> String {
    format!("tenant{number}")
}

fn type_name(number: u64) -> String {
    format!("type/{number}")
}

async fn first_start(
    engine: &Engine,
    started: &watch::Sender<u64>,
    number: u64,
) -> anyhow::Result<Duration> {
    let key = TypeKey::new(NEWCOMER, &format!("new/{number}"))?;
    engine.handler_set(&key, daemon::handler()).await?;
    let mut seen = started.subscribe();
    let payload = AddPayload::Inline("x".into());
    let job = AddJob { payload, options: AddOptions::default() };
    let began = Instant::now();
    engine.add(&key, vec![job], None).await?;
    tokio::time::timeout(PATIENCE, seen.wait_for(|started| *started > number)).await??;
    Ok(began.elapsed())
}

async fn claim(engine: &Engine, of_tenant: u64, number: u64) -> anyhow::Result<Duration> {
    let wish = PullClaim {
        tenant: Tenant::new(&tenant(of_tenant))?,
        types: vec![type_name(number)],
        limit: 1,
        lease: Duration::from_secs(60),
        wait: Duration::ZERO,
    };
    let began = Instant::now();
    engine.claim(wish).await?;
    Ok(began.elapsed())
}

/// Does nothing, and counts the newcomer's jobs that it starts.
struct CountingRunner(watch::Sender<u64>);

#[async_trait]
impl Runner for CountingRunner {
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid> {
        NoopRunner.check(spec)
    }

    fn batch_max(&self, handler: &Handler) -> u32 {
        NoopRunner.batch_max(handler)
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        let of_newcomer = batch.jobs.iter().filter(|job| job.job.key.tenant.as_str() == NEWCOMER);
        let started = of_newcomer.count() as u64;
        self.0.send_modify(|count| *count += started);
        NoopRunner.run(batch, reports).await;
    }

    fn stop(&self, attempt: AttemptId, why: Stop) {
        NoopRunner.stop(attempt, why);
    }

    fn warm(&self) -> Vec<HandlerId> {
        Vec::new()
    }

    async fn close(&self) {}
}
