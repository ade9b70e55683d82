//! Whether many waiting jobs slow down those that run. Three queues, each in its own process: one
//! that is kept at a thousand, a shallow one and a deep one.

use std::path::Path;

use crate::engine::backlog::{BacklogResults, Plan};
use crate::process::child::Part;
use crate::report::figure::{Figure, Outcome};
use crate::scale::Scale;

/// The baseline of the promise.
const FEW: u64 = 1000;
const SHARE_MIN: f64 = 0.8;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let run = |waiting: u64| -> anyhow::Result<BacklogResults> {
        let dir = tempfile::Builder::new().prefix("backlog-").tempdir_in(dir)?;
        Part::Backlog.run(dir.path(), &Plan { waiting, phase: scale.phase })
    };
    let (few, shallow, deep) = (run(FEW)?, run(scale.shallow)?, run(scale.deep)?);
    let kept_up = deep.fed.rate / few.fed.rate;
    let drained = deep.drained.rate / shallow.drained.rate;
    let mut figures = vec![
        Figure::new("jobs in the deep queue", scale.deep as f64, "jobs"),
        Figure::new("jobs in the shallow queue", scale.shallow as f64, "jobs"),
        Figure::new("added and run, kept at the deep queue's depth", deep.fed.rate, "jobs/s"),
        Figure::new("added and run, kept at 1,000 waiting", few.fed.rate, "jobs/s"),
        Figure::new("deep beside 1,000, added and run", kept_up * 100.0, "%"),
        Figure::new("run only, from the deep queue", deep.drained.rate, "jobs/s"),
        Figure::new("run only, from the shallow queue", shallow.drained.rate, "jobs/s"),
        Figure::new("deep beside shallow, run only", drained * 100.0, "%"),
    ];
    for (name, ran) in [("1,000 waiting", &few), ("shallow", &shallow), ("deep", &deep)] {
        let figure = |what: &str, value, unit| Figure::new(format!("{name}: {what}"), value, unit);
        figures.push(figure("jobs in a batch, added and run", ran.fed.batch_jobs, "jobs"));
        figures.push(figure("processor time, added and run", ran.fed.cpu_micros, "µs/job"));
        figures.push(figure("most memory", ran.peak_bytes as f64 / (1 << 20) as f64, "MiB"));
        figures.push(figure("store", ran.store_bytes as f64 / (1 << 20) as f64, "MiB"));
    }
    for (name, ran) in [("shallow", &shallow), ("deep", &deep)] {
        let figure = |what: &str, value, unit| Figure::new(format!("{name}: {what}"), value, unit);
        figures.push(figure("processor time, run only", ran.drained.cpu_micros, "µs/job"));
        figures.push(figure("pulled by 100 and finished one by one", ran.pull_rate, "jobs/s"));
    }
    figures.push(Figure::new("filling the deep queue", deep.fill_rate, "jobs/s"));
    let worst = kept_up.min(drained);
    Ok(Outcome {
        promise: "10 M waiting: run rate ≥ 80 % of that with 1,000; memory bounded",
        reached: format!(
            "{:.0} % with {} M waiting, {} MiB",
            worst * 100.0,
            scale.deep as f64 / 1e6,
            deep.peak_bytes >> 20
        ),
        kept: worst >= SHARE_MIN,
        figures,
    })
}
