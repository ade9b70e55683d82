//! A limit for concurrent answers with tasks. One task may have 16 MB, and so may what the database
//! sends at once, so only a few such answers are written at the same time.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::dci::error::Failure;

/// Answers with tasks that are written at once.
const PLACES: usize = 8;
/// How long another one waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Places {
        Places(Arc::new(Semaphore::new(PLACES)))
    }
}

impl Places {
    pub(crate) async fn take(&self) -> Result<Place, Failure> {
        match timeout(WAIT_MAX, self.0.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(Place(Arc::new(place))),
            Ok(Err(_)) | Err(_) => {
                let message = "too many requests for tasks at the same time; try again in a moment";
                Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
            }
        }
    }
}

/// Taken until the answer is written and all that was written is sent.
pub(crate) struct Place(Arc<OwnedSemaphorePermit>);

impl Place {
    /// Bytes that keep the place until they are sent.
    pub(crate) fn keep(&self, text: String) -> Bytes {
        Bytes::from_owner(Kept(text, self.0.clone()))
    }
}

struct Kept(
    String,
    #[expect(dead_code, reason = "held until it is dropped")] Arc<OwnedSemaphorePermit>,
);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_place_comes_back_when_all_is_sent() {
        let places = Places::default();
        let mut others = Vec::new();
        for _ in 1..PLACES {
            others.push(places.take().await.ok().unwrap());
        }
        let last = places.take().await.ok().unwrap();
        let sent = last.keep("text".into());
        assert_eq!(places.take().await.err().unwrap().status.as_u16(), 503);
        drop(last);
        let part = sent.slice(..1);
        drop(sent);
        assert!(places.take().await.is_err(), "a part of it is still to be sent");
        drop(part);
        assert!(places.take().await.is_ok());
    }
}
