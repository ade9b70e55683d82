//! The cycle of a queue: add a batch of jobs, claim as many, and end them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use async_trait::async_trait;
use futures_util::future::try_join_all;

/// Jobs that are added at once before a measurement.
const FILL_BATCH: usize = 1000;

/// One client of a queue.
#[async_trait]
pub(crate) trait Client: Send {
    async fn add(&mut self, jobs: usize) -> anyhow::Result<()>;

    /// Claims up to this many jobs and ends them; returns how many there were.
    async fn run(&mut self, jobs: usize) -> anyhow::Result<usize>;
}

#[async_trait]
pub(crate) trait Queue: Send + Sync {
    async fn client(&self, number: usize) -> anyhow::Result<Box<dyn Client>>;
}

/// Jobs a second, by all clients together, each in batches of this size.
pub(crate) async fn rate(
    queue: &Arc<dyn Queue>,
    clients: usize,
    batch: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let mut callers = Vec::with_capacity(clients);
    for number in 0..clients {
        let mut client = queue.client(number).await?;
        // Connections are open and statements prepared before the time begins.
        client.add(batch).await?;
        client.run(batch).await?;
        callers.push(client);
    }
    let began = Instant::now();
    let cycles = callers.into_iter().map(|mut client| {
        tokio::spawn(async move {
            let mut ended = 0;
            while began.elapsed() < time {
                client.add(batch).await?;
                ended += client.run(batch).await?;
            }
            anyhow::Ok(ended)
        })
    });
    let ended = try_join_all(cycles).await?;
    let took = began.elapsed();
    let ended = ended.into_iter().sum::<anyhow::Result<usize>>()?;
    ensure!(ended > 0, "no job was run");
    Ok(ended as f64 / took.as_secs_f64())
}

/// Adds jobs that nobody claims.
pub(crate) async fn fill(queue: &Arc<dyn Queue>, clients: usize, jobs: u64) -> anyhow::Result<()> {
    let each = (jobs as usize).div_ceil(clients);
    let fills = (0..clients).map(|number| async move {
        let mut client = queue.client(number).await?;
        for first in (0..each).step_by(FILL_BATCH) {
            client.add(FILL_BATCH.min(each - first)).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(fills).await?;
    Ok(())
}
