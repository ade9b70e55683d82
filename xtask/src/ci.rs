//! All checks, in the order in which they fail fastest.

use std::time::Duration;

use anyhow::Result;

use crate::shell::Limit;
use crate::{needs, shell, tidy};

/// More than twice what a run takes on two quiet cores once everything is built, and less than
/// those who start it wait for it: a test that hangs is named by us, not cut off by them.
const RUN_TIME_MAX: Duration = Duration::from_secs(70 * 60);

pub(crate) fn run() -> Result<()> {
    let limit = Limit::new(RUN_TIME_MAX);
    let cargo = |arguments: &[&str]| shell::cargo(arguments, Some(&limit));
    needs::install(&limit)?;
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    cargo(&["test", "--workspace"])
}
