//! The latency of an add of one line on an idle server, compared with one synced write.

use std::path::Path;
use std::time::Instant;

use crate::limits::disk::{SyncedFile, line};
use crate::load::client::{self, Connection};
use crate::process::child::{Role, Server};
use crate::process::server::PATH;
use crate::report::figure::{Figure, Outcome, Samples, micros};
use crate::scale::Scale;

/// The kinds of operation alternate in this many blocks, so that all of them see the same disk.
const BLOCKS: usize = 10;
const ALLOWED_MICROS: f64 = 300.0;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("accept-latency-").tempdir_in(dir)?;
    let windlass = Server::start(Role::Windlass, dir.path())?;
    let empty = Server::start(Role::Empty, dir.path())?;
    let mut file = SyncedFile::create(dir.path())?;
    let line = line();
    let request = client::post(PATH, &line);
    let (mut syncs, mut adds, mut exchanges) =
        (Samples::default(), Samples::default(), Samples::default());
    client::runtime()?.block_on(async {
        let mut to_windlass = Connection::open(windlass.address).await?;
        let mut to_empty = Connection::open(empty.address).await?;
        for block in 0..=BLOCKS {
            // The first block warms everything up.
            let counts = block > 0;
            for _ in 0..scale.lone / BLOCKS {
                let took = file.append(&line)?;
                counts.then(|| syncs.push(took));
            }
            for (connection, samples) in
                [(&mut to_windlass, &mut adds), (&mut to_empty, &mut exchanges)]
            {
                for _ in 0..scale.lone / BLOCKS {
                    let began = Instant::now();
                    connection.exchange(&request).await?;
                    counts.then(|| samples.push(began.elapsed()));
                }
            }
        }
        anyhow::Ok(())
    })?;
    let beyond = micros(adds.p50()) - micros(syncs.p50());
    let mut figures = Vec::new();
    figures.extend(adds.figures("an add of one line"));
    figures.extend(syncs.figures("a write of 200 bytes and its fdatasync"));
    figures.extend(exchanges.figures("an exchange with an empty axum handler"));
    figures.push(Figure::new("an add beyond the fdatasync, p50", beyond, "µs"));
    Ok(Outcome {
        promise: "p50 = one fdatasync + 0.3 ms",
        reached: format!("one fdatasync + {:.2} ms", beyond / 1000.0),
        kept: beyond <= ALLOWED_MICROS,
        figures,
    })
}
