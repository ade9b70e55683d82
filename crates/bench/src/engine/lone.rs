//! One job through an idle queue, timed.

use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use tokio::sync::mpsc::Receiver;

use windlass_core::{AddOptions, TypeKey};
use windlass_engine::Engine;
use windlass_engine::api::{AddJob, AddPayload};

use crate::engine::watched::Start;

/// A job that has not started or ended by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counted from the add.
pub(crate) struct Times {
    pub(crate) answered: Duration,
    pub(crate) handed: Duration,
    pub(crate) started: Duration,
}

/// Adds a job, and waits until a runner has started it and it has ended.
pub(crate) async fn run(
    engine: &Engine,
    key: &TypeKey,
    payload: &Bytes,
    starts: &mut Receiver<Start>,
) -> anyhow::Result<Times> {
    let payload = AddPayload::Inline(payload.clone());
    let job = AddJob { payload, options: AddOptions::default() };
    let began = Instant::now();
    let added = engine.add(key, vec![job], None).await?;
    let answered = began.elapsed();
    let id = added.ids[0];
    let start = tokio::time::timeout(PATIENCE, starts.recv()).await?;
    let start = start.filter(|start| start.id == id).context("another job started")?;
    // The next one must find the queue idle.
    let view = engine.job_wait(&key.tenant, id, PATIENCE).await?;
    anyhow::ensure!(view.job.state.is_ended(), "a job did not end");
    Ok(Times { answered, handed: start.handed_at - began, started: start.at - began })
}
