//! Waiting for something that can be observed. The only place of the suite that pauses.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before a test gives up on it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(15);

/// Looks again and again until `enough` says yes, and returns what was seen then.
pub(crate) fn until<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    enough: impl Fn(&T) -> bool,
) -> T {
    let started = Instant::now();
    loop {
        let seen = look();
        if enough(&seen) {
            return seen;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}; last seen: {seen:?}");
        std::thread::sleep(PAUSE);
    }
}

/// `until` for what is simply not there yet.
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(
        what,
        || {
            found = look();
            found.is_some()
        },
        |there| *there,
    );
    found.expect("until returns only when it is there")
}
