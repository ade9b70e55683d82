//! Work that continues if its caller disconnects: a dropped request leaves no change half-done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use windlass_core::sync::panic_text;

use crate::error::Error;

/// Memory for work that can outlive its caller, which the limit on connections does not cover. When
/// it is used up, new callers wait.
const ROOM_BYTES: usize = 256 * 1024 * 1024;
/// What any such work takes beside the data that its caller counts: the work itself, and the rest
/// of a small body, of which payloads may be slices.
const WORK_BYTES: usize = 64 * 1024;

/// Memory for work that is carried to its end.
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Room {
        Room(Arc::new(Semaphore::new(ROOM_BYTES)))
    }
}

impl Room {
    /// Waits for room for work with this much data. The work holds it until its end.
    pub(crate) async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = bytes.saturating_add(WORK_BYTES).min(ROOM_BYTES);
        self.0.clone().acquire_many_owned(bytes as u32).await.ok()
    }
}

/// Carries work that has begun to its end. The caller's own task does it; if the caller is dropped
/// in between, a new task does the rest.
pub(crate) fn to_its_end<T: 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> ToItsEnd<T> {
    ToItsEnd { rest: Some(Box::pin(work)) }
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

pub(crate) struct ToItsEnd<T: 'static> {
    /// `None` after the end, also if that was a panic.
    rest: Option<Work<T>>,
}

impl<T> Future for ToItsEnd<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut work = self.rest.take().expect("polled after its end");
        // A panic is this caller's error, not the end of its connection.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => {
                self.rest = Some(work);
                Poll::Pending
            }
            Ok(ready) => ready,
            Err(panic) => {
                Poll::Ready(Err(Error::Internal(format!("panicked: {}", panic_text(&*panic)))))
            }
        }
    }
}

impl<T> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        // Without a runtime the process ends, as if it had been killed here.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move { drop(rest.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_continues_when_its_caller_is_dropped() {
        let (go, (done, seen)) = (Arc::new(Semaphore::new(0)), oneshot::channel());
        let gate = go.clone();
        let mut work = Box::pin(to_its_end(async move {
            let _passed = gate.acquire().await;
            done.send(7).map_err(|_| Error::Internal("nobody looks".into()))
        }));
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        go.add_permits(1);
        assert_eq!(seen.await, Ok(7));
    }

    #[test]
    fn work_is_bounded_in_number_and_in_bytes() {
        for (bytes, works) in [(0, 4096), (64 * 1024 * 1024, 3), (usize::MAX, 1)] {
            let room = Room::default();
            let take = || room.take(bytes).now_or_never();
            let mut held: Vec<_> = std::iter::from_fn(take).take(works + 1).collect();
            assert_eq!(held.len(), works, "{bytes}");
            held.pop();
            assert!(take().is_some(), "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_caller() {
        let answer = to_its_end(async { panic!("a defect") as Result<(), Error> }).await;
        assert!(matches!(answer, Err(Error::Internal(text)) if text == "panicked: a defect"));
    }
}
