//! Room for requests that wait for minutes. They may not take every connection: some stay for
//! short requests, such as adds and health checks.

use std::sync::Arc;

use axum::http::{HeaderValue, header};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::RETRY_AFTER_S;

/// One of this many connections, and at least one, is kept for requests that do not wait.
const SHORT_PART: usize = 4;

pub(crate) struct Room(Arc<Semaphore>);

impl Room {
    pub(crate) fn new(connections_max: usize) -> Room {
        let waiting_max = connections_max - connections_max.div_ceil(SHORT_PART);
        Room(Arc::new(Semaphore::new(waiting_max.min(Semaphore::MAX_PERMITS))))
    }

    /// A place to wait, until it is dropped. A request that gets none is answered as if it had
    /// waited, `and_leave`.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

/// An idle connection would take the place of another client, so it is closed after the answer
/// (over HTTP/2 only the request ends). The answer asks the client to retry later.
pub(crate) fn and_leave(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_connections_is_kept() {
        for (connections, waiting) in [(1, 0), (2, 1), (4, 3), (8, 6), (10_000, 7500)] {
            let room = Room::new(connections);
            let places: Vec<_> = std::iter::from_fn(|| room.place()).collect();
            assert_eq!(places.len(), waiting, "{connections}");
            drop(places);
            assert_eq!(room.place().is_some(), waiting > 0, "a place that was left is free");
        }
    }
}
