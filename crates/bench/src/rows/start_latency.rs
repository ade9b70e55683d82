//! How long it takes from an add to the start of its job, on an idle queue with a warm node
//! context. Both ends are observed in the engine's own process, without HTTP in between; a job has
//! started when its context reports it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use windlass_core::TypeKey;
use windlass_runner::Level;

use crate::engine::context::{self, Sample};
use crate::engine::daemon;
use crate::engine::lone::{self, Times};
use crate::engine::watched::Watched;
use crate::limits::disk::{SyncedFile, line};
use crate::report::figure::{Figure, Outcome, Samples, micros};
use crate::scale::Scale;

/// Adds and synced writes alternate in this many blocks, so that both see the same disk.
const BLOCKS: usize = 10;
const ALLOWED_MICROS: f64 = 1000.0;

#[derive(Default)]
struct Measured {
    syncs: Samples,
    adds: Samples,
    hands: Samples,
    starts: Samples,
}

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("start-latency-").tempdir_in(dir)?;
    let runtime = daemon::runtime()?;
    let measured = runtime.block_on(take_turns(dir.path(), scale.lone / BLOCKS));
    runtime.shutdown_background();
    let Measured { syncs, adds, hands, starts } = measured?;
    // The answer to an add includes its own fdatasync. If the lone ones took longer, they met a
    // busier disk, and would make the rest look shorter than it is.
    let sync = syncs.p50().min(adds.p50());
    let beyond = micros(starts.p50()) - micros(sync);
    let mut figures = Vec::new();
    figures.extend(starts.figures("from the add to the start of its job"));
    figures.extend(hands.figures("from the add until the runner has the job"));
    figures.extend(adds.figures("from the add to its answer"));
    figures.extend(syncs.figures("a write of 200 bytes and its fdatasync"));
    figures.push(Figure::new("the start beyond the fdatasync, p50", beyond, "µs"));
    Ok(Outcome {
        promise: "p50 < 1 ms beyond the fdatasync",
        reached: format!("{:.2} ms beyond the fdatasync", beyond / 1000.0),
        kept: beyond < ALLOWED_MICROS,
        figures,
    })
}

async fn take_turns(dir: &Path, block: usize) -> anyhow::Result<Measured> {
    let (runner, mut starts) =
        Watched::reporting_starts(Box::new(context::runner(dir, Level::default())?));
    let engine = daemon::start(dir, Arc::new(runner)).await?;
    let key = TypeKey::new("acme", "line")?;
    engine.handler_set(&key, Sample::Node.handler()).await?;
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
        for _ in 0..block {
            let Times { answered, handed, started } =
                lone::run(&engine, &key, &payload, &mut starts).await?;
            if counts {
                measured.adds.push(answered);
                measured.hands.push(handed);
                measured.starts.push(started);
            }
        }
    }
    engine.shutdown().await?;
    Ok(measured)
}
