//! The process of a context and its four pipes: requests and answers on a channel of their own,
//! and the two ordinary outputs.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
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
use super::start::Spawned;
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
/// Reads that are made of each output for one line.
const DRAIN_READS_MAX: usize = 1024;
/// Most that is read of one pipe to get what it holds now: as much as the kernel lets it hold.
const HELD_BYTES_MAX: usize = 1024 * 1024;

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
    halt: Halt,
    answers: pipe::Receiver,
    frames: Frames,
    /// An output that has ended is not read any more.
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    raw: [BytesMut; 2],
    census: Census,
}

impl Process {
    pub(super) fn new(spawned: Spawned, census: Census) -> io::Result<Process> {
        let Spawned { mut main, dir, requests, answers, halt } = spawned;
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
            halt,
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

    /// Puts a request on its way; it is written while the answers are listened to. The context must
    /// be idle.
    pub(super) fn ask(&mut self, frame: Vec<u8>) {
        self.halt.clear();
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
            if let Some(said) = self.said() {
                return said;
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
                    self.hear_channel();
                    return self.said().unwrap_or(Heard::Gone);
                }
                (id, why) = watch.stopped(ids) => return Heard::Stopped(id, why),
                reason = self.census.exceeded(&self.main.tree) => return Heard::Crowded(reason),
                () = sleep_until(limit) => return Heard::TimedOut,
            }
        }
    }

    /// What both outputs are known to hold; cheap, because it is asked for with each line.
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

    /// All that both outputs hold now.
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

    /// Halts the batch and reads everything the context has written so far. Of the jobs that have
    /// no `end` afterwards at most the first has begun, and none of the others will.
    pub(super) async fn halt(&mut self) {
        if self.halt.set() {
            sleep(LOOK_WAIT).await;
        }
        self.hear_channel();
    }

    /// Reads what the channel holds now; `said` takes it apart.
    pub(super) fn hear_channel(&mut self) {
        read_held(&self.answers, &mut self.frames.buffer);
    }

    /// The next of what was read from the channel, without waiting for more.
    pub(super) fn said(&mut self) -> Option<Heard> {
        match self.frames.next() {
            Ok(frame) => frame.map(Heard::Answer),
            Err(NoFrame) => Some(Heard::Garbage),
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

/// Reads what the pipe holds, past the runtime: that knows only what it has been told so far.
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
