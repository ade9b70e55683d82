//! What a connection is doing: requests in progress, and pieces of answers that the client has not
//! read yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

/// Of one connection.
#[derive(Default)]
pub(super) struct Activity {
    state: Mutex<State>,
    /// Notified when it becomes idle, or no longer is.
    changed: Notify,
}

struct State {
    requests: usize,
    /// When `requests` was last 0.
    idle_since: Instant,
    next_piece: u64,
    /// When each piece was handed over, by age.
    unread: BTreeMap<u64, Instant>,
}

impl Default for State {
    fn default() -> State {
        let idle_since = Instant::now();
        State { requests: 0, idle_since, next_piece: 0, unread: BTreeMap::new() }
    }
}

impl Activity {
    /// A request is in progress until all of its answer has been read.
    pub(super) fn begin(self: &Arc<Self>, place: OwnedSemaphorePermit) -> Arc<InProgress> {
        let mut state = self.lock();
        state.requests += 1;
        if state.requests == 1 {
            self.changed.notify_one();
        }
        Arc::new(InProgress { activity: self.clone(), _place: place })
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// `None` while requests are in progress.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        (state.requests == 0).then_some(state.idle_since)
    }

    /// How long the oldest piece has been waiting for the client.
    pub(super) fn unread_since(&self) -> Option<Instant> {
        self.lock().unread.first_key_value().map(|(_, since)| *since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in between can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request whose answer has not been read completely.
pub(super) struct InProgress {
    activity: Arc<Activity>,
    _place: OwnedSemaphorePermit,
}

impl InProgress {
    /// A piece of the answer, which counts as unread until it has been sent.
    pub(super) fn piece(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        let mut state = self.activity.lock();
        let number = state.next_piece;
        state.next_piece += 1;
        state.unread.insert(number, Instant::now());
        drop(state);
        Bytes::from_owner(Piece { bytes, number, of: self.clone() })
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.requests -= 1;
        if state.requests == 0 {
            state.idle_since = Instant::now();
            self.activity.changed.notify_one();
        }
    }
}

/// Dropped when it has been written to the connection, or will not be.
struct Piece {
    bytes: Bytes,
    number: u64,
    of: Arc<InProgress>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.of.activity.lock().unread.remove(&self.number);
    }
}
