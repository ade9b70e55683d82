//! Whether a connection's client is still there. HTTP/1 tells it by the end of what the client
//! sends, and that end has two meanings: "I am gone", and "I have said it all, do it". So a
//! request that is under way goes on for a while, and only those that wait for something hear of it
//! at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio_util::sync::CancellationToken;

/// How long a request under way goes on after its client has stopped sending.
pub(crate) const AFTER_END_MAX: Duration = Duration::from_secs(5);

/// Shared by a connection's stream and its requests.
#[derive(Clone, Default)]
pub(crate) struct Presence(Arc<Shared>);

#[derive(Default)]
struct Shared {
    under_way: AtomicBool,
    ended: CancellationToken,
}

impl Presence {
    /// Returns when the client sends no more.
    pub(crate) async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// A request is under way until the answer is dropped.
    pub(crate) fn under_way(&self) -> UnderWay {
        self.0.under_way.store(true, Ordering::SeqCst);
        UnderWay(self.clone())
    }

    /// The client sends no more. True while a request is under way.
    pub(crate) fn set_ended(&self) -> bool {
        self.0.ended.cancel();
        self.0.under_way.load(Ordering::SeqCst)
    }
}

pub(crate) struct UnderWay(Presence);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.store(false, Ordering::SeqCst);
    }
}

/// A request that came through no connection of ours has a client that stays.
impl<S: Send + Sync> FromRequestParts<S> for Presence {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Presence, Self::Rejection> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
