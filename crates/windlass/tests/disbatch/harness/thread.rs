//! Work in the background of a test. It ends with the test, even if that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Repeats something until it is dropped.
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// With a pause after each time.
    pub(super) fn every(pause: Duration, mut act: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let handle = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                act();
                thread::sleep(pause);
            }
        });
        Self { stop, handle: Some(handle) }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.take().into_iter().for_each(end);
    }
}

/// Waits for it; a failure in it fails the test.
pub(super) fn end(handle: JoinHandle<()>) {
    let ended = handle.join();
    if !thread::panicking() {
        ended.unwrap();
    }
}
