//! The read side of a connection: turns bytes into requests, within bounds of size and time. An
//! idle connection has no buffer.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_net::{Memory, Share};

use crate::wire::{Limits, Parser, Request, Response, Step};

/// Minimum size of one read.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Maximum growth of a buffer in one step.
const READ_BYTES_MAX: usize = 256 * 1024;
/// While a command runs, at most this much is read ahead.
const AHEAD_BYTES_MAX: usize = 16 * 1024;
/// Requests up to this size do not count towards the shared memory.
const FREE_BYTES: usize = 16 * 1024;
/// A buffer may have grown to twice its content, and the request in it is a copy.
const MEMORY_PER_BYTE: usize = 3;

/// How long clients may be idle.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    /// Between two requests.
    pub idle_max: Duration,
    /// Within one request, and while a reply is written.
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
    /// The client has stopped sending.
    ended: bool,
    patience: Patience,
    share: Share,
}

impl Inbound {
    pub(crate) fn new(limits: Limits, patience: Patience, memory: &Memory) -> Inbound {
        let (buffer, parser) = (BytesMut::new(), Parser::new(limits));
        Inbound { buffer, parser, ended: false, patience, share: memory.share() }
    }

    /// Whether the client has closed its sending side; it may still read.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// The next request, unless `closing` is cancelled first.
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

    /// Reads ahead while a command runs. Returns when the client has stopped sending.
    pub(crate) async fn watch(&mut self, stream: &TcpStream) {
        while !self.ended {
            if self.buffer.len() >= AHEAD_BYTES_MAX {
                std::future::pending::<()>().await;
            }
            // Too little to count towards the shared memory.
            let _ = self.read(stream).await;
        }
    }

    /// When the client has been idle for too long.
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

    /// Waits for bytes and reads them. Cancel-safe: loses no bytes when dropped.
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
