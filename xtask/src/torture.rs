//! The torture run is a crate of its own. It needs the daemon's binary beside its own.

use anyhow::Result;

use crate::shell;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let release = arguments.iter().any(|argument| argument == "--release");
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    let build = ["build", "--quiet", "--package", "windlass", "--bin", "windlass"];
    shell::cargo(&[&build, profile].concat(), None)?;
    let run = ["run", "--quiet", "--package", "windlass-torture"];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    shell::cargo(&[&run, profile, &["--"], &arguments].concat(), None)
}
