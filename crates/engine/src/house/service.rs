//! The shape of every background service: a pass, and when the next one is due.
//!
//! Services are supervised. A pass that fails returns the reason and when to try again. That is
//! logged, and shown (`house::health`) if passes keep failing, until one succeeds.
//!
//! A panic of a pass is caught, logged with the service's name, counted, and shown in `/readyz` and
//! in the status (`house::health`). The service continues after a pause that doubles. A service
//! that panics `FAILURES_MAX` times within `FAILURES_WINDOW` ends the daemon with an explanation,
//! because only a restart of the process is left to try. A service cannot end in any other way: its
//! loop is here.
//!
//! A service keeps its state after a panic. Why that is safe, service by service:
//!
//! - ingest: records that it had reserved would be skipped. `recover` goes back in the journal to
//!   the store's position.
//! - settle: forgets only what the store has answered. The rest is settled again, and the store
//!   refuses what it already has.
//! - keep: leases that did not reach the store return to the queue.
//! - dispatch: reservations and slots are returned when they are dropped (`claim::reserve`); the
//!   beat releases jobs that were claimed and not started; `recover` requests a look at the store.
//! - batch: not a service. Its slot is freed, and the attempts of its jobs have failed. It never
//!   ends the daemon, because other batches continue.
//! - adopt: the journal that was being read is closed, and the next pass opens it again at the
//!   store's position.
//! - unhandled: the types that it suspects and its place among them; a type that it skips has its
//!   turn in the next round.
//! - keys: a missed use is recorded with the next one, a minute later.
//! - tenants: settings that were read and not applied are read again.
//! - audit: entries that did not reach the store still wait.
//! - beat, boot, reap, purge, listen, clock: have no state to lose. Each pass starts from the store
//!   or the clock.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use windlass_core::sync::panic_text;
use windlass_core::time::format_duration;

use crate::error::Error;
use crate::house::health::{FAILURES_MAX, FAILURES_WINDOW, Health};

/// Pauses before a service that panicked continues.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A background service. A pass may wait for work until the service stops. The work itself is
/// bounded and never interrupted: stopping waits for it.
#[async_trait]
pub(crate) trait Service: Send + 'static {
    fn name(&self) -> &'static str;
    async fn pass(&mut self) -> Result<Next, Failed>;

    /// Makes the state usable after a panic. No pass runs before this has succeeded.
    async fn recover(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// When the next pass is due. A wake-up always brings it forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Now,
    After(Duration),
    /// Nothing to do until the service is woken.
    OnWake,
}

impl Next {
    /// How long until then.
    pub(crate) fn pause(self) -> Duration {
        match self {
            Next::Now => Duration::ZERO,
            Next::After(pause) => pause,
            Next::OnWake => Duration::MAX,
        }
    }
}

/// A pass that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub why: String,
    /// The pause until the next pass. A wake-up shortens it.
    pub pause: Duration,
}

impl Failed {
    pub(crate) fn new(error: impl ToString, pause: Duration) -> Failed {
        Failed { why: error.to_string(), pause }
    }
}

/// Runs services and stops them together.
pub(crate) struct Services {
    tasks: TaskTracker,
    health: Arc<Health>,
}

impl Services {
    pub(crate) fn new(health: Arc<Health>) -> Services {
        Services { tasks: TaskTracker::new(), health }
    }

    /// Runs `service` until `stop`; `wake` starts a pass at once.
    pub(crate) fn spawn(&self, service: impl Service, wake: Arc<Notify>, stop: CancellationToken) {
        let name = service.name();
        let run = run(service, wake, stop, self.health.clone());
        self.tasks.spawn(async move {
            run.await;
            tracing::debug!(service = name, "service stopped");
        });
    }

    /// Returns when all services have ended.
    pub(crate) async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn run(
    mut service: impl Service,
    wake: Arc<Notify>,
    stop: CancellationToken,
    health: Arc<Health>,
) {
    let (mut panicked, mut failing) = (false, false);
    let mut restart = Backoff::new(RESTART_PAUSE_MIN, RESTART_PAUSE_MAX);
    while !stop.is_cancelled() {
        let pass = AssertUnwindSafe(pass(&mut service, &mut panicked)).catch_unwind().await;
        if matches!(pass, Ok(Ok(_))) && std::mem::take(&mut failing) {
            health.pass_succeeded(service.name());
        }
        let pause = match pass {
            Ok(Ok(Next::Now)) => continue,
            Ok(Ok(next)) => next.pause(),
            Ok(Err(Failed { why, pause })) => {
                failing = true;
                health.pass_failed(service.name(), why);
                if panicked {
                    pause_or_stop(restart.pause(), &stop).await;
                    continue;
                }
                pause
            }
            Err(panic) => {
                panicked = true;
                let lately = health.service_failed(service.name(), panic_text(&*panic));
                if lately >= FAILURES_MAX {
                    return health.fail(too_often(service.name()));
                }
                if lately == 1 {
                    restart.reset();
                }
                // Ignores wake-ups here: there may be thousands.
                pause_or_stop(restart.pause(), &stop).await;
                continue;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One pass; fails as long as the service has not recovered from a panic.
async fn pass(service: &mut impl Service, panicked: &mut bool) -> Result<Next, Failed> {
    if *panicked {
        let recovered = service.recover().await;
        let not_yet = |error| format!("has not recovered from a panic yet: {error}");
        recovered.map_err(|error| Failed::new(not_yet(error), Duration::ZERO))?;
        *panicked = false;
    }
    service.pass().await
}

async fn pause_or_stop(pause: Duration, stop: &CancellationToken) {
    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
}

fn too_often(name: &str) -> String {
    let window = format_duration(FAILURES_WINDOW);
    format!(
        "the service {name} panicked {FAILURES_MAX} times within {window}; this is a bug in \
         Windlass (see the log). Restart the daemon; no accepted job is lost"
    )
}

/// A pause that doubles, between two bounds, until it is reset.
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
mod tests;
