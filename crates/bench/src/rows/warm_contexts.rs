//! How fast empty jobs run in warm node contexts, from the store and back into it, compared with
//! what node alone does with lines from a pipe.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::engine::context::Sample;
use crate::engine::queue::Phase;
use crate::engine::warm::{Plan, WarmResults};
use crate::limits::pipe::{self, Answers};
use crate::process::child::Part;
use crate::report::figure::{Figure, Outcome};
use crate::scale::Scale;

const RATE_MIN: f64 = 75_000.0;
/// Time limit for the measured jobs.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Not part of the promise.
const OTHERS: [Sample; 4] =
    [Sample::NodeReplaced, Sample::NodeLogging, Sample::Python, Sample::Php];

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let run = |sample, time_max, fed| -> anyhow::Result<WarmResults> {
        let dir = tempfile::Builder::new().prefix("warm-contexts-").tempdir_in(dir)?;
        Part::Warm.run(dir.path(), &Plan { sample, jobs: scale.warm, time_max, fed })
    };
    let single = pipe::measure(Answers::Single, scale.phase)?;
    let together = pipe::measure(Answers::Together, scale.phase)?;
    let WarmResults { drained, fed } = run(Sample::Node, TIME_MAX, Some(scale.phase))?;
    let fed = fed.context("the queue was not fed")?;
    let mut figures = vec![
        Figure::new("run only", drained.rate, "jobs/s"),
        Figure::new("added and run, kept at 1,000 waiting", fed.rate, "jobs/s"),
        Figure::new("node alone, one write for each answer", single.rate, "lines/s"),
        Figure::new("node alone, answers written together", together.rate, "lines/s"),
        Figure::new("run only beside node alone", drained.rate / single.rate * 100.0, "%"),
    ];
    for (name, phase) in [("run only", &drained), ("added and run", &fed)] {
        let figure = |what: &str, value, unit| Figure::new(format!("{name}: {what}"), value, unit);
        figures.push(figure("jobs in a batch", phase.batch_jobs, "jobs"));
        figures.push(figure("contexts", phase.children as f64, "processes"));
        figures.push(figure("processor time of Windlass", phase.cpu_micros, "µs/job"));
        figures.push(figure("processor time of node", phase.children_micros, "µs/job"));
    }
    for (name, alone) in [("one write for each", &single), ("written together", &together)] {
        let name = format!("processor time of node alone, {name}");
        figures.push(Figure::new(name, alone.cpu_micros, "µs/line"));
    }
    for sample in OTHERS {
        let Phase { rate, children_micros, .. } = run(sample, scale.phase, None)?.drained;
        let name = sample.name();
        figures.push(Figure::new(format!("{name}: run only"), rate, "jobs/s"));
        let name = format!("{name}: processor time of contexts");
        figures.push(Figure::new(name, children_micros, "µs/job"));
    }
    Ok(Outcome {
        promise: "≥ 75,000 jobs/s end to end",
        reached: format!("{} jobs/s", Figure::new("", drained.rate, "").text()),
        kept: drained.rate >= RATE_MIN,
        figures,
    })
}
