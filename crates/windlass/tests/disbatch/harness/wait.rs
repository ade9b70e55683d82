//! Waiting for events: the only place that sleeps.

use std::thread;
use std::time::{Duration, Instant};

/// How long an event may take on a busy machine before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(30);

#[track_caller]
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    until_some(what, || happened().then_some(()));
}

#[track_caller]
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(PAUSE);
    }
}
