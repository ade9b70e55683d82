//! The simulation is a crate of its own, always optimised: its worth is in the number of schedules.

use anyhow::Result;

use crate::shell::{self, Limit};

/// About a minute. A fixed number, so that a change is judged by the same schedules everywhere.
const CI_SEEDS: &str = "15000";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    simulate(&arguments, None)
}

/// The part of it that every change passes.
pub(crate) fn run_in_ci(limit: &Limit) -> Result<()> {
    simulate(&["--control"], Some(limit))?;
    simulate(&["--seeds", CI_SEEDS], Some(limit))
}

fn simulate(arguments: &[&str], limit: Option<&Limit>) -> Result<()> {
    let run = ["run", "--quiet", "--release", "--package", "windlass-sim", "--"];
    shell::cargo(&[&run, arguments].concat(), limit)
}
