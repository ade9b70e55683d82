//! One connection, from start to end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use windlass_net::{Memory, Share, tcp};

use super::peer::{Handler, Peer};
use super::tries::{Tries, Try};
use crate::log::Log;
use crate::password::Password;
use crate::wire::{self, ANSWER_BYTES_MAX, MESSAGE_BYTES_MAX, Message, Request, Splitter};

/// Maximum number of requests in progress per peer; more are refused.
pub(super) const REQUESTS_MAX: usize = 4096;
/// Minimum size of one read.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Maximum growth of a buffer in one step.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// Memory for incomplete messages of all connections.
pub(super) const MEMORY_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Shorter messages do not count.
pub(super) const FREE_BYTES: usize = 64 * 1024;
/// After the last answer, at most this many bytes are discarded.
const LINGER_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Opens a connection. Our first request carries the password; the peer needs none.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    password: Option<Password>,
    handler: Arc<dyn Handler>,
    log: &Log,
) -> io::Result<Peer> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let peer = Peer::new(stream.peer_addr()?, password, CancellationToken::new(), log);
    peer.log().debug("connection established");
    let (closing, memory) = (CancellationToken::new(), Memory::new(MEMORY_BYTES_MAX));
    let tries = Tries::default();
    let rules = ConnectionRules { password: None, tries, closing, memory };
    tokio::spawn(converse(stream, peer.clone(), handler, rules));
    Ok(peer)
}

/// Limits and access of a connection.
pub(super) struct ConnectionRules {
    /// The password that the first request must carry; `None` if the peer has full access.
    pub password: Option<Password>,
    /// Wrong passwords of all connections.
    pub tries: Tries,
    /// When cancelled, nothing more is read, and requests in progress are answered.
    pub closing: CancellationToken,
    pub memory: Memory,
}

/// Serves until either side closes.
pub(super) async fn converse(
    mut stream: TcpStream,
    peer: Peer,
    handler: Arc<dyn Handler>,
    rules: ConnectionRules,
) {
    let ConnectionRules { password, tries, closing, memory } = rules;
    let mut reader = Reader {
        peer: peer.clone(),
        handler: handler.clone(),
        password,
        tries,
        splitter: Splitter::default(),
        share: memory.share(),
        under_way: TaskTracker::new(),
    };
    let mut end = CloseWhen::Now;
    let reading = async {
        end = tokio::select! {
            end = reader.read_all(&stream) => end,
            () = closing.cancelled() => CloseWhen::Answered,
        };
        if closing.is_cancelled() && reader.under_way.is_empty() && peer.outbound().is_empty() {
            // Nothing is in progress, so there is nothing to wait for.
            end = CloseWhen::Now;
        }
        if peer.end_asks() {
            handler.closed(&peer);
        }
        if end == CloseWhen::Answered {
            reader.under_way.close();
            reader.under_way.wait().await;
        }
        peer.outbound().finish();
    };
    let writing = async {
        if let Err(error) = peer.outbound().write_all(&stream).await {
            peer.log().warn(format_args!("socket error: {error}"));
            peer.close();
        }
    };
    let cut = tokio::select! {
        () = peer.cut() => true,
        _ = async { tokio::join!(reading, writing) } => false,
    };
    if peer.end_asks() {
        handler.closed(&peer);
    }
    if !cut && end != CloseWhen::Now {
        tcp::close(&mut stream, LINGER_BYTES_MAX).await;
    }
    peer.outbound().finish();
    peer.close();
    peer.log().debug("socket closed");
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseWhen {
    /// When all requests in progress have been answered.
    Answered,
    /// After the messages already queued.
    QueueWritten,
    Now,
}

struct Reader {
    peer: Peer,
    handler: Arc<dyn Handler>,
    /// `None` if the peer has full access.
    password: Option<Password>,
    tries: Tries,
    splitter: Splitter,
    share: Share,
    under_way: TaskTracker,
}

impl Reader {
    async fn read_all(&mut self, stream: &TcpStream) -> CloseWhen {
        loop {
            match self.read(stream).await {
                Ok(0) => return CloseWhen::Answered,
                Ok(_) => self.peer.count_read(),
                Err(error) => {
                    self.peer.log().warn(format_args!("socket error: {error}"));
                    self.peer.close();
                    return CloseWhen::Now;
                }
            }
            if let Err(end) = self.take_messages().await {
                return end;
            }
        }
    }

    async fn read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        loop {
            stream.readable().await?;
            let buffer = self.splitter.buffer();
            let room = buffer.len().clamp(READ_BYTES_MIN, READ_BYTES_MAX);
            buffer.reserve(room);
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    async fn take_messages(&mut self) -> Result<(), CloseWhen> {
        loop {
            if self.peer.is_cut() {
                return Err(CloseWhen::Now);
            }
            let bytes_max = if self.peer.is_asked() { ANSWER_BYTES_MAX } else { MESSAGE_BYTES_MAX };
            match self.splitter.next(bytes_max) {
                Ok(Some(message)) => self.take(&message).await?,
                Ok(None) if self.keep() => return Ok(()),
                Ok(None) => return Err(self.leave("too many long messages at once")),
                Err(wire::TooLong) => return Err(self.leave("message is too long")),
            }
        }
    }

    /// Whether there is memory for an incomplete message.
    fn keep(&mut self) -> bool {
        let bytes = self.splitter.buffer().len();
        if bytes < FREE_BYTES {
            self.share.free();
            return true;
        }
        self.share.grow(bytes)
    }

    async fn take(&mut self, message: &[u8]) -> Result<(), CloseWhen> {
        match wire::parse(message) {
            Message::Request(request) => self.take_request(request).await?,
            Message::Response(response) => self.peer.answered(response.no, response.result),
            Message::Ping => self.peer.send(wire::PONG.to_vec()),
            Message::Pong => {}
            Message::Malformed(error) => {
                self.peer.log().error(&error);
                self.refuse(0, &error);
            }
            // The content is not logged: it may contain a password.
            Message::Broken => self.peer.log().error("failed to parse data as JSON"),
        }
        Ok(())
    }

    async fn take_request(&mut self, request: Request) -> Result<(), CloseWhen> {
        if let Some(password) = &self.password {
            let given = request.password.as_ref().and_then(Password::reveal);
            let is_right = || given.is_some_and(|given| password.matches(given));
            let error = match self.tries.compare(self.peer.addr().ip(), is_right).await {
                Try::Right => None,
                Try::Wrong => Some("invalid password"),
                Try::Refused => Some("too many wrong passwords, try again later"),
            };
            if let Some(error) = error {
                self.peer.log().warn(format_args!("closing a connection: {error}"));
                self.refuse(request.no, error);
                return Err(CloseWhen::QueueWritten);
            }
            self.password = None;
        }
        if self.under_way.len() >= REQUESTS_MAX {
            self.refuse(request.no, "too many requests at once");
            return Ok(());
        }
        let Request { no, kind, data, .. } = request;
        self.peer.log().debug(format_args!("request {no}: {kind} {data}"));
        let (peer, handler) = (self.peer.clone(), self.handler.clone());
        let mut answering = Box::pin(async move {
            let result = handler.handle(&peer, &kind, data).await;
            peer.send(wire::response(no, &result));
            handler.answered(&peer, &kind);
        });
        // Most requests are answered at once; only waiting ones need their own task.
        if poll_once(answering.as_mut()).await.is_pending() {
            self.under_way.spawn(answering);
        }
        Ok(())
    }

    /// The last message.
    fn leave(&self, error: &str) -> CloseWhen {
        self.peer.log().error(format_args!("closing a connection: {error}"));
        self.refuse(0, error);
        CloseWhen::QueueWritten
    }

    fn refuse(&self, no: wire::RequestNo, error: &str) {
        self.peer.send(wire::response(no, &Err(error.to_owned())));
    }
}

async fn poll_once(mut future: Pin<&mut (impl Future<Output = ()> + Send)>) -> Poll<()> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
