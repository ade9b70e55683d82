//! The torture run is a crate of its own. It needs the daemon's binary beside its own.

pub(crate) mod control;

use anyhow::Result;

use crate::shell::{self, Limit};

/// Three minutes with the rest of the last run. The seeds are always the same.
const SHORT: [&str; 5] = ["--long", "--seconds", "150", "--seed", "1"];

/// The short form, part of all checks.
pub(crate) fn short(limit: &Limit) -> Result<()> {
    build(&[], Some(limit))?;
    torture(&[], &SHORT, Some(limit))
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let profile: &[&str] = if arguments.contains(&"--release") { &["--release"] } else { &[] };
    // Of a backup, the control is part of the run itself.
    if arguments.contains(&"--control") && !arguments.contains(&"--backup") {
        let others: Vec<&str> = arguments.into_iter().filter(|it| *it != "--control").collect();
        return control::run(&control::CONTROLS, &[], profile, &others);
    }
    if !arguments.iter().any(|argument| argument.starts_with("--binary")) {
        build(profile, None)?;
    }
    torture(profile, &arguments, None)
}

pub(crate) fn build(profile: &[&str], limit: Option<&Limit>) -> Result<()> {
    let build = ["build", "--quiet", "--package", "windlass", "--bin", "windlass"];
    shell::cargo(&[&build, profile].concat(), limit)
}

pub(crate) fn torture(profile: &[&str], arguments: &[&str], limit: Option<&Limit>) -> Result<()> {
    let run = ["run", "--quiet", "--package", "windlass-torture"];
    shell::cargo(&[&run, profile, &["--"], arguments].concat(), limit)
}
