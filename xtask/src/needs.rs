//! What the tests need on the machine, and how it gets there.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::shell;

/// A program, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 6] = [
    ("sh", "dash"),
    ("awk", "mawk"),
    ("grep", "grep"),
    ("sha256sum", "coreutils"),
    ("python3", "python3"),
    ("mount", "mount"),
];

/// Installs what is missing; where that is not possible, says the command that does it.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !is_there("apt-get") {
        bail!("the tests need these Debian packages or their like: {packages}");
    }
    shell::say(&format!("the tests need {packages}: installing"));
    let arguments = [&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat();
    let installed =
        shell::step("apt-get", &["update", "-q"]).and_then(|()| shell::step("apt-get", &arguments));
    if let Err(error) = installed {
        bail!("{error:#}; run as root: apt-get update && apt-get install -y {packages}");
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    let looked = Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .status();
    looked.is_ok_and(|status| status.success())
}
