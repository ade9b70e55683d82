//! One attempt in its own process: start, feed, capture, limit, verdict.
//!
//! ```text
//! first piece ─► start ─► started ─┬─ feed standard input
//!   of payload     │               ├─ read both outputs     until the process exits,
//!   │              │               └─ time limit, stop      or is stopped
//!   ▼              ▼                        │
//! returned      returned            kill all, drain ─► ended
//! ```
//! When `ended` is reported, nothing that the attempt started is still running.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep, timeout};
use windlass_core::runner::{Assignment, Batch, Report, Reports, Stop};
use windlass_core::secret::OpenSecrets;
use windlass_core::time::format_duration;
use windlass_core::{AttemptId, Handler, Log, Status};

use crate::isolate::{self, ProcessCounter};
use crate::launch::{Launch, NotStarted};
use crate::mask::Mask;
use crate::os;
use crate::output::{Output, Stream};
use crate::payload::PayloadReader;
use crate::spare::{Seat, Started};
use crate::stop::Watch;
use crate::{Ground, Options, cell};

/// Attempts to start a process while the machine is at a limit, before the job is returned.
const START_TRIES_MAX: u32 = 5;
const START_PAUSE: Duration = Duration::from_millis(100);
/// How long a killed process may take to die. Only one stuck in the kernel takes longer.
const DEATH_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long output may still arrive after all processes of the attempt are gone.
const DRAIN_MAX: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 64 * 1024;

/// Exit codes with a special meaning, as in sysexits.h.
const EXIT_TEMPORARY_FAILURE: i32 = 75;
const EXIT_BAD_DATA: i32 = 65;

/// Runs jobs of `sh` and `exec`, one process each.
pub(crate) struct Processes {
    ground: Arc<Ground>,
    log_bytes_max: usize,
}

impl Processes {
    pub(crate) fn new(ground: Arc<Ground>, options: &Options) -> Processes {
        Processes { ground, log_bytes_max: options.log_bytes_max }
    }

    /// Runs the jobs one after the other.
    pub(crate) async fn run(&self, batch: Batch, watch: &mut Watch, reports: &dyn Reports) {
        let mask = Mask::of(&batch.secrets);
        let handler = (&batch.handler, &batch.secrets);
        for assignment in batch.jobs {
            let id = assignment.job.id;
            if !is_wanted(assignment.id, watch, reports).await {
                continue;
            }
            let payload = PayloadReader::open(id, &assignment.payload, &batch.pieces).await;
            let started = match payload {
                Ok(payload) => self.start(handler, &assignment, payload, watch).await,
                Err(reason) => Err(reason),
            };
            match started {
                Ok((started_at, attempt)) => {
                    let job = (&assignment, started_at);
                    self.supervise(attempt, (&batch.handler, &mask), job, watch, reports).await;
                }
                Err(reason) => {
                    tracing::warn!(job = %id, %reason, "cannot start a job; it is returned");
                    reports.returned(assignment.id).await;
                }
            }
        }
    }

    /// Starts the process; returns when it began, before it can have done anything. An error means
    /// that the machine stayed at a limit.
    async fn start(
        &self,
        (handler, secrets): (&Arc<Handler>, &Arc<OpenSecrets>),
        assignment: &Assignment,
        payload: PayloadReader,
        watch: &mut Watch,
    ) -> Result<(Instant, Attempt), String> {
        let policy = self.ground.policies.policy(handler.spec.options.network.as_ref()).await;
        let launch = Arc::new(Launch {
            ground: Arc::clone(&self.ground),
            handler: Arc::clone(handler),
            job: assignment.job.clone(),
            secrets: Arc::clone(secrets),
            network: policy.to_string(),
        });
        let mut reason = String::new();
        for _ in 0..START_TRIES_MAX {
            if watch.shutdown() {
                return Err("the daemon stops".into());
            }
            let launch = Arc::clone(&launch);
            let start = move || (Instant::now(), launch.start());
            match tokio::task::spawn_blocking(start).await {
                Ok((began, Ok(started))) => match Running::new(started) {
                    Ok(running) => {
                        return Ok((began, Attempt::Running(Box::new(running), payload)));
                    }
                    Err(source) => reason = source.to_string(),
                },
                Ok((began, Err(NotStarted::Refused(reason)))) => {
                    return Ok((began, Attempt::Refused(reason)));
                }
                Ok((_, Err(NotStarted::Exhausted(source)))) => reason = source.to_string(),
                Err(failed) => reason = failed.to_string(),
            }
            sleep(START_PAUSE).await;
        }
        Err(reason)
    }

    async fn supervise(
        &self,
        attempt: Attempt,
        (handler, mask): (&Handler, &Arc<Mask>),
        (assignment, started_at): (&Assignment, Instant),
        watch: &mut Watch,
        reports: &dyn Reports,
    ) {
        reports.started(assignment.id).await;
        let live = Arc::clone(&assignment.live);
        let mut output = Output::live(self.log_bytes_max, live).masked(mask);
        let ending = match attempt {
            Attempt::Refused(reason) => Ending::Broken(reason),
            Attempt::Running(mut running, payload) => {
                let time_left = assignment.timeout.saturating_sub(started_at.elapsed());
                let own = &handler.spec.options.limits;
                let counter = ProcessCounter::new(self.ground.isolation.effective(own).processes);
                let limits = (time_left, counter);
                let ending =
                    running.run_to_end(assignment.id, payload, limits, watch, &mut output).await;
                self.clear(*running).await;
                ending
            }
        };
        let (status, stopped) = verdict(&ending, assignment.timeout, &mut output);
        let run_time = started_at.elapsed();
        let (log, emitted) = output.finish();
        let report = Report { status, stopped, data: None, log, emitted, run_time };
        reports.ended(assignment.id, report).await;
    }
}

impl Processes {
    /// Keeps the cell for another job if it can run one, and removes everything else.
    async fn clear(&self, running: Running) {
        let Running { seat, is_usable, .. } = running;
        let removed = match is_usable {
            true => self.ground.spares.put(seat),
            false => Some(seat),
        };
        if let Some(seat) = removed {
            // A directory may be large, and removing it blocks.
            let _ = tokio::task::spawn_blocking(move || drop(seat)).await;
        }
    }
}

/// Whether a job whose turn has come should run; a stopped one is reported.
pub(crate) async fn is_wanted(id: AttemptId, watch: &mut Watch, reports: &dyn Reports) -> bool {
    if watch.shutdown() {
        reports.returned(id).await;
        return false;
    }
    let Some(why) = watch.taken(id) else { return true };
    report_stopped(id, why, reports).await;
    false
}

/// The job was stopped before its turn came.
pub(crate) async fn report_stopped(id: AttemptId, why: Stop, reports: &dyn Reports) {
    reports.started(id).await;
    reports.ended(id, stopped_before_start(why)).await;
}

/// The report of a job that was stopped before its turn came.
pub(crate) fn stopped_before_start(why: Stop) -> Report {
    let log = Log::of_note(&format!("{} before it was started", why.as_str()));
    let (status, stopped) = (Status::ERROR, Some(why));
    Report { status, stopped, data: None, log, emitted: Vec::new(), run_time: Duration::ZERO }
}

enum Attempt {
    Running(Box<Running>, PayloadReader),
    Refused(String),
}

/// How a process ended.
enum Ending {
    Exited(ExitStatus),
    Stopped(Stop),
    /// It was not started, or did not get its whole payload.
    Broken(String),
}

/// What the ending means for the job; also adds it to the log.
fn verdict(ending: &Ending, limit: Duration, output: &mut Output) -> (Status, Option<Stop>) {
    match ending {
        Ending::Broken(reason) => {
            output.note(reason);
            (Status::ERROR, None)
        }
        Ending::Stopped(Stop::TimedOut) => {
            output.note(&format!("{} after {}", Stop::TimedOut.as_str(), format_duration(limit)));
            (Status::ERROR, Some(Stop::TimedOut))
        }
        Ending::Stopped(why) => {
            output.note(why.as_str());
            (Status::ERROR, Some(*why))
        }
        Ending::Exited(status) => match status.code() {
            Some(code) => {
                output.note(&format!("exit code {code}"));
                (status_of(code), None)
            }
            None => {
                output.note(&isolate::describe_end(*status));
                (Status::ERROR, None)
            }
        },
    }
}

fn status_of(exit_code: i32) -> Status {
    match exit_code {
        0 => Status::OK,
        EXIT_TEMPORARY_FAILURE => Status::RETRY,
        EXIT_BAD_DATA => Status::FAILED,
        _ => Status::ERROR,
    }
}

/// A started process. Dropping it kills all of it, then removes its directory.
struct Running {
    seat: Seat,
    /// Becomes readable when the process exits, before it is reaped; in a cell that runs one job
    /// after another, when the cell does.
    exit: AsyncFd<OwnedFd>,
    /// The answers of such a cell.
    answers: Option<AsyncFd<OwnedFd>>,
    /// Whether the cell can run another job.
    is_usable: bool,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Running {
    fn new(Started { seat, streams }: Started) -> io::Result<Running> {
        let stdin = Some(ChildStdin::from_std(streams.stdin)?);
        let stdout = ChildStdout::from_std(streams.stdout)?;
        let stderr = ChildStderr::from_std(streams.stderr)?;
        let exit = os::exit_of(seat.main.pid())?;
        let answers = seat.use_for.as_ref().and(seat.main.control.as_ref());
        let answers = answers.map(|control| os::watch_input(control.try_clone()?)).transpose()?;
        Ok(Running { seat, exit, answers, is_usable: false, stdin, stdout, stderr })
    }

    /// Runs until the process exits or is stopped, and everything that it started is gone.
    async fn run_to_end(
        &mut self,
        id: AttemptId,
        payload: PayloadReader,
        (time_left, mut counter): (Duration, ProcessCounter),
        watch: &mut Watch,
        output: &mut Output,
    ) -> Ending {
        let stdin = self.stdin.take().expect("a process is fed once");
        let mut feed = Box::pin(feed(stdin, payload));
        let mut capture = Box::pin(capture(&mut self.stdout, &mut self.stderr, output).fuse());
        let mut limit = pin!(sleep(time_left));
        let main = &mut self.seat.main;
        let stopped = loop {
            tokio::select! {
                _ = self.exit.readable() => break None,
                (status, is_usable) = answer(self.answers.as_ref()) => {
                    // Nothing of the job runs any more, so its outputs end.
                    let drained =
                        capture.is_terminated() || timeout(DRAIN_MAX, &mut capture).await.is_ok();
                    drop((feed, capture));
                    output.end();
                    self.is_usable = is_usable && drained;
                    return Ending::Exited(ExitStatus::from_raw(status));
                }
                (_, why) = watch.stopped(std::slice::from_ref(&id)) => {
                    break Some(Ending::Stopped(why));
                }
                () = &mut limit => break Some(Ending::Stopped(Stop::TimedOut)),
                reason = &mut feed => break Some(Ending::Broken(reason)),
                reason = counter.exceeded(&main.tree) => break Some(Ending::Broken(reason)),
                () = &mut capture, if !capture.is_terminated() => {}
            }
        };
        drop(feed);
        if stopped.is_some() {
            main.tree.kill();
        }
        let dead = timeout(DEATH_WAIT_MAX, self.exit.readable()).await.is_ok();
        if dead {
            main.tree.end().await;
        } else {
            tracing::warn!(job = %id.job, "a killed process does not die");
        }
        if !capture.is_terminated() {
            // It does not end if an unkillable process still holds a pipe.
            let _ = timeout(DRAIN_MAX, &mut capture).await;
        }
        drop(capture);
        output.end();
        let exited = self.reap_if(dead);
        stopped.unwrap_or(exited)
    }

    fn reap_if(&mut self, dead: bool) -> Ending {
        if !dead {
            return Ending::Broken("its process does not die".into());
        }
        match self.seat.main.reap() {
            Ok(status) => Ending::Exited(status),
            Err(reason) => Ending::Broken(format!("its exit code is unknown: {reason}")),
        }
    }
}

/// What a cell that runs one job after another answers: the status of the process, and whether the
/// cell can run another one. Never returns for another process, or if the cell itself ends.
async fn answer(answers: Option<&AsyncFd<OwnedFd>>) -> (i32, bool) {
    let Some(answers) = answers else { return pending().await };
    loop {
        let Ok(mut ready) = answers.readable().await else { return pending().await };
        match ready.try_io(|line| cell::answer(line.get_ref())) {
            Ok(Ok(Some(answer))) => return answer,
            Ok(Ok(None) | Err(_)) => return pending().await,
            Err(_would_block) => {}
        }
    }
}

/// Writes the payload to the process; returns only if that fails for a reason of ours.
async fn feed(mut stdin: ChildStdin, mut payload: PayloadReader) -> String {
    loop {
        match payload.next().await {
            Ok(Some(bytes)) => {
                // A handler need not read its input.
                if stdin.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(reason) => return reason,
        }
    }
    drop(stdin);
    pending().await
}

/// Reads both outputs to their ends.
async fn capture(stdout: &mut ChildStdout, stderr: &mut ChildStderr, output: &mut Output) {
    let (mut out, mut err) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        tokio::select! {
            bytes = read(stdout, &mut out), if out_open => {
                output.push(Stream::Out, &out[..bytes]);
                out_open = bytes > 0;
            }
            bytes = read(stderr, &mut err), if err_open => {
                output.push(Stream::Err, &err[..bytes]);
                err_open = bytes > 0;
            }
        }
        // A process that never stops writing must not delay the renewal of leases.
        tokio::task::yield_now().await;
    }
}

/// Reads some bytes; a stream that cannot be read counts as ended.
async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> usize {
    stream.read(buffer).await.unwrap_or(0)
}
