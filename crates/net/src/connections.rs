//! The open connections, and other tasks that must not outlive a door.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// When a door closes, requests in progress get this long to be answered.
pub const CLOSE_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Connections {
    tasks: TaskTracker,
    cut: CancellationToken,
}

impl Connections {
    /// Runs until it ends or is cut off; then its slot is free again.
    pub fn spawn(
        &self,
        slot: OwnedSemaphorePermit,
        talk: impl Future<Output = ()> + Send + 'static,
    ) {
        let (talk, cut) = (Box::pin(talk), self.cut.child_token());
        self.track(slot, async move {
            tokio::select! {
                () = talk => {}
                () = cut.cancelled() => {}
            }
        });
    }

    /// Runs `talk`, which must end soon after its token is cancelled.
    pub fn spawn_whole<T: Future<Output = ()> + Send + 'static>(
        &self,
        slot: OwnedSemaphorePermit,
        talk: impl FnOnce(CancellationToken) -> T,
    ) {
        self.track(slot, Box::pin(talk(self.cut.child_token())));
    }

    /// `talk` is boxed if it is large, since each future that wraps another one contains it again.
    /// Each has its own token, to avoid contention on one.
    fn track(&self, slot: OwnedSemaphorePermit, talk: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            talk.await;
            drop(slot);
        });
    }

    /// Returns when all have ended. Those that have not after `grace` are cut off, and `tell` gets
    /// their number.
    pub async fn end(&self, grace: Duration, tell: impl FnOnce(usize)) {
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            tell(self.tasks.len());
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_all_but_not_for_ever() {
        let slots = Arc::new(Semaphore::new(3));
        let slot = || slots.clone().try_acquire_owned().unwrap();
        let connections = Connections::default();
        connections.spawn(slot(), tokio::time::sleep(CLOSE_GRACE / 2));
        connections.end(CLOSE_GRACE, |left| panic!("{left} were cut off")).await;
        assert_eq!(slots.available_permits(), 3);

        let connections = Connections::default();
        connections.spawn(slot(), tokio::time::sleep(CLOSE_GRACE / 2));
        connections.spawn(slot(), std::future::pending());
        connections.spawn_whole(slot(), |cut| async move { cut.cancelled().await });
        let (before, mut cut_off) = (Instant::now(), 0);
        connections.end(CLOSE_GRACE, |left| cut_off = left).await;
        assert_eq!((cut_off, slots.available_permits()), (2, 3));
        assert!(before.elapsed() >= CLOSE_GRACE);
    }
}
