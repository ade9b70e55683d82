//! How long it takes from an add to the start of its job with the store on PostgreSQL, nothing else
//! waiting: in the daemon that accepts it, and in another daemon of the same queue.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use tokio::sync::mpsc::Receiver;

use windlass_core::TypeKey;
use windlass_engine::Engine;
use windlass_engine::metrics::Metrics;
use windlass_store_postgres::{Options, PostgresStore};

use crate::engine::daemon;
use crate::engine::lone;
use crate::engine::noop::NoopRunner;
use crate::engine::watched::{Start, Watched};
use crate::limits::disk::{SyncedFile, line};
use crate::postgres::database::Database;
use crate::report::figure::{Figure, Outcome, Samples, micros};
use crate::report::progress;
use crate::scale::Scale;

/// Each way and synced writes alternate in this many blocks.
const BLOCKS: usize = 10;
const OWN_MICROS_MAX: f64 = 2_000.0;
const OTHER_MICROS_MAX: f64 = 50_000.0;

#[derive(Default)]
struct Measured {
    syncs: Samples,
    adds: Samples,
    own: Samples,
    other: Samples,
}

/// A daemon of the queue, and the starts of jobs in it.
struct Member {
    engine: Engine,
    starts: Receiver<Start>,
}

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("postgres-latency-").tempdir_in(dir)?;
    let runtime = daemon::runtime()?;
    let measured = runtime.block_on(take_turns(dir.path(), scale.lone / BLOCKS));
    runtime.shutdown_background();
    let Measured { syncs, adds, own, other } = measured?;
    // As in the row of the embedded store.
    let sync = syncs.p50().min(adds.p50());
    let beyond = micros(own.p50()) - micros(sync);
    let mut figures = Vec::new();
    figures.extend(own.figures("from the add to the start in the same daemon"));
    figures.extend(other.figures("from the add to the start in another daemon"));
    figures.extend(adds.figures("from the add to its answer"));
    figures.extend(syncs.figures("a write of 200 bytes and its fdatasync"));
    figures.push(Figure::new("the start beyond the fdatasync, p50", beyond, "µs"));
    let other = micros(other.p50());
    Ok(Outcome {
        promise: "p50 < 2 ms beyond the fdatasync in the same daemon, < 50 ms in another",
        reached: format!("{:.2} ms; {:.1} ms", beyond / 1000.0, other / 1000.0),
        kept: beyond < OWN_MICROS_MAX && other < OTHER_MICROS_MAX,
        figures,
    })
}

async fn take_turns(dir: &Path, block: usize) -> anyhow::Result<Measured> {
    progress("a job on an idle queue");
    let database = Database::start()?;
    let mut accepts = Member::start(&database, &dir.join("accepts")).await?;
    let mut other = Member::start(&database, &dir.join("other")).await?;
    let key = TypeKey::new("acme", "line")?;
    accepts.engine.handler_set(&key, daemon::handler()).await?;
    let line = line();
    let payload = Bytes::from(line.clone());
    let mut file = SyncedFile::create(dir)?;
    let mut measured = Measured::default();
    for turn in 0..=BLOCKS {
        // The first block warms everything up.
        let counts = turn > 0;
        for _ in 0..block {
            let took = file.append(&line)?;
            counts.then(|| measured.syncs.push(took));
        }
        for in_other in [false, true] {
            accepts.engine.set_picking(!in_other);
            other.engine.set_picking(in_other);
            let starts = if in_other { &mut other.starts } else { &mut accepts.starts };
            for _ in 0..block {
                let times = lone::run(&accepts.engine, &key, &payload, starts).await?;
                if counts {
                    measured.adds.push(times.answered);
                    let of = if in_other { &mut measured.other } else { &mut measured.own };
                    of.push(times.started);
                }
            }
        }
    }
    accepts.engine.shutdown().await?;
    other.engine.shutdown().await?;
    Ok(measured)
}

impl Member {
    async fn start(database: &Database, dir: &Path) -> anyhow::Result<Member> {
        std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let store = PostgresStore::open(Options::new(database.url())).await?;
        let (runner, starts) = Watched::reporting_starts(Box::new(NoopRunner));
        let metrics = Arc::new(Metrics::default());
        let engine = daemon::start_on(Arc::new(store), dir, Arc::new(runner), metrics).await?;
        Ok(Member { engine, starts })
    }
}
