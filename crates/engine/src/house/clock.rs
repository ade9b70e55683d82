//! Clock: notices when the wall clock is set, or jumps, while the daemon runs.
//!
//! It is compared with a clock that only ever goes forward. Nothing depends on what is found: it
//! is logged and counted, so that whoever wonders about early or late jobs finds the cause. A
//! machine that slept looks like a clock that was set forward, and to jobs it is the same.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::time::{Clock, Timestamp, format_duration};

use crate::house::service::{Next, Service};
use crate::metrics::Metrics;

/// How often the clocks are compared.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A difference of this or more between two looks is a step. A clock that is being corrected
/// slowly stays far below it.
const STEP_MIN: Duration = Duration::from_secs(1);
/// Two looks at the steady clock around one at the wall clock that are further apart than this say
/// nothing: the process was stopped between them.
const LOOK_MAX: Duration = Duration::from_millis(100);

pub(crate) struct ClockWatch {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    last: Option<Look>,
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    wall: Timestamp,
    steady: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}

impl Direction {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Direction::Forward => "forward",
            Direction::Back => "back",
        }
    }
}

impl ClockWatch {
    pub(crate) fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> ClockWatch {
        let last = look(clock.as_ref());
        ClockWatch { clock, metrics, last }
    }
}

#[async_trait]
impl Service for ClockWatch {
    fn name(&self) -> &'static str {
        "clock"
    }

    async fn pass(&mut self) -> Next {
        if let Some(now) = look(self.clock.as_ref()) {
            let step = self.last.and_then(|last| step_between(last, now));
            if let Some((direction, by)) = step {
                let (direction, by) = (direction.as_str(), format_duration(by));
                tracing::warn!(direction, by, "the clock was set, or the machine slept");
                self.metrics.clock_stepped(direction);
            }
            self.last = Some(now);
        }
        Next::After(LOOK_INTERVAL)
    }
}

fn look(clock: &dyn Clock) -> Option<Look> {
    let steady = clock.steady();
    let wall = clock.now();
    (clock.steady().saturating_sub(steady) <= LOOK_MAX).then_some(Look { wall, steady })
}

/// How far the wall clock has moved beside the time that has passed, if that is a step.
fn step_between(last: Look, now: Look) -> Option<(Direction, Duration)> {
    let passed = now.steady.saturating_sub(last.steady);
    let expected = last.wall + passed;
    let (forward, back) = (now.wall.since(expected), expected.since(now.wall));
    let (direction, by) =
        if back.is_zero() { (Direction::Forward, forward) } else { (Direction::Back, back) };
    (by >= STEP_MIN).then_some((direction, by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::time::ManualClock;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The steps that were counted, by direction.
    fn counted(metrics: &Metrics) -> [u64; 2] {
        let text = metrics.encode();
        ["forward", "back"].map(|direction| {
            let name = format!("windlass_clock_steps_total{{direction=\"{direction}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.map_or(0, |number| number.parse().unwrap())
        })
    }

    #[tokio::test]
    async fn a_step_is_counted_once_with_its_direction_and_time_that_passes_is_none() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000)));
        let metrics = Arc::new(Metrics::default());
        let mut watch = ClockWatch::new(clock.clone(), metrics.clone());
        let look_again = async |watch: &mut ClockWatch| {
            let Next::After(pause) = watch.pass().await else { panic!("it looks by itself") };
            assert!(pause < Duration::from_secs(1), "a step is noticed within a second");
        };
        for _ in 0..3 {
            clock.advance(HOUR);
            look_again(&mut watch).await;
        }
        assert_eq!(counted(&metrics), [0, 0], "hours passed on both clocks");

        clock.set(clock.now() - HOUR);
        look_again(&mut watch).await;
        look_again(&mut watch).await;
        assert_eq!(counted(&metrics), [0, 1]);

        clock.set(clock.now() + HOUR);
        look_again(&mut watch).await;
        clock.advance(HOUR);
        look_again(&mut watch).await;
        assert_eq!(counted(&metrics), [1, 1]);
    }

    #[test]
    fn a_clock_that_is_corrected_slowly_makes_no_step() {
        let at =
            |wall, steady| Look { wall: Timestamp(wall), steady: Duration::from_millis(steady) };
        assert_eq!(step_between(at(0, 0), at(500, 500)), None);
        assert_eq!(step_between(at(0, 0), at(550, 500)), None);
        assert_eq!(step_between(at(0, 0), at(-499, 500)), None);
        let second = Duration::from_secs(1);
        assert_eq!(step_between(at(0, 0), at(-500, 500)), Some((Direction::Back, second)));
        assert_eq!(step_between(at(0, 0), at(1500, 500)), Some((Direction::Forward, second)));
    }
}
