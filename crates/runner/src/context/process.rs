//! The process of a context and its four pipes: requests and answers on a channel of their own,
//! and the two ordinary outputs.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::FutureExt;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use windlass_core::AttemptId;
use windlass_core::runner::Stop;

use super::frame::{Frames, NoFrame};
use super::halt::{Halt, LOOK_WAIT};
use super::request::Inbox;
use super::start::Spawned;
use crate::isolate::{ProcessCounter, set_cpu_budget};
use crate::os;
use crate::output::Stream;
use crate::scratch::AttemptDir;
use crate::stop::Watch;
use crate::tree::Main;

/// Maximum size of one read from the channel or an output.
const READ_BYTES: usize = 64 * 1024;
/// How long a killed process may take to die. Only one stuck in the kernel takes longer.
const DEATH_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a context may take to exit after its requests end.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Reads of each output for one line.
const DRAIN_READS_MAX: usize = 1024;
/// Maximum to read from one pipe to empty it: as much as the kernel lets it hold.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// An event of a context.
pub(super) enum ContextEvent {
    Answer(Bytes),
    /// Bytes written to an ordinary output.
    Raw(Stream, Bytes),
    /// The channel contains something that is not a frame.
    InvalidFrame,
    /// It closed the channel, or exited.
    Exited,
    /// This attempt must stop.
    Stopped(AttemptId, Stop),
    TimedOut,
    /// It exceeds a limit; the text is for the log.
    OverLimit(String),
}

pub(super) struct Process {
    pub(super) main: Main,
    pub(super) dir: AttemptDir,
    /// Where it finds what it is handed.
    inbox: PathBuf,
    /// Becomes readable when the process exits, before it is reaped.
    exit: AsyncFd<OwnedFd>,
    /// `None` once no more requests follow.
    requests: Option<pipe::Sender>,
    /// Bytes of requests that are not written yet.
    outgoing: Bytes,
    halt: Halt,
    answers: pipe::Receiver,
    frames: Frames,
    /// Absent once the output has ended.
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    raw: [BytesMut; 2],
    counter: ProcessCounter,
}

impl Process {
    pub(super) fn new(spawned: Spawned, counter: ProcessCounter) -> io::Result<Process> {
        let Spawned { mut main, dir, inbox, requests, answers, halt } = spawned;
        let piped = "both outputs are piped";
        let stdout = ChildStdout::from_std(main.child.stdout.take().expect(piped))?;
        let stderr = ChildStderr::from_std(main.child.stderr.take().expect(piped))?;
        let exit = os::exit_of(main.pid())?;
        Ok(Process {
            main,
            dir,
            inbox,
            exit,
            requests: Some(pipe::Sender::from_owned_fd(requests)?),
            outgoing: Bytes::new(),
            halt,
            answers: pipe::Receiver::from_owned_fd(answers)?,
            frames: Frames::default(),
            stdout: Some(stdout),
            stderr: Some(stderr),
            raw: Default::default(),
            counter,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.main.pid()
    }

    /// Lets the interpreter use this much CPU time from now on.
    pub(super) fn limit_cpu(&mut self, budget: Duration) {
        let (process, seconds) = set_cpu_budget(&self.main, budget);
        self.counter.limit_cpu(process, seconds);
    }

    /// Where large payloads are put.
    pub(super) fn inbox(&self) -> Inbox {
        Inbox { here: self.dir.inbox(), there: self.inbox.clone() }
    }

    /// Whether the process still runs and both outputs are open.
    pub(super) fn is_whole(&self) -> bool {
        self.stdout.is_some()
            && self.stderr.is_some()
            && self.exit.readable().now_or_never().is_none()
    }

    /// Queues a request, which is written while answers are read. The context must be idle.
    pub(super) fn ask(&mut self, frame: Vec<u8>) {
        self.halt.clear();
        self.outgoing = if self.outgoing.is_empty() {
            frame.into()
        } else {
            [&self.outgoing[..], &frame].concat().into()
        };
    }

    /// The next event, until `limit`. Includes orders to stop these attempts.
    pub(super) async fn listen(
        &mut self,
        limit: Instant,
        watch: &mut Watch,
        ids: &[AttemptId],
    ) -> ContextEvent {
        loop {
            if let Some(said) = self.next_buffered() {
                return said;
            }
            let [raw_out, raw_err] = &mut self.raw;
            self.frames.buffer.reserve(READ_BYTES);
            tokio::select! {
                read = self.answers.read_buf(&mut self.frames.buffer) => {
                    if !read.is_ok_and(|bytes| bytes > 0) {
                        return ContextEvent::Exited;
                    }
                }
                bytes = read(&mut self.stdout, raw_out), if self.stdout.is_some() => {
                    match bytes {
                        0 => self.stdout = None,
                        _ => return ContextEvent::Raw(Stream::Out, raw_out.split().freeze()),
                    }
                }
                bytes = read(&mut self.stderr, raw_err), if self.stderr.is_some() => {
                    match bytes {
                        0 => self.stderr = None,
                        _ => return ContextEvent::Raw(Stream::Err, raw_err.split().freeze()),
                    }
                }
                sent = send(&mut self.requests, &self.outgoing), if !self.outgoing.is_empty() => {
                    // It no longer reads, but its last answers still count.
                    let sent = sent.unwrap_or(self.outgoing.len());
                    self.outgoing.advance(sent);
                }
                _ = self.exit.readable() => {
                    self.read_channel();
                    return self.next_buffered().unwrap_or(ContextEvent::Exited);
                }
                (id, why) = watch.stopped(ids) => return ContextEvent::Stopped(id, why),
                reason = self.counter.exceeded(&self.main.tree) => {
                    return ContextEvent::OverLimit(reason);
                }
                () = sleep_until(limit) => return ContextEvent::TimedOut,
            }
        }
    }

    /// Takes what both outputs are known to hold; cheap, because it happens with each line.
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

    /// Takes everything that both outputs hold now.
    pub(super) fn drain_all(&mut self) -> Vec<(Stream, Bytes)> {
        let [raw_out, raw_err] = &mut self.raw;
        if let Some(stdout) = &self.stdout {
            read_held(stdout, raw_out);
        }
        if let Some(stderr) = &self.stderr {
            read_held(stderr, raw_err);
        }
        let drained = [(Stream::Out, raw_out), (Stream::Err, raw_err)].into_iter();
        drained
            .filter(|(_, raw)| !raw.is_empty())
            .map(|(stream, raw)| (stream, raw.split().freeze()))
            .collect()
    }

    /// Halts the batch and reads everything that the context has written so far. Of the jobs
    /// without an `end` afterwards, at most the first has begun, and none of the others will.
    pub(super) async fn halt(&mut self) {
        if self.halt.set() {
            sleep(LOOK_WAIT).await;
        }
        self.read_channel();
    }

    /// Reads what the channel holds now; `next_buffered` splits it.
    pub(super) fn read_channel(&mut self) {
        read_held(&self.answers, &mut self.frames.buffer);
    }

    /// The next frame that has already been read from the channel.
    pub(super) fn next_buffered(&mut self) -> Option<ContextEvent> {
        match self.frames.next() {
            Ok(frame) => frame.map(ContextEvent::Answer),
            Err(NoFrame) => Some(ContextEvent::InvalidFrame),
        }
    }

    /// Asks the process to exit, and kills it if it does not.
    pub(super) async fn end(mut self) {
        self.requests = None;
        let _ = timeout(EXIT_WAIT_MAX, self.exit.readable()).await;
        self.kill().await;
        self.remove().await;
    }

    /// Kills the process and everything that it started. Returns how it ended, unless it does not
    /// die.
    pub(super) async fn kill(&mut self) -> Option<ExitStatus> {
        self.main.tree.kill();
        if timeout(DEATH_WAIT_MAX, self.exit.readable()).await.is_err() {
            tracing::warn!(pid = %self.pid(), "a killed context does not die");
            return None;
        }
        self.main.tree.end().await;
        self.main.reap().ok()
    }

    /// How the process ended by itself; kills it if it does not end at once.
    pub(super) async fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        let _ = timeout(EXIT_WAIT_MAX, self.exit.readable()).await;
        self.kill().await
    }

    /// Removes the private directory, which may be large.
    pub(super) async fn remove(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// Kills what jobs left running. `kept` already existed when the handler was loaded.
    pub(super) fn end_leftovers(&self, kept: &HashSet<Pid>) {
        self.main.tree.end_leftovers(kept);
    }
}

/// Reads what the pipe holds, bypassing the runtime, whose readiness may be out of date.
fn read_held(pipe: &impl AsFd, into: &mut BytesMut) {
    let mut piece = vec![0; READ_BYTES];
    let mut bytes = 0;
    while bytes < HELD_BYTES_MAX {
        match rustix::io::read(pipe, &mut piece) {
            Ok(0) => return,
            Ok(read) => {
                into.extend_from_slice(&piece[..read]);
                bytes += read;
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Reads some bytes; 0 if the stream has ended or cannot be read.
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
