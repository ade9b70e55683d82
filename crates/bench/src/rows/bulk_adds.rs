//! Durable lines in large adds, compared with a server that only appends the same bodies. Windlass
//! ingests meanwhile, as always; how far ingest lagged at the end, and how long it took to catch
//! up, is shown too.

use std::path::Path;

use crate::limits::disk::{SyncedFile, line};
use crate::load::client;
use crate::load::round::{self, Round};
use crate::process::child::Role;
use crate::process::server::PATH;
use crate::report::figure::{Figure, Outcome, median};
use crate::scale::Scale;

const CONNECTIONS: usize = 8;
const LINES_PER_REQUEST: usize = 1000;
const SHARE_MIN: f64 = 0.7;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let body = line().repeat(LINES_PER_REQUEST);
    let request = client::post(PATH, &body);
    let (mut windlass, mut append, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let file_dir = tempfile::Builder::new().prefix("bulk-adds-").tempdir_in(dir)?;
        raw.push(SyncedFile::create(file_dir.path())?.rate(&body, scale.round)?);
        append.push(round::measure(Role::Append, dir, CONNECTIONS, &request, scale)?);
        windlass.push(round::measure(Role::Windlass, dir, CONNECTIONS, &request, scale)?);
    }
    let lines = LINES_PER_REQUEST as f64;
    let (ours, theirs) = (Round::middle(&windlass), Round::middle(&append));
    let share = ours.rate / theirs.rate;
    let mut figures = vec![
        Figure::new("Windlass", ours.rate * lines, "lines/s"),
        Figure::new("the appending axum handler", theirs.rate * lines, "lines/s"),
        Figure::new("a raw loop of 200 kB writes and fdatasync", median(&raw) * lines, "lines/s"),
        Figure::new("Windlass beside the appending handler", share * 100.0, "%"),
        Figure::new("processor time of Windlass", ours.server_micros / lines, "µs/line"),
        Figure::new("processor time of the handler", theirs.server_micros / lines, "µs/line"),
        Figure::new("processor time of the client", ours.client_micros / lines, "µs/line"),
    ];
    figures.extend(ours.lag_figures());
    Ok(Outcome {
        promise: "≥ 70 % of an axum handler that appends with one fdatasync per group",
        reached: format!("{:.0} %", share * 100.0),
        kept: share >= SHARE_MIN,
        figures,
    })
}
