//! A queue of a given depth, in its own process, with a runner that does nothing: run while it is
//! fed, then only run, then pulled from.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use windlass_core::Status;
use windlass_core::store::LeaseRef;
use windlass_engine::Engine;
use windlass_engine::api::{PullClaim, PullFinish};

use crate::engine::daemon;
use crate::engine::noop::{BATCH_JOBS, NoopRunner};
use crate::engine::queue::{self, Kinds, Phase, Queue};
use crate::{machine, report};

const KINDS: Kinds = Kinds { tenants: 5, types: 10 };
const PULLERS: u64 = 8;
const LEASE: Duration = Duration::from_secs(60);
/// A queue is not run below this fraction of its depth.
const LEFT_SHARE: u64 = 10;

#[derive(Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Waiting jobs.
    pub(crate) waiting: u64,
    /// Duration of each phase.
    pub(crate) phase: Duration,
}

/// The results for one depth.
#[derive(Serialize, Deserialize)]
pub(crate) struct BacklogResults {
    pub(crate) fill_rate: f64,
    pub(crate) drained: Phase,
    pub(crate) fed: Phase,
    /// Jobs per second.
    pub(crate) pull_rate: f64,
    pub(crate) peak_bytes: u64,
    pub(crate) store_bytes: u64,
}

pub(crate) fn run(dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    let runtime = daemon::runtime()?;
    let ran = runtime.block_on(measure(dir, plan));
    runtime.shutdown_background();
    report::hand_over(&ran?)
}

async fn measure(dir: &Path, plan: &Plan) -> anyhow::Result<BacklogResults> {
    let Plan { waiting, phase } = *plan;
    let fill_rate = queue::fill(dir, KINDS, waiting).await?;
    let queue = Queue::open(dir, KINDS, Box::new(NoopRunner), &daemon::handler()).await?;
    report::progress(&format!("running with {waiting} waiting"));
    let fed = queue.feed(phase).await?;
    let drained = queue.drain(waiting - waiting / LEFT_SHARE, phase).await?;
    let pull_rate = pull(&queue.engine, phase / 2).await?;
    let peak_bytes = machine::usage("self")?.peak_bytes;
    let store_bytes = daemon::store_bytes(dir);
    queue.engine.shutdown().await?;
    Ok(BacklogResults { fill_rate, drained, fed, pull_rate, peak_bytes, store_bytes })
}

/// Workers that claim a hundred jobs and report them one by one; jobs per second.
async fn pull(engine: &Engine, time: Duration) -> anyhow::Result<f64> {
    let began = Instant::now();
    let pulled = try_join_all((0..PULLERS).map(|puller| pull_one(engine, puller, time))).await?;
    Ok(pulled.into_iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64())
}

async fn pull_one(engine: &Engine, puller: u64, time: Duration) -> anyhow::Result<u64> {
    let tenant = KINDS.key(puller)?.tenant;
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
        let pulled = engine.claim(wish).await?;
        if pulled.is_empty() {
            break;
        }
        let finishes = pulled.iter().map(|pulled| {
            let job = &pulled.job;
            let token = job.lease.expect("a pulled job has a lease").token;
            let lease = LeaseRef { tenant: job.key.tenant.clone(), id: job.id, token };
            engine.finish(PullFinish { lease, status: Status::OK, data: None })
        });
        finished += try_join_all(finishes).await?.len() as u64;
    }
    Ok(finished)
}
