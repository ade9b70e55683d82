//! Ending a running task from outside.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::outcome::StopReason;

/// Ends the task on request. If it is dropped, the task simply continues.
#[derive(Debug)]
pub(crate) struct EndHandle {
    why: Arc<watch::Sender<Option<StopReason>>>,
    give_up: CancellationToken,
}

/// The task's side of the handle.
#[derive(Debug, Clone)]
pub(crate) struct EndSignal {
    why: watch::Receiver<Option<StopReason>>,
    given_up: CancellationToken,
}

/// A connected pair.
pub(crate) fn end_signal() -> (EndHandle, EndSignal) {
    let (why, asked) = watch::channel(None);
    let give_up = CancellationToken::new();
    let given_up = give_up.clone();
    (EndHandle { why: Arc::new(why), give_up }, EndSignal { why: asked, given_up })
}

impl EndHandle {
    /// Kills the program with everything that it started. The first reason counts.
    pub(crate) fn end(&self, why: StopReason) {
        self.why.send_if_modified(|asked| {
            let is_first = asked.is_none();
            asked.get_or_insert(why);
            is_first
        });
    }

    /// Stops waiting for the database; what could not be written is lost.
    pub(crate) fn give_up(&self) {
        self.give_up.cancel();
    }
}

impl EndSignal {
    /// Waits for a request to end.
    pub(super) async fn requested(&mut self) -> StopReason {
        match self.why.wait_for(Option::is_some).await.map(|why| *why) {
            Ok(Some(why)) => why,
            // No handle is left to request it.
            Ok(None) | Err(_) => pending().await,
        }
    }

    pub(super) fn was_requested(&self) -> Option<StopReason> {
        *self.why.borrow()
    }

    pub(crate) async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stands() {
        let (handle, mut end_signal) = end_signal();
        assert_eq!(end_signal.was_requested(), None);
        handle.end(StopReason::Cancelled);
        handle.end(StopReason::Stopped);
        assert_eq!(
            (end_signal.requested().await, end_signal.was_requested()),
            (StopReason::Cancelled, Some(StopReason::Cancelled))
        );
        handle.give_up();
        end_signal.given_up().await;
    }
}
