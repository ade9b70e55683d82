//! Waits for observable events. Tests pause nowhere else.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(15);

/// This many checks are made even if the time is over: while a machine stands still, nothing that a
/// test waits for can happen.
const CHECKS_MIN: u32 = 1_000;

/// Waits until it has happened.
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    until_some(what, || happened().then_some(()));
}

/// Waits until there is a value.
#[track_caller]
pub fn until_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    when_some(look).unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// Like `until_some`, but returns `None` on a timeout, for callers that report it themselves.
pub fn when_some<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut waited = Waited::new();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if !waited.pause() {
            return None;
        }
    }
}

/// Waits until `enough` is true, and returns the value seen then.
#[track_caller]
pub fn until_seen<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    enough: impl Fn(&T) -> bool,
) -> T {
    let mut waited = Waited::new();
    loop {
        let seen = look();
        if enough(&seen) {
            return seen;
        }
        assert!(waited.pause(), "waited in vain: {what}; last seen: {seen:?}");
    }
}

struct Waited {
    since: Instant,
    checks: u32,
}

impl Waited {
    fn new() -> Self {
        Waited { since: Instant::now(), checks: 0 }
    }

    /// Pauses before the next check; false if it has been long enough.
    fn pause(&mut self) -> bool {
        self.checks += 1;
        if self.checks >= CHECKS_MIN && self.since.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(PAUSE);
        true
    }
}

/// Like `until_some`, for async tests.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            pause().await;
        }
    };
    in_time(what, looking).await
}

/// The future's output, if it is ready in time.
pub async fn in_time<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    let answer = tokio::time::timeout(PATIENCE, future).await;
    answer.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Like `in_time`, but returns `None` on a timeout, for callers that report it themselves.
pub async fn patiently<T>(future: impl IntoFuture<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, future).await.ok()
}

/// Pauses between two checks that are futures themselves; `in_time` bounds them.
pub async fn pause() {
    tokio::time::sleep(PAUSE).await;
}
