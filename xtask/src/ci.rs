//! All checks, in the order in which they fail fastest.

use anyhow::Result;

use crate::{needs, shell, tidy};

pub(crate) fn run() -> Result<()> {
    needs::install()?;
    shell::cargo(&["fmt", "--all", "--check"])?;
    tidy::run()?;
    shell::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    shell::cargo(&["test", "--workspace"])
}
