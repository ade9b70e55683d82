//! The one shape of everything in the background: a pass, and when the next one is due.
//!
//! Services are watched. A pass that could not do its work says why and when to try again: that is
//! logged, and when it goes on for long it is shown (`house::health`), until a pass succeeds.
//!
//! A pass that panics is caught: it is logged with the service's name,
//! counted, shown in `/readyz` and in the status (`house::health`), and the service goes on after
//! a pause that doubles. One that has panicked `FAILURES_MAX` times within `FAILURES_WINDOW` ends
//! the daemon with a sentence, since a restart of the process is what is left to try. A service
//! cannot end otherwise: its loop is here.
//!
//! A service keeps its state over a panic. Why that is safe, service by service:
//!
//! - ingest: what it had reserved would be read too late, behind the mark. `recover` goes back in
//!   the journal to where the store is.
//! - settle: forgets only what the store has answered. The others are settled again, which the
//!   store refuses where it has them.
//! - keep: leases that did not get to the store wait again, whatever dropped them.
//! - dispatch: slots are given back when what holds them is dropped (`dispatch::reserved`); jobs
//!   that were claimed and not started are given back by the beat; `recover` asks for a look at
//!   the store.
//! - batch: not a service. Its slot is given back, and the attempts of its jobs have failed. It
//!   never ends the daemon, since other batches go on.
//! - adopt: a journal that was being read is closed, and the next pass opens it again where the
//!   store is.
//! - beat, reap, purge, listen, clock: have nothing to lose. Each pass begins with what the store
//!   or the clock says.

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

/// Pauses before a service that panicked goes on.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(100);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A background service. A pass is bounded work and is never cut short: stopping waits for it.
#[async_trait]
pub(crate) trait Service: Send + 'static {
    fn name(&self) -> &'static str;
    async fn pass(&mut self) -> Result<Next, Failed>;

    /// Makes the state safe to go on with after a panic. No pass comes before this has succeeded.
    async fn recover(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// When the next pass is due. A wake-up always brings it forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Now,
    After(Duration),
    /// Nothing to do until somebody wakes the service.
    OnWake,
}

impl Next {
    /// How long it is until then.
    pub(crate) fn pause(self) -> Duration {
        match self {
            Next::Now => Duration::ZERO,
            Next::After(pause) => pause,
            Next::OnWake => Duration::MAX,
        }
    }
}

/// A pass that could not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub why: String,
    /// Until the next pass. A wake-up brings it forward.
    pub pause: Duration,
}

impl Failed {
    pub(crate) fn new(error: impl ToString, pause: Duration) -> Failed {
        Failed { why: error.to_string(), pause }
    }
}

/// Runs services and ends them together.
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

    /// Returns when every service is gone.
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
                // A wake-up does not count here: there may be thousands of them.
                pause_or_stop(restart.pause(), &stop).await;
                continue;
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One pass; as long as the service has not recovered from a panic, that fails.
async fn pass(service: &mut impl Service, panicked: &mut bool) -> Result<Next, Failed> {
    if *panicked {
        let recovered = service.recover().await;
        let not_yet = |error| format!("cannot go on after a panic yet: {error}");
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
        "the service {name} has panicked {FAILURES_MAX} times within {window}, a defect of \
         Windlass that its log shows; start the daemon again, nothing that was accepted is lost"
    )
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
mod tests;
