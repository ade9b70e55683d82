//! A queue whose jobs are run by a handler in warm contexts, in its own process: only run, and then
//! optionally run while it is fed.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::context::{self, Sample};
use crate::engine::daemon;
use crate::engine::queue::{self, Kinds, Phase, Queue};
use crate::report;

const KINDS: Kinds = Kinds { tenants: 1, types: 1 };
/// How long jobs may run before the measurement.
const WARM_UP_MAX: Duration = Duration::from_secs(10);
/// Jobs that stay in the queue after it was only run, so that contexts never wait for work.
const LEFT_JOBS: u64 = 1000;

#[derive(Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) sample: Sample,
    /// Jobs to run, besides the warm-up.
    pub(crate) jobs: u64,
    /// Time limit for that.
    pub(crate) time_max: Duration,
    /// How long to add jobs as fast as others end afterwards.
    pub(crate) fed: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct WarmResults {
    pub(crate) drained: Phase,
    pub(crate) fed: Option<Phase>,
}

pub(crate) fn run(dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    let runtime = daemon::runtime()?;
    let ran = runtime.block_on(measure(dir, plan));
    runtime.shutdown_background();
    report::hand_over(&ran?)
}

async fn measure(dir: &Path, plan: &Plan) -> anyhow::Result<WarmResults> {
    queue::fill(dir, KINDS, plan.jobs + plan.sample.warm_up_jobs() + LEFT_JOBS).await?;
    let runner = Box::new(context::runner(dir, plan.sample.level())?);
    let queue = Queue::open(dir, KINDS, runner, &plan.sample.handler()).await?;
    report::progress(&format!("running in contexts: {}", plan.sample.name()));
    queue.drain(plan.sample.warm_up_jobs(), WARM_UP_MAX).await?;
    let drained = queue.drain(plan.jobs, plan.time_max).await?;
    let fed = match plan.fed {
        Some(time) => Some(queue.feed(time).await?),
        None => None,
    };
    queue.engine.shutdown().await?;
    Ok(WarmResults { drained, fed })
}
