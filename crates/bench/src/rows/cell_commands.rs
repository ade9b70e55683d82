//! How fast jobs of `sh` run in cells, from the store and back into it, compared with bare
//! processes.

use std::path::Path;

use crate::engine::context::Sample;
use crate::engine::queue::Phase;
use crate::engine::warm::{Plan, WarmResults};
use crate::process::child::Part;
use crate::report::figure::{Figure, Outcome, median};
use crate::scale::Scale;

const SHARE_MIN: f64 = 70.0;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let run = |sample| -> anyhow::Result<Phase> {
        let dir = tempfile::Builder::new().prefix("cell-commands-").tempdir_in(dir)?;
        let plan = Plan { sample, jobs: scale.commands, time_max: scale.phase, fed: None };
        let WarmResults { drained, .. } = Part::Warm.run(dir.path(), &plan)?;
        Ok(drained)
    };
    let (mut cells, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        cells.push(run(Sample::Shell)?);
        bare.push(run(Sample::ShellBare)?);
    }
    let rate = |phases: &[Phase]| median(&phases.iter().map(|p| p.rate).collect::<Vec<_>>());
    let cost = |phases: &[Phase]| {
        median(&phases.iter().map(|p| p.cpu_micros + p.children_micros).collect::<Vec<_>>())
    };
    let share = rate(&cells) / rate(&bare) * 100.0;
    Ok(Outcome {
        promise: "≥ 70 % of the bare rate",
        reached: format!("{share:.0} %"),
        kept: share >= SHARE_MIN,
        figures: vec![
            Figure::new("in cells", rate(&cells), "jobs/s"),
            Figure::new("bare", rate(&bare), "jobs/s"),
            Figure::new("processor time in cells", cost(&cells), "µs/job"),
            Figure::new("processor time bare", cost(&bare), "µs/job"),
        ],
    })
}
