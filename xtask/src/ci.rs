//! All checks, in the order in which they fail fastest.

use std::time::Duration;

use anyhow::Result;

use crate::shell::Limit;
use crate::{needs, shell, tidy};

/// More than twice as long as a run takes on two quiet cores with everything built, and shorter
/// than the limit of those who start it, so that we report a hanging test before they cut us off.
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
