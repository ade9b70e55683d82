//! The process of a context and its four pipes: requests and answers on a channel of their own,
//! and the two ordinary outputs.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt;
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};
use windlass_core::AttemptId;
use windlass_core::runner::Stop;

use super::frame::{Frames, NoFrame};
use crate::isolate::Census;
use crate::os;
use crate::output::Stream;
use crate::scratch::AttemptDir;
use crate::stop::Watch;
use crate::tree::Main;

/// Most that one read takes from the channel or an output.
const READ_BYTES: usize = 64 * 1024;
/// How long a killed process may take to die. Only one that hangs in the kernel takes longer.
const DEATH_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a context may take to exit when its requests end.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Reads that are made of each pipe when its process is dead, to get what it still holds.
const DRAIN_READS_MAX: usize = 1024;

/// What comes from a context, or happens to it.
pub(super) enum Heard {
    Answer(Bytes),
    /// Something that was written to an ordinary output.
    Raw(Stream, Bytes),
    /// It wrote what is no frame to the channel.
    Garbage,
    /// It closed the channel, or exited.
    Gone,
    /// This attempt is to end.
    Stopped(AttemptId, Stop),
    TimedOut,
    /// It has too many processes; the words are for the log.
    Crowded(String),
}

pub(super) struct Process {
    pub(super) main: Main,
    pub(super) dir: AttemptDir,
    /// Becomes readable when the process exits, before it is reaped.
    exit: AsyncFd<OwnedFd>,
    /// `None` when nothing more will be asked.
    requests: Option<pipe::Sender>,
    /// Bytes of requests that were not written yet.
    outgoing: Bytes,
    answers: pipe::Receiver,
    frames: Frames,
    /// An output that has ended is not read any more.
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    raw: [BytesMut; 2],
    census: Census,
}

impl Process {
    pub(super) fn new(
        mut main: Main,
        dir: AttemptDir,
        requests: OwnedFd,
        answers: OwnedFd,
        census: Census,
    ) -> io::Result<Process> {
        let piped = "both outputs are piped";
        let stdout = ChildStdout::from_std(main.child.stdout.take().expect(piped))?;
        let stderr = ChildStderr::from_std(main.child.stderr.take().expect(piped))?;
        let exit = os::exit_of(main.pid())?;
        Ok(Process {
            main,
            dir,
            exit,
            requests: Some(pipe::Sender::from_owned_fd(requests)?),
            outgoing: Bytes::new(),
            answers: pipe::Receiver::from_owned_fd(answers)?,
            frames: Frames::default(),
            stdout: Some(stdout),
            stderr: Some(stderr),
            raw: Default::default(),
            census,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.main.pid()
    }

    /// Whether the process still runs and both of its outputs are open.
    pub(super) fn is_whole(&self) -> bool {
        self.stdout.is_some()
            && self.stderr.is_some()
            && self.exit.readable().now_or_never().is_none()
    }

    /// Puts a request on its way; it is written while the answers are listened to.
    pub(super) fn ask(&mut self, frame: Vec<u8>) {
        self.outgoing = if self.outgoing.is_empty() {
            frame.into()
        } else {
            [&self.outgoing[..], &frame].concat().into()
        };
    }

    /// What happens next, until `limit`. Orders to these attempts are heard, too.
    pub(super) async fn listen(
        &mut self,
        limit: Instant,
        watch: &mut Watch,
        ids: &[AttemptId],
    ) -> Heard {
        loop {
            match self.frames.next() {
                // Also a context that never stops talking has a time limit.
                Ok(Some(_)) if Instant::now() >= limit => return Heard::TimedOut,
                Ok(Some(frame)) => return Heard::Answer(frame),
                Err(NoFrame) => return Heard::Garbage,
                Ok(None) => {}
            }
            let [raw_out, raw_err] = &mut self.raw;
            self.frames.buffer.reserve(READ_BYTES);
            tokio::select! {
                read = self.answers.read_buf(&mut self.frames.buffer) => {
                    if !read.is_ok_and(|bytes| bytes > 0) {
                        return Heard::Gone;
                    }
                }
                bytes = read(&mut self.stdout, raw_out), if self.stdout.is_some() => {
                    match bytes {
                        0 => self.stdout = None,
                        _ => return Heard::Raw(Stream::Out, raw_out.split().freeze()),
                    }
                }
                bytes = read(&mut self.stderr, raw_err), if self.stderr.is_some() => {
                    match bytes {
                        0 => self.stderr = None,
                        _ => return Heard::Raw(Stream::Err, raw_err.split().freeze()),
                    }
                }
                sent = send(&mut self.requests, &self.outgoing), if !self.outgoing.is_empty() => {
                    // When it does not read any more, what it still says is worth hearing.
                    let sent = sent.unwrap_or(self.outgoing.len());
                    self.outgoing.advance(sent);
                }
                _ = self.exit.readable() => {
                    self.drain_channel();
                    return match self.frames.next() {
                        Ok(Some(frame)) => Heard::Answer(frame),
                        _ => Heard::Gone,
                    };
                }
                (id, why) = watch.stopped(ids) => return Heard::Stopped(id, why),
                reason = self.census.exceeded(&self.main.tree) => return Heard::Crowded(reason),
                () = sleep_until(limit) => return Heard::TimedOut,
            }
        }
    }

    /// What both outputs hold now; for a context that says nothing any more.
    pub(super) fn drain(&mut self) -> Vec<(Stream, Bytes)> {
        let mut drained = Vec::new();
        for _ in 0..DRAIN_READS_MAX {
            let before = drained.len();
            let [raw_out, raw_err] = &mut self.raw;
            let out = read(&mut self.stdout, raw_out).now_or_never();
            let err = read(&mut self.stderr, raw_err).now_or_never();
            for (stream, bytes, raw) in [(Stream::Out, out, raw_out), (Stream::Err, err, raw_err)] {
                if bytes.is_some_and(|bytes| bytes > 0) {
                    drained.push((stream, raw.split().freeze()));
                }
            }
            if drained.len() == before {
                break;
            }
        }
        drained
    }

    /// Reads what the channel holds when the process is dead.
    fn drain_channel(&mut self) {
        for _ in 0..DRAIN_READS_MAX {
            self.frames.buffer.reserve(READ_BYTES);
            match self.answers.try_read_buf(&mut self.frames.buffer) {
                Ok(bytes) if bytes > 0 => {}
                _ => return,
            }
        }
    }

    /// Asks the process to exit, and ends all of it if it does not.
    pub(super) async fn end(mut self) {
        self.requests = None;
        let _ = timeout(EXIT_WAIT_MAX, self.exit.readable()).await;
        self.kill().await;
        self.remove().await;
    }

    /// Ends the process and everything that it started. How it ended, unless it does not die.
    pub(super) async fn kill(&mut self) -> Option<ExitStatus> {
        self.main.tree.kill();
        if timeout(DEATH_WAIT_MAX, self.exit.readable()).await.is_err() {
            tracing::warn!(pid = %self.pid(), "a killed context does not die");
            return None;
        }
        self.main.tree.end().await;
        self.main.reap().ok()
    }

    /// How the process ended by itself, if it does so at once; else it is killed.
    pub(super) async fn bury(&mut self) -> Option<ExitStatus> {
        let _ = timeout(EXIT_WAIT_MAX, self.exit.readable()).await;
        self.kill().await
    }

    /// Removes the private directory, which may hold much.
    pub(super) async fn remove(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// Ends what jobs left running. `kept` were there when the handler was loaded.
    pub(super) fn end_leftovers(&self, kept: &HashSet<Pid>) {
        self.main.tree.end_leftovers(kept);
    }
}

/// Reads some bytes; 0 when the stream has ended or cannot be read.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, into: &mut BytesMut) -> usize {
    into.reserve(READ_BYTES);
    match stream {
        Some(stream) => stream.read_buf(into).await.unwrap_or(0),
        None => 0,
    }
}

async fn send(requests: &mut Option<pipe::Sender>, bytes: &[u8]) -> io::Result<usize> {
    match requests {
        Some(requests) => requests.write(bytes).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
