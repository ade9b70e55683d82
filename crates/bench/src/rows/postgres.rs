//! The store on PostgreSQL beside a plain `SKIP LOCKED` queue on the same server, in turns; and the
//! store with very many jobs waiting, and with a transaction that is left open and keeps the server
//! from removing dead rows.

use std::path::Path;
use std::sync::Arc;

use crate::engine::daemon;
use crate::postgres::cycle::{self, Queue};
use crate::postgres::database::Database;
use crate::postgres::plain::PlainQueue;
use crate::postgres::store::StoreQueue;
use crate::report::figure::{Figure, Outcome, median};
use crate::report::progress;
use crate::scale::Scale;

const CLIENTS: usize = 4;
const BATCH: usize = 100;
const PAYLOAD_BYTES: usize = 200;
const TIMES_PLAIN_MIN: f64 = 2.0;
const SHARE_MIN: f64 = 0.9;

pub(crate) fn measure(_: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let runtime = daemon::runtime()?;
    let measured = runtime.block_on(all(scale));
    runtime.shutdown_background();
    measured
}

/// The two ways of a queue, each beside the other.
struct Rates {
    store: f64,
    plain: f64,
    relaxed: f64,
}

async fn all(scale: &Scale) -> anyhow::Result<Outcome> {
    let mut figures = Vec::new();
    let (batches, single) = (beside(scale, BATCH).await?, beside(scale, 1).await?);
    for (how, rates) in [("batches of 100", &batches), ("one by one", &single)] {
        figures.push(Figure::new(format!("{how}: Windlass's store"), rates.store, "jobs/s"));
        figures.push(Figure::new(format!("{how}: the plain queue"), rates.plain, "jobs/s"));
        let name = format!("{how}: the plain queue, claims and ends relaxed");
        figures.push(Figure::new(name, rates.relaxed, "jobs/s"));
    }
    let deep = Change::measure(scale, Burden::Waiting(scale.deep)).await?;
    let pinned = Change::measure(scale, Burden::Pinned).await?;
    let waiting = format!("{} waiting", Figure::count(scale.deep));
    for (what, change) in [(waiting.as_str(), &deep), ("a transaction left open", &pinned)] {
        figures.push(Figure::new(format!("{what}: the store before"), change.before, "jobs/s"));
        figures.push(Figure::new(format!("{what}: the store with it"), change.after, "jobs/s"));
        figures.push(Figure::new(
            format!("{what}: the plain queue before"),
            change.plain.0,
            "jobs/s",
        ));
        figures.push(Figure::new(
            format!("{what}: the plain queue with it"),
            change.plain.1,
            "jobs/s",
        ));
    }
    let times = batches.store / batches.plain;
    let shares = [deep.share(), pinned.share()];
    Ok(Outcome {
        promise: "≥ 2 × a plain SKIP LOCKED queue; ≥ 90 % of it with many waiting, or with a \
                  transaction left open",
        reached: format!("{times:.1} ×; {:.0} % and {:.0} %", shares[0] * 100.0, shares[1] * 100.0),
        kept: times >= TIMES_PLAIN_MIN && shares.iter().all(|share| *share >= SHARE_MIN),
        figures,
    })
}

/// Medians of rounds in turns.
async fn beside(scale: &Scale, batch: usize) -> anyhow::Result<Rates> {
    progress(&format!("batches of {batch}"));
    let database = Arc::new(Database::start()?);
    let store = StoreQueue::open(&database.url(), CLIENTS, PAYLOAD_BYTES).await?;
    PlainQueue::create(&database).await?;
    let plain = |relaxed| PlainQueue::new(database.clone(), PAYLOAD_BYTES, relaxed);
    let queues: [Arc<dyn Queue>; 3] =
        [Arc::new(store.clone()), Arc::new(plain(false)), Arc::new(plain(true))];
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..scale.rounds {
        for (queue, rates) in queues.iter().zip(&mut rates) {
            database.settle().await?;
            rates.push(cycle::rate(queue, CLIENTS, batch, scale.round).await?);
        }
    }
    store.close().await;
    let [store, plain, relaxed] = rates.each_ref().map(|rates| median(rates));
    Ok(Rates { store, plain, relaxed })
}

/// What may make a queue slower.
#[derive(Clone, Copy)]
enum Burden {
    Waiting(u64),
    /// A transaction that was begun before the jobs whose dead rows it keeps.
    Pinned,
}

struct Change {
    before: f64,
    after: f64,
    plain: (f64, f64),
}

impl Change {
    fn share(&self) -> f64 {
        self.after / self.before
    }

    async fn measure(scale: &Scale, burden: Burden) -> anyhow::Result<Change> {
        let database = Arc::new(Database::start()?);
        let store = StoreQueue::open(&database.url(), CLIENTS, PAYLOAD_BYTES).await?;
        PlainQueue::create(&database).await?;
        let queue: Arc<dyn Queue> = Arc::new(store.clone());
        let (before, after) = under(&database, &queue, scale, burden).await?;
        let queue: Arc<dyn Queue> =
            Arc::new(PlainQueue::new(database.clone(), PAYLOAD_BYTES, false));
        let plain = under(&database, &queue, scale, burden).await?;
        store.close().await;
        Ok(Change { before, after, plain })
    }
}

/// The rates without and with the burden.
async fn under(
    database: &Database,
    queue: &Arc<dyn Queue>,
    scale: &Scale,
    burden: Burden,
) -> anyhow::Result<(f64, f64)> {
    database.settle().await?;
    let mut before = Vec::new();
    for _ in 0..scale.rounds {
        before.push(cycle::rate(queue, CLIENTS, BATCH, scale.round).await?);
    }
    let _pin = match burden {
        Burden::Waiting(jobs) => {
            progress(&format!("adding {jobs} jobs"));
            cycle::fill(queue, CLIENTS, jobs).await?;
            database.settle().await?;
            None
        }
        Burden::Pinned => {
            progress("churning under an open transaction");
            let pin = database.pin().await?;
            cycle::rate(queue, CLIENTS, BATCH, scale.churn).await?;
            Some(pin)
        }
    };
    let mut after = Vec::new();
    for _ in 0..scale.rounds {
        after.push(cycle::rate(queue, CLIENTS, BATCH, scale.round).await?);
    }
    Ok((median(&before), median(&after)))
}
