//! The reading side of a connection: bytes come in, requests come out, within bounds of size and
//! time. A connection that has nothing to say costs no buffer.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_net::{Memory, Share};

use crate::wire::{Limits, Parser, Request, Response, Step};

/// The least that is read at once.
const READ_BYTES_MIN: usize = 4 * 1024;
/// The most that a buffer grows at once.
const READ_BYTES_MAX: usize = 256 * 1024;
/// While a command runs, no more than this is read of what comes after it.
const AHEAD_BYTES_MAX: usize = 16 * 1024;
/// Requests up to this size need not ask for memory.
const FREE_BYTES: usize = 16 * 1024;
/// A buffer may have grown to twice its content, and the request in it is a copy.
const MEMORY_PER_BYTE: usize = 3;

/// How long clients may be silent.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    /// Between two requests.
    pub idle_max: Duration,
    /// Between two pieces of one request, and of a reply that is not taken.
    pub silence_max: Duration,
    /// From the first byte of a request to its last.
    pub request_max: Duration,
}

pub(crate) enum Next {
    Request(Request),
    /// The last reply on this connection.
    Refused(Response),
    End,
}

pub(crate) struct Inbound {
    buffer: BytesMut,
    parser: Parser,
    /// The client sends no more.
    ended: bool,
    patience: Patience,
    share: Share,
}

impl Inbound {
    pub(crate) fn new(limits: Limits, patience: Patience, memory: &Memory) -> Inbound {
        let (buffer, parser) = (BytesMut::new(), Parser::new(limits));
        Inbound { buffer, parser, ended: false, patience, share: memory.share() }
    }

    /// Whether the client has said that it sends no more; it may still read.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// The next request, unless `closing` is cancelled before it has come.
    pub(crate) async fn next(&mut self, stream: &TcpStream, closing: &CancellationToken) -> Next {
        let mut give_up_at = None;
        while !closing.is_cancelled() {
            let (used, step) = self.parser.parse(&self.buffer);
            self.buffer.advance(used);
            match step {
                Step::Request(request) => {
                    self.free();
                    return Next::Request(request);
                }
                Step::Bad(bad) => {
                    let reply = Response::error(400, bad.to_string());
                    return Next::Refused(reply.with_header("Connection", "close"));
                }
                Step::Incomplete if self.ended => return Next::End,
                Step::Incomplete => {}
            }
            let until = self.until(&mut give_up_at);
            let read = tokio::select! {
                () = closing.cancelled() => return Next::End,
                read = tokio::time::timeout_at(until, self.read(stream)) => read,
            };
            match read {
                Ok(Ok(())) => {}
                Ok(Err(refused)) => return Next::Refused(refused),
                Err(_) => {
                    tracing::debug!("closing a connection whose client is silent");
                    return Next::End;
                }
            }
        }
        Next::End
    }

    /// Reads what comes while a command runs. Returns when the client sends no more.
    pub(crate) async fn watch(&mut self, stream: &TcpStream) {
        while !self.ended {
            if self.buffer.len() >= AHEAD_BYTES_MAX {
                std::future::pending::<()>().await;
            }
            // So little needs no memory of others.
            let _ = self.read(stream).await;
        }
    }

    /// When the client has been silent for too long.
    fn until(&mut self, give_up_at: &mut Option<Instant>) -> Instant {
        let now = Instant::now();
        if self.buffer.is_empty() && !self.parser.in_body() {
            self.free();
            self.share.free();
            return now + self.patience.idle_max;
        }
        let give_up_at = give_up_at.get_or_insert(now + self.patience.request_max);
        (now + self.patience.silence_max).min(*give_up_at)
    }

    fn free(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Waits for bytes and takes them. Loses none when it is dropped before its end.
    async fn read(&mut self, stream: &TcpStream) -> Result<(), Response> {
        if stream.readable().await.is_err() {
            self.ended = true;
            return Ok(());
        }
        self.grow()?;
        match stream.try_read_buf(&mut self.buffer) {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.free(),
            Err(error) => {
                tracing::debug!(%error, "a connection ended early");
                self.ended = true;
            }
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<(), Response> {
        let length = self.buffer.len();
        let room = length.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        if length > FREE_BYTES && !self.share.grow((length + room) * MEMORY_PER_BYTE) {
            let busy = Response::error(503, "Too many large requests at once");
            return Err(busy.with_header("Connection", "close"));
        }
        self.buffer.reserve(room);
        Ok(())
    }
}
