//! Limits concurrent answers with tasks. A task, and each batch from the database, may have 16 MB,
//! so only a few such answers are written at the same time.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::dci::error::Failure;

/// Maximum number of concurrent answers.
const SLOTS: usize = 8;
/// How long a request waits for a slot.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct AnswerSlots(Arc<Semaphore>);

impl Default for AnswerSlots {
    fn default() -> AnswerSlots {
        AnswerSlots(Arc::new(Semaphore::new(SLOTS)))
    }
}

impl AnswerSlots {
    pub(crate) async fn take(&self) -> Result<AnswerSlot, Failure> {
        match timeout(WAIT_MAX, self.0.clone().acquire_owned()).await {
            Ok(Ok(slot)) => Ok(AnswerSlot(Arc::new(slot))),
            Ok(Err(_)) | Err(_) => {
                let message = "too many requests for tasks at the same time; try again in a moment";
                Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
            }
        }
    }
}

/// Occupied until the complete answer has been sent.
pub(crate) struct AnswerSlot(Arc<OwnedSemaphorePermit>);

impl AnswerSlot {
    /// Bytes that occupy the slot until they are sent.
    pub(crate) fn keep(&self, text: String) -> Bytes {
        Bytes::from_owner(SlotBytes(text, self.0.clone()))
    }
}

struct SlotBytes(
    String,
    #[expect(dead_code, reason = "held until it is dropped")] Arc<OwnedSemaphorePermit>,
);

impl AsRef<[u8]> for SlotBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_free_again_when_everything_is_sent() {
        let slots = AnswerSlots::default();
        let mut others = Vec::new();
        for _ in 1..SLOTS {
            others.push(slots.take().await.ok().unwrap());
        }
        let last = slots.take().await.ok().unwrap();
        let sent = last.keep("text".into());
        assert_eq!(slots.take().await.err().unwrap().status.as_u16(), 503);
        drop(last);
        let part = sent.slice(..1);
        drop(sent);
        assert!(slots.take().await.is_err(), "a part of it is still to be sent");
        drop(part);
        assert!(slots.take().await.is_ok());
    }
}
