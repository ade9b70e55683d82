//! The database's time on this host: the local clock plus the server's offset.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mongodb::bson::DateTime;

/// Cheap to clone; clones share their state.
#[derive(Clone)]
pub(crate) struct Clock {
    local: Arc<dyn Fn() -> DateTime + Send + Sync>,
    offset_ms: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn new(local: impl Fn() -> DateTime + Send + Sync + 'static) -> Self {
        Self { local: Arc::new(local), offset_ms: Arc::default() }
    }

    pub(crate) fn system() -> Self {
        Self::new(DateTime::now)
    }

    /// The database's time; the local time until the server's is known.
    pub(crate) fn now(&self) -> DateTime {
        let offset = self.offset_ms.load(Ordering::Relaxed);
        DateTime::from_millis(self.local_ms().saturating_add(offset))
    }

    /// Adopts the server's time.
    pub(crate) fn learn(&self, server: DateTime) {
        let offset = server.timestamp_millis().saturating_sub(self.local_ms());
        self.offset_ms.store(offset, Ordering::Relaxed);
    }

    fn local_ms(&self) -> i64 {
        (self.local)().timestamp_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_time_goes_on_with_the_local_clock() {
        let local = Arc::new(AtomicI64::new(1000));
        let read = Arc::clone(&local);
        let clock = Clock::new(move || DateTime::from_millis(read.load(Ordering::Relaxed)));
        assert_eq!(clock.now().timestamp_millis(), 1000);
        clock.learn(DateTime::from_millis(301_000));
        local.store(1250, Ordering::Relaxed);
        assert_eq!(clock.clone().now().timestamp_millis(), 301_250);
    }
}
