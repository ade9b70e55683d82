//! Ending a running task from outside.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::outcome::Why;

/// Ends the task on request. When it is dropped, the task simply runs on.
#[derive(Debug)]
pub(crate) struct EndHandle {
    why: Arc<watch::Sender<Option<Why>>>,
    give_up: CancellationToken,
}

/// In the hands of the task itself.
#[derive(Debug, Clone)]
pub(crate) struct Ender {
    why: watch::Receiver<Option<Why>>,
    given_up: CancellationToken,
}

/// Both ends.
pub(crate) fn ender() -> (EndHandle, Ender) {
    let (why, asked) = watch::channel(None);
    let give_up = CancellationToken::new();
    let given_up = give_up.clone();
    (EndHandle { why: Arc::new(why), give_up }, Ender { why: asked, given_up })
}

impl EndHandle {
    /// Ends the program with all that it started. The first reason stands.
    pub(crate) fn end(&self, why: Why) {
        self.why.send_if_modified(|asked| {
            let is_first = asked.is_none();
            asked.get_or_insert(why);
            is_first
        });
    }

    /// The database is no longer waited for; what could not be written is lost.
    pub(crate) fn give_up(&self) {
        self.give_up.cancel();
    }
}

impl Ender {
    /// Waits for a request to end.
    pub(super) async fn asked(&mut self) -> Why {
        match self.why.wait_for(Option::is_some).await.map(|why| *why) {
            Ok(Some(why)) => why,
            // No handle is left that could ask.
            Ok(None) | Err(_) => pending().await,
        }
    }

    pub(super) fn was_asked(&self) -> Option<Why> {
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
        let (handle, mut ender) = ender();
        assert_eq!(ender.was_asked(), None);
        handle.end(Why::Cancelled);
        handle.end(Why::Stopped);
        assert_eq!(
            (ender.asked().await, ender.was_asked()),
            (Why::Cancelled, Some(Why::Cancelled))
        );
        handle.give_up();
        ender.given_up().await;
    }
}
