//! Steps of the clock of all daemons.

use anyhow::{Context, Result};
use windlass_proof::history::{FaultKind, Target};

use super::{Count, Injector};
use crate::daemon::Daemon;

/// What a daemon logs when its clock was set (`engine`, `house/clock.rs`), before the direction.
const WORDS: &str = "the clock was set direction=";

impl Injector<'_> {
    /// Each daemon must say that its own clock has moved, so that a step that does nothing is
    /// noticed.
    pub(super) fn step_clock(&mut self, by_ms: i64) -> Result<()> {
        let fault = self.began(FaultKind::ClockStep { by_ms }, Target::All)?;
        let steps = |daemons: &[Daemon<'_>]| -> Vec<usize> {
            daemons.iter().map(|daemon| steps_in(&daemon.console(), by_ms)).collect()
        };
        let before = steps(&self.daemons);
        let clock = self.clock.as_mut().context("the run has no clock of its own")?;
        clock.step(by_ms)?;
        self.done.clock.add(self.site.now_ns(), clock.ahead_s());
        self.done.add(Count::ClockSteps);
        let moved = |injector: &mut Self| {
            let now = steps(&injector.daemons);
            before.iter().zip(now).all(|(before, now)| now > *before)
        };
        if !self.notices(moved) {
            let now = steps(&self.daemons);
            let what = format!("a step of {by_ms} ms did not move the clock of every daemon");
            self.done.problems.push(format!("{what}: {before:?} steps noticed, then {now:?}"));
        }
        self.ended(fault)
    }
}

/// Steps in this direction that a daemon has noticed.
fn steps_in(console: &str, by_ms: i64) -> usize {
    let direction = if by_ms > 0 { "forward" } else { "back" };
    let of = |line: &&str| {
        line.split_once(WORDS)
            .is_some_and(|(_, rest)| rest.trim_matches('"').starts_with(direction))
    };
    console.lines().filter(of).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_in_the_same_direction_count() {
        let line = |words: &str| format!("2026-11-19T05:00:00.000Z  WARN {words}\n");
        let console = [
            line("the clock was set direction=\"forward\" by=\"3h\""),
            line("the clock was set direction=\"back\" by=\"1h\""),
            line("the store's clock and ours differ offset_ms=3600000"),
            line("the clock was set direction=\"forward\" by=\"1h\""),
        ];
        let console = console.concat();
        assert_eq!([steps_in(&console, 3_600_000), steps_in(&console, -3_600_000)], [2, 1]);
    }
}
