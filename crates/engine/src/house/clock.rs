//! Clocks. `DaemonClock` is the engine's clock: the machine's, corrected by how far the store's is
//! ahead. `ClockWatch` notices when the machine's wall clock is set while the daemon runs. It logs
//! and counts that, so that an operator can explain early or late jobs. The store handles the
//! consequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::time::{Clock, Moment, Timestamp, format_duration};

use crate::house::service::{Failed, Next, Service};
use crate::metrics::Metrics;

/// Interval at which the clocks are compared.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A change of the difference between our clock and the store's that is logged.
const OFFSET_WARN_MS: u64 = 1000;

pub(crate) struct DaemonClock {
    machine: Arc<dyn Clock>,
    /// How far the store's clock is ahead, in milliseconds.
    offset: AtomicI64,
}

impl DaemonClock {
    pub(crate) fn new(machine: Arc<dyn Clock>) -> DaemonClock {
        DaemonClock { machine, offset: AtomicI64::new(0) }
    }

    /// Our estimate of the store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.wall().shifted(self.offset.load(Ordering::Relaxed))
    }

    /// The machine's wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        self.machine.now()
    }

    /// See `Clock::steady`.
    pub(crate) fn steady(&self) -> Duration {
        self.machine.steady()
    }

    /// The time since an earlier reading of `steady`.
    pub(crate) fn since(&self, earlier: Duration) -> Duration {
        self.steady().saturating_sub(earlier)
    }

    pub(crate) fn machine(&self) -> Arc<dyn Clock> {
        self.machine.clone()
    }

    /// The store's clock showed `store_time` at some moment between `before`, by our wall clock,
    /// and now. The offset changes no more than it must to fit that, so a slow answer does not move
    /// it.
    pub(crate) fn follow(&self, before: Timestamp, store_time: Timestamp, metrics: &Metrics) {
        let (at_most, at_least) = (store_time.0 - before.0, store_time.0 - self.wall().0);
        // Our wall clock was set meanwhile: this is no measurement.
        if at_least > at_most {
            return;
        }
        let was = self.offset.load(Ordering::Relaxed);
        let offset = was.clamp(at_least, at_most);
        self.offset.store(offset, Ordering::Relaxed);
        metrics.store_clock_offset(offset);
        if offset.abs_diff(was) >= OFFSET_WARN_MS {
            tracing::warn!(offset_ms = offset, "the store's clock and ours differ");
        }
    }
}

/// For doors: the store's time, so that the times that they pass on are its times.
impl Clock for DaemonClock {
    fn now(&self) -> Timestamp {
        DaemonClock::now(self)
    }

    fn steady(&self) -> Duration {
        DaemonClock::steady(self)
    }

    fn machine_run(&self) -> i64 {
        self.machine.machine_run()
    }
}

pub(crate) struct ClockWatch {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    offset: i64,
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
        let offset = Moment::now(clock.as_ref()).offset();
        ClockWatch { clock, metrics, offset }
    }
}

#[async_trait]
impl Service for ClockWatch {
    fn name(&self) -> &'static str {
        "clock"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let moment = Moment::now(self.clock.as_ref());
        if let Some(step) = moment.step(self.offset) {
            self.offset = moment.offset();
            let direction = if step > 0 { Direction::Forward } else { Direction::Back }.as_str();
            let by = format_duration(Duration::from_millis(step.unsigned_abs()));
            tracing::warn!(direction, by, "the clock was set");
            self.metrics.clock_stepped(direction);
        }
        Ok(Next::After(LOOK_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::time::ManualClock;
    use windlass_test_kit::log::Logged;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The counted steps, by direction.
    fn counted(metrics: &Metrics) -> [u64; 2] {
        let text = metrics.encode();
        ["forward", "back"].map(|direction| {
            let name = format!("windlass_clock_steps_total{{direction=\"{direction}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.map_or(0, |number| number.parse().unwrap())
        })
    }

    #[tokio::test]
    async fn a_step_is_logged_and_counted_once_and_time_that_passes_is_none() {
        let logged = Logged::start();
        let lines = || logged.lines("the clock was set");
        let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000)));
        let metrics = Arc::new(Metrics::default());
        let mut watch = ClockWatch::new(clock.clone(), metrics.clone());
        let look_again = async |watch: &mut ClockWatch| {
            let Ok(Next::After(pause)) = watch.pass().await else { panic!("it looks by itself") };
            assert!(pause < Duration::from_secs(1), "a step is noticed within a second");
        };
        for _ in 0..3 {
            clock.advance(HOUR);
            look_again(&mut watch).await;
        }
        assert_eq!(counted(&metrics), [0, 0], "hours passed on both clocks");
        assert!(lines().is_empty());

        clock.set(clock.now() - HOUR);
        look_again(&mut watch).await;
        look_again(&mut watch).await;
        assert_eq!(counted(&metrics), [0, 1]);

        clock.set(clock.now() + 2 * HOUR);
        look_again(&mut watch).await;
        clock.advance(HOUR);
        look_again(&mut watch).await;
        assert_eq!(counted(&metrics), [1, 1]);
        let fields = [r#"direction="back" by="1h""#, r#"direction="forward" by="2h""#];
        let lines = lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, fields) in lines.iter().zip(fields) {
            assert!(line.starts_with("WARN") && line.ends_with(fields), "{line}");
        }
    }

    #[test]
    fn the_offset_to_the_store_follows_what_its_answers_allow() {
        let machine = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000)));
        let (clock, metrics) = (DaemonClock::new(machine.clone()), Metrics::default());
        let second = Duration::from_secs(1);
        let answer = |ahead: i64, after: Duration| {
            let (before, store_time) = (clock.wall(), clock.wall().shifted(ahead));
            machine.advance(after);
            clock.follow(before, store_time, &metrics);
            clock.now().0 - clock.wall().0
        };
        assert_eq!(answer(0, Duration::ZERO), 0);
        assert_eq!(answer(5000, Duration::ZERO), 5000, "ahead");
        assert_eq!(answer(5000, second), 5000, "a slow answer says the same, less exactly");
        assert_eq!(answer(6000, second * 3), 5000, "and may be anywhere in between");
        assert_eq!(answer(-60_000, second), -60_000, "behind");
        let before = clock.wall();
        machine.set(before - second * 3600);
        clock.follow(before, before, &metrics);
        assert_eq!(clock.now().0 - clock.wall().0, -60_000, "our clock was set meanwhile");
    }
}
