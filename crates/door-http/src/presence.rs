//! Whether a connection's client is still there. With HTTP/1 the only sign is that the client has
//! closed its sending side, which is ambiguous: it may be gone, or it may have sent its request and
//! be waiting for the answer. So a request in progress continues for a while, and only requests
//! that wait for an event end at once. With HTTP/2 a client can also withdraw a single request,
//! which is then dropped like those of a connection that has ended.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use windlass_net::{Guest, OnEnd};

/// How long a request in progress continues after its client has stopped sending.
const AFTER_END_MAX: Duration = Duration::from_secs(5);

/// Shared by a connection's stream and its requests.
#[derive(Clone, Default)]
pub(crate) struct Presence(Arc<ClientState>);

#[derive(Default)]
struct ClientState {
    /// Of the client, if it is known.
    address: Option<IpAddr>,
    /// Absent only in tests.
    guest: Option<Arc<Guest>>,
    /// The number of requests in progress; with HTTP/1 at most one.
    under_way: AtomicUsize,
    ended: CancellationToken,
}

impl Presence {
    pub(crate) fn of(address: Option<IpAddr>, guest: Arc<Guest>) -> Presence {
        let guest = Some(guest);
        Presence(Arc::new(ClientState { address, guest, ..ClientState::default() }))
    }

    /// The client may come in: its connection is not cut off to make room for others.
    pub(crate) fn admit(&self) {
        if let Some(guest) = &self.0.guest {
            guest.admit();
        }
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Returns when the client has stopped sending.
    pub(crate) async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// Marks a request as in progress until the returned guard is dropped.
    pub(crate) fn under_way(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self.clone())
    }

    /// Notifies the requests of a connection when the client has stopped sending.
    pub(crate) fn watch(&self) -> Watch {
        Watch { presence: self.clone(), after_end: None }
    }

    /// The client has stopped sending. Returns true while a request is in progress.
    fn set_ended(&self) -> bool {
        self.0.ended.cancel();
        self.0.under_way.load(Ordering::SeqCst) > 0
    }
}

pub(crate) struct UnderWay(Presence);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Passes the end of the client's data on to the server when no request is in progress, or when it
/// takes too long.
pub(crate) struct Watch {
    presence: Presence,
    /// Started when the client stopped sending during a request.
    after_end: Option<Pin<Box<Sleep>>>,
}

impl OnEnd for Watch {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.presence.set_ended() {
            return Poll::Ready(());
        }
        let after = || Box::pin(tokio::time::sleep(AFTER_END_MAX));
        self.after_end.get_or_insert_with(after).as_mut().poll(cx)
    }
}

/// A request without a connection (in tests) has a client that stays.
impl<S: Send + Sync> FromRequestParts<S> for Presence {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Presence, Self::Rejection> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, duplex};
    use windlass_net::Stream;

    #[tokio::test(start_paused = true)]
    async fn the_end_is_kept_back_while_a_request_is_under_way_but_not_for_ever() {
        let presence = Presence::default();
        let (ours, theirs) = duplex(8);
        drop(theirs);
        let mut stream = Stream::with_on_end(ours, Duration::from_secs(3), presence.watch());
        let under_way = presence.under_way();
        let mut byte = [0];
        let early = tokio::time::timeout(AFTER_END_MAX / 2, stream.read(&mut byte)).await;
        assert!(early.is_err(), "the request would be cut off");
        presence.ended().await;
        assert_eq!(stream.read(&mut byte).await.unwrap(), 0);
        drop(under_way);
        assert_eq!(stream.read(&mut byte).await.unwrap(), 0);
    }
}
