//! The benchmark is a crate of its own, so that the other commands do not have to build it.

use anyhow::Result;

use crate::shell;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut line = vec!["run", "--release", "--quiet", "--package", "windlass-bench", "--"];
    line.extend(arguments.iter().map(String::as_str));
    shell::cargo(&line, None)
}
