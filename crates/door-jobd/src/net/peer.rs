//! The other side of a connection: it can be asked, pinged and disconnected, and its requests go to
//! a handler.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use windlass_core::sync::lock;

use super::outbound::{Outbound, QueueFull};
use crate::log::Log;
use crate::password::Password;
use crate::wire::{self, Json, RequestNo, RequestNumbers};

/// Maximum number of our unanswered requests to one peer.
pub(super) const ASKS_MAX: usize = 10_000;
/// A peer that has been silent for this many pings counts as gone.
const SILENT_PINGS_MAX: u32 = 2;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Answers the requests of peers.
#[async_trait]
pub(crate) trait Handler: Send + Sync + 'static {
    /// Several requests of one peer may be in progress. The peer gets an error's text unchanged.
    async fn handle(&self, peer: &Peer, kind: &str, data: Json) -> Result<Json, String>;

    /// Called after a request of this kind was answered: what is sent now comes after the answer.
    fn answered(&self, _peer: &Peer, _kind: &str) {}

    /// The peer takes no more requests. Called once.
    fn closed(&self, _peer: &Peer) {}
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    #[error("Socket is closed")]
    Closed,
    #[error("no answer within {} seconds", .0.as_secs_f32())]
    Late(Duration),
    #[error("too many requests wait for an answer")]
    TooMany,
    /// The peer's own error text.
    #[error("{0}")]
    Refused(String),
}

/// A cheap handle.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Inner>);

struct Inner {
    id: u64,
    addr: SocketAddr,
    log: Log,
    outbound: Outbound,
    asks: Mutex<PendingRequests>,
    /// Counts reads that returned bytes.
    reads: watch::Sender<u64>,
    /// The peer takes no more requests.
    ended: CancellationToken,
    /// The connection ends at once.
    cut: CancellationToken,
}

struct PendingRequests {
    numbers: RequestNumbers,
    waiting: HashMap<u32, oneshot::Sender<Result<Json, AskError>>>,
    /// Sent with the first request.
    password: Option<Password>,
}

impl Peer {
    /// Its connection ends at once when `cut` is cancelled.
    pub(super) fn new(
        addr: SocketAddr,
        password: Option<Password>,
        cut: CancellationToken,
        log: &Log,
    ) -> Peer {
        let asks =
            PendingRequests { numbers: RequestNumbers::new(), waiting: HashMap::new(), password };
        Peer(Arc::new(Inner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            addr,
            log: log.named(&format!("<Connection {addr}>")),
            outbound: Outbound::default(),
            asks: Mutex::new(asks),
            reads: watch::Sender::new(0),
            ended: CancellationToken::new(),
            cut,
        }))
    }

    /// Different for all peers of this process.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.addr
    }

    /// Sends a request; the caller may await the answer.
    pub(crate) fn ask(&self, kind: &str, data: Option<Json>) -> PendingAnswer {
        let (sender, receiver) = oneshot::channel();
        let mut answer = PendingAnswer { peer: self.clone(), no: None, receiver };
        let mut asks = self.asks();
        let refusal = if self.0.ended.is_cancelled() {
            Some(AskError::Closed)
        } else if asks.waiting.len() >= ASKS_MAX {
            Some(AskError::TooMany)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let _ = sender.send(Err(refusal));
            return answer;
        }
        let mut no = asks.numbers.take();
        // Terminates, because there are more numbers than waiting requests.
        while asks.waiting.contains_key(&no) {
            no = asks.numbers.take();
        }
        asks.waiting.insert(no, sender);
        let message = wire::request(no, kind, data.as_ref(), asks.password.take().as_ref());
        drop(asks);
        let data = data.unwrap_or_default();
        self.0.log.debug(format_args!("request {no} to the peer: {kind} {data}"));
        self.check(self.0.outbound.push_request(message));
        answer.no = Some(no);
        answer
    }

    /// From now on our requests wait until `release_requests`. Answers and pings do not.
    pub(crate) fn hold_requests(&self) {
        self.0.outbound.hold();
    }

    /// Sends the held requests as soon as the peer sends anything, at the latest after this pause.
    pub(crate) fn release_requests(&self, pause: Duration) {
        let peer = self.clone();
        let mut reads = self.0.reads.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                _ = reads.changed() => {}
                () = tokio::time::sleep(pause) => {}
                () = peer.closed() => {}
            }
            peer.check(peer.0.outbound.release());
        });
    }

    /// Pings until the connection ends, and closes it if the peer stays silent.
    pub(crate) async fn ping_every(&self, interval: Duration) {
        let (mut reads, mut silent) = (self.reads(), 0);
        loop {
            if silent >= SILENT_PINGS_MAX {
                self.0.log.warn("the peer does not answer pings");
                return self.close();
            }
            self.send(wire::PING.to_vec());
            tokio::select! {
                () = self.closed() => return,
                () = tokio::time::sleep(interval) => {}
            }
            let now = self.reads();
            silent = if now == reads { silent + 1 } else { 0 };
            reads = now;
        }
    }

    /// Ends the connection at once.
    pub(crate) fn close(&self) {
        self.0.cut.cancel();
    }

    /// Waits until the peer takes no more requests. Answers to its own requests may still be due.
    pub(crate) async fn closed(&self) {
        self.0.ended.cancelled().await;
    }

    /// Waits for `close`.
    pub(super) async fn cut(&self) {
        self.0.cut.cancelled().await;
    }

    pub(super) fn is_cut(&self) -> bool {
        self.0.cut.is_cancelled()
    }

    pub(super) fn log(&self) -> &Log {
        &self.0.log
    }

    pub(super) fn outbound(&self) -> &Outbound {
        &self.0.outbound
    }

    pub(super) fn send(&self, message: Vec<u8>) {
        self.check(self.0.outbound.push(message));
    }

    fn check(&self, pushed: Result<(), QueueFull>) {
        if pushed.is_err() {
            self.0.log.warn("closing a connection whose peer does not read");
            self.close();
        }
    }

    /// Something came.
    pub(super) fn count_read(&self) {
        self.0.reads.send_modify(|reads| *reads += 1);
    }

    fn reads(&self) -> u64 {
        *self.0.reads.borrow()
    }

    /// Whether a request of ours waits for its answer.
    pub(super) fn is_asked(&self) -> bool {
        !self.asks().waiting.is_empty()
    }

    pub(super) fn answered(&self, no: RequestNo, result: Result<Json, String>) {
        let waiting = u32::try_from(no).ok().and_then(|no| self.asks().waiting.remove(&no));
        match waiting {
            Some(sender) => {
                // The caller may have stopped waiting.
                let _ = sender.send(result.map_err(AskError::Refused));
            }
            None => self.0.log.warn(format_args!("received an unexpected response: {no}")),
        }
    }

    /// Fails all unanswered requests. True the first time.
    pub(super) fn end_asks(&self) -> bool {
        let mut asks = self.asks();
        let first = !self.0.ended.is_cancelled();
        self.0.ended.cancel();
        // Dropping the senders tells the waiting callers that the connection is closed.
        asks.waiting.clear();
        first
    }

    fn asks(&self) -> MutexGuard<'_, PendingRequests> {
        lock(&self.0.asks)
    }
}

/// The answer to a request of ours.
pub(crate) struct PendingAnswer {
    peer: Peer,
    /// `None` if it was not sent.
    no: Option<u32>,
    receiver: oneshot::Receiver<Result<Json, AskError>>,
}

impl PendingAnswer {
    /// Waits for it, with a time limit.
    pub(crate) async fn within(self, limit: Duration) -> Result<Json, AskError> {
        tokio::time::timeout(limit, self).await.unwrap_or(Err(AskError::Late(limit)))
    }
}

impl Future for PendingAnswer {
    type Output = Result<Json, AskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let received = Pin::new(&mut self.receiver).poll(context);
        received.map(|answer| answer.unwrap_or(Err(AskError::Closed)))
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if let Some(no) = self.no {
            self.peer.asks().waiting.remove(&no);
        }
    }
}
