//! Running other programs from the root of the workspace, and speaking to the developer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_owned()
}

/// Runs a program to its end, and says how long it took.
pub(crate) fn step(program: &str, arguments: &[&str]) -> Result<()> {
    let line = format!("{program} {}", arguments.join(" "));
    say(&format!("==> {line}"));
    let began = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "`{line}` failed ({status})");
    say(&format!("    done in {} s", began.elapsed().as_secs()));
    Ok(())
}

/// The same cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    step(&cargo, arguments)
}

#[expect(clippy::print_stdout, reason = "this is how a tool for developers speaks")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "this is how a tool for developers speaks")]
pub(crate) fn complain(text: &str) {
    eprintln!("{text}");
}
