//! The torture run is a crate of its own. It needs the daemon's binary beside its own.

pub(crate) mod control;

use anyhow::Result;

use crate::shell::{self, Limit};

/// Three minutes with the rest of the last run. The seeds are always the same, and every kind of
/// fault has to come.
const SHORT: [&str; 6] = ["--long", "--seconds", "150", "--seed", "1", "--complete"];
/// What the control of backups runs with, unless it is told: an earlier backup shows in that.
const BACKUP_SEED: [&str; 2] = ["--seed", "9"];
const BACKUP_SECONDS: [&str; 2] = ["--seconds", "40"];

/// The short form, part of all checks.
pub(crate) fn short(limit: &Limit) -> Result<()> {
    build(&[], Some(limit))?;
    torture(&[], &SHORT, Some(limit))
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let profile: &[&str] = if arguments.contains(&"--release") { &["--release"] } else { &[] };
    // That of backups alone is part of the run itself.
    if arguments.contains(&"--control") && !arguments.contains(&"--backup") {
        let others: Vec<&str> = arguments.into_iter().filter(|it| *it != "--control").collect();
        let planted = control::run(&control::CONTROLS, &[], profile, &others);
        let backup = control_of_backups(profile, &others);
        return both(planted, backup);
    }
    if !arguments.iter().any(|argument| argument.starts_with("--binary")) {
        build(profile, None)?;
    }
    torture(profile, &arguments, None)
}

/// Checks an earlier backup as if it were the last one, which must be found.
fn control_of_backups(profile: &[&str], arguments: &[&str]) -> Result<()> {
    shell::say("control: an earlier backup");
    build(profile, None)?;
    let asks = |name: &str| arguments.iter().any(|it| it.split('=').next() == Some(name));
    let mut line = vec!["--backup", "--control"];
    if !asks("--seed") {
        line.extend(BACKUP_SEED);
    }
    if !asks("--seconds") {
        line.extend(BACKUP_SECONDS);
    }
    torture(profile, &[&line, arguments].concat(), None)
}

/// Both have run, whether or not the first one failed.
fn both(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Err(one), Err(other)) => Err(one.context(format!("{other:#}"))),
        (one, other) => one.and(other),
    }
}

pub(crate) fn build(profile: &[&str], limit: Option<&Limit>) -> Result<()> {
    let build = ["build", "--quiet", "--package", "windlass", "--bin", "windlass"];
    shell::cargo(&[&build, profile].concat(), limit)
}

pub(crate) fn torture(profile: &[&str], arguments: &[&str], limit: Option<&Limit>) -> Result<()> {
    let run = ["run", "--quiet", "--package", "windlass-torture"];
    shell::cargo(&[&run, profile, &["--"], arguments].concat(), limit)
}
