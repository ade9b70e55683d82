//! The one shape of everything in the background: a pass, and when the next one is due.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A background service. A pass is bounded work and is never cut short: stopping waits for it.
#[async_trait]
pub(crate) trait Service: Send + 'static {
    fn name(&self) -> &'static str;
    async fn pass(&mut self) -> Next;
}

/// When the next pass is due. A wake-up always brings it forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Now,
    After(Duration),
    /// Nothing to do until somebody wakes the service.
    OnWake,
}

/// Runs services and ends them together.
#[derive(Default)]
pub(crate) struct Services {
    tasks: TaskTracker,
}

impl Services {
    /// Runs `service` until `stop`; `wake` starts a pass at once.
    pub(crate) fn spawn(
        &self,
        mut service: impl Service,
        wake: Arc<Notify>,
        stop: CancellationToken,
    ) {
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let pause = match service.pass().await {
                    Next::Now => continue,
                    Next::After(pause) => pause,
                    Next::OnWake => Duration::MAX,
                };
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = wake.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
            tracing::debug!(service = service.name(), "service stopped");
        });
    }

    /// Returns when every service is gone.
    pub(crate) async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A pause that doubles while nothing changes, between two bounds.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Backoff {
        Backoff { min, max: max.max(min), next: min }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_doubles_up_to_its_bound_and_starts_over() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(50), ms(180));
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause()).collect();
        assert_eq!(pauses, [ms(50), ms(100), ms(180), ms(180)]);
        backoff.reset();
        assert_eq!(backoff.pause(), ms(50));
    }
}
