//! Waiting for what can be observed. Only here tests pause.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(15);

/// Looks until it has happened.
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    until_some(what, || happened().then_some(()));
}

/// Looks until there is something.
#[track_caller]
pub fn until_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    when_some(look).unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// `until_some` for those who have more to say when nothing came.
pub fn when_some<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if began.elapsed() > PATIENCE {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Looks until `enough` says yes, and answers what was seen then.
#[track_caller]
pub fn until_seen<T: Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    enough: impl Fn(&T) -> bool,
) -> T {
    let began = Instant::now();
    loop {
        let seen = look();
        if enough(&seen) {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}; last seen: {seen:?}");
        thread::sleep(PAUSE);
    }
}

/// `until_some` for tests that run beside what they wait for.
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

/// What the future answers, if it does so within the patience.
pub async fn in_time<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    let answer = tokio::time::timeout(PATIENCE, future).await;
    answer.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// `in_time` for those who have more to say when nothing came.
pub async fn patiently<T>(future: impl IntoFuture<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, future).await.ok()
}

/// Between two looks that are futures themselves; `in_time` bounds them.
pub async fn pause() {
    tokio::time::sleep(PAUSE).await;
}
