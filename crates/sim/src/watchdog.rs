//! Names schedules that run for too long. Simulated time has bounds everywhere, but a livelock, in
//! which no time passes, has none; and a thread that is in one cannot be stopped.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use windlass_core::sync::lock;

use crate::schedule::Settings;

/// Longest time for a schedule on the wall clock; a fleet has it for each so many daemons. Most
/// take some milliseconds.
pub(crate) const SCHEDULE_TIME_MAX: Duration = Duration::from_secs(60);
const DAEMONS_PER_TIME: usize = 20;
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Watches until it is dropped.
pub(crate) struct Watchdog {
    running: Arc<Mutex<Vec<Running>>>,
    /// Closed at the end.
    _watches: Sender<()>,
}

#[derive(Clone, Copy)]
struct Running {
    settings: Settings,
    since: Instant,
}

/// How much of the time for a schedule this one has.
fn times(settings: Settings) -> u32 {
    settings.fleet.map_or(1, |daemons| daemons.div_ceil(DAEMONS_PER_TIME) as u32)
}

impl Watchdog {
    /// Calls `late` with the schedules that have been running for longer than `time_max`, while
    /// there are any.
    pub(crate) fn new(time_max: Duration, late: impl Fn(&[Settings]) + Send + 'static) -> Watchdog {
        let running: Arc<Mutex<Vec<Running>>> = Arc::default();
        let (watches, ended) = channel::<()>();
        let watched = running.clone();
        let is_late = move |of: &Running| of.since.elapsed() >= time_max * times(of.settings);
        thread::spawn(move || {
            while ended.recv_timeout(LOOK_PAUSE.min(time_max)) == Err(RecvTimeoutError::Timeout) {
                let seen = lock(&watched).clone();
                let all: Vec<_> =
                    seen.into_iter().filter(is_late).map(|running| running.settings).collect();
                if !all.is_empty() {
                    late(&all);
                }
            }
        });
        Watchdog { running, _watches: watches }
    }

    /// Watches a schedule while it is played.
    pub(crate) fn watch<T>(&self, settings: Settings, play: impl FnOnce(Settings) -> T) -> T {
        lock(&self.running).push(Running { settings, since: Instant::now() });
        let played = play(settings);
        lock(&self.running).retain(|running| running.settings != settings);
        played
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64, fleet: Option<usize>) -> Settings {
        Settings { seed, control: None, fleet }
    }

    #[test]
    fn a_schedule_that_does_not_end_is_named() {
        let (named, late) = channel();
        let watchdog = Watchdog::new(Duration::from_millis(1), move |all| {
            for settings in all {
                let _ = named.send(settings.seed);
            }
        });
        watchdog.watch(settings(1, None), |_| ());
        watchdog.watch(settings(7, None), |_| {
            assert_eq!(lock(&watchdog.running).len(), 1, "the other one has ended");
            assert!(late.iter().any(|seed| seed == 7));
        });
    }

    #[test]
    fn a_large_fleet_has_more_time() {
        let of = |fleet| times(settings(1, fleet));
        assert_eq!([None, Some(1), Some(20), Some(21), Some(100)].map(of), [1, 1, 1, 2, 5]);
    }
}
