//! Starts contexts: a process with the bootstrap of its language, then the greeting, then the
//! handler's source.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Pid;
use tokio::time::Instant;
use windlass_core::launch::is_exhaustion;
use windlass_core::limit::RESULT_BYTES_MAX;
use windlass_core::runner::Stop;
use windlass_core::{AttemptId, Handler, HandlerId, HandlerSpec, TypeName};

use super::frame::encode;
use super::halt::Halt;
use super::language::Language;
use super::message::{Answer, Kind, Load, PROTOCOL, Request, Stage};
use super::pool::Permit;
use super::process::{Heard, Process};
use crate::isolate::{self, Census, Channels, Confine, Isolation};
use crate::launch::NotStarted;
use crate::output::Output;
use crate::proc;
use crate::scratch::{AttemptDir, Scratch};
use crate::stop::Watch;
use crate::tree::{self, Main};

/// How long an interpreter may take until it answers the greeting.
const GREETING_WAIT_MAX: Duration = Duration::from_secs(30);
/// The lowest descriptor that an end of a channel has in the daemon.
const NUMBER_MIN: i32 = 10;
/// Room in the pipes of the channel, so that a batch and its answers fit. A wish, not a need.
const PIPE_BYTES: usize = 256 * 1024;
/// Handlers that share one context; the next one gets a new context.
pub(super) const LOADED_MAX: usize = 64;

/// All that is needed to start contexts for one handler.
pub(super) struct Starter {
    pub(super) language: &'static Language,
    pub(super) interpreter: PathBuf,
    pub(super) path: Arc<str>,
    pub(super) scratch: Arc<Scratch>,
    pub(super) isolation: Arc<Isolation>,
    pub(super) handler: Arc<Handler>,
}

/// A context that greeted us. Handlers are loaded into it as they come.
pub(super) struct Context {
    pub(super) process: Process,
    /// What it writes to its ordinary outputs between jobs, when asked to.
    pub(super) mark: Vec<u8>,
    pub(super) loaded: Vec<Loaded>,
    /// Processes that were there after the last load: they belong to the handler, not to a job.
    pub(super) kept: HashSet<Pid>,
    /// The newest process of the machine when leftovers were looked for.
    newest_process: Option<u32>,
    /// Jobs that it was given.
    pub(super) jobs: u32,
    /// Jobs in a row without a byte on its ordinary outputs.
    pub(super) quiet_jobs: u32,
    /// Absent if it lives only to be asked once.
    pub(super) _permit: Option<Permit>,
}

/// A handler that a context knows, by the place in its list.
pub(super) struct Loaded {
    pub(super) id: HandlerId,
    pub(super) name: TypeName,
}

/// Why a handler is not ready to run.
pub(super) enum Unready {
    /// The machine lacks something now.
    Exhausted(io::Error),
    /// The handler's fault; the text is for its author. The context may be alive all the same.
    Broken {
        field: Option<String>,
        reason: String,
    },
    Stopped(Stop),
}

impl Unready {
    fn broken(reason: impl Into<String>) -> Unready {
        Unready::Broken { field: None, reason: reason.into() }
    }
}

impl From<NotStarted> for Unready {
    fn from(not_started: NotStarted) -> Unready {
        match not_started {
            NotStarted::Exhausted(source) => Unready::Exhausted(source),
            NotStarted::Refused(reason) => Unready::broken(reason),
        }
    }
}

impl Starter {
    /// Starts a process and waits for its greeting.
    pub(super) async fn start(
        self: Arc<Starter>,
        permit: Option<Permit>,
        watch: &mut Watch,
        ids: &[AttemptId],
        output: &mut Output,
    ) -> Result<Context, Unready> {
        let starter = Arc::clone(&self);
        let spawned = tokio::task::spawn_blocking(move || starter.spawn()).await;
        let spawned = spawned.map_err(|failed| Unready::broken(failed.to_string()))??;
        let own = &self.handler.spec.options.limits;
        let census = Census::new(self.isolation.effective(own).processes);
        let process = Process::new(spawned, census).map_err(Unready::Exhausted)?;
        let mark = format!("{:032x}", fastrand::u128(..));
        let mut context = Context {
            process,
            mark: [&b"\0"[..], mark.as_bytes(), b"\n"].concat(),
            loaded: Vec::new(),
            kept: HashSet::new(),
            newest_process: None,
            jobs: 0,
            quiet_jobs: 0,
            _permit: permit,
        };
        let hello =
            Request::Hello { protocol: PROTOCOL, mark: &mark, result_bytes_max: RESULT_BYTES_MAX };
        context.ask(&hello)?;
        let limit = Instant::now() + GREETING_WAIT_MAX;
        let greeted = context.answer(Kind::Ready, limit, watch, ids, output).await;
        match greeted {
            Ok(_) => Ok(context),
            Err(unready) => {
                context.process.kill().await;
                context.process.remove().await;
                Err(unready)
            }
        }
    }

    /// Starts the process. Blocks for as long as a fork and a few small files take.
    fn spawn(&self) -> Result<Spawned, NotStarted> {
        let dir = self.scratch.attempt(self.handler.id).map_err(NotStarted::Exhausted)?;
        let file = dir.path().join(self.language.file);
        fs::write(&file, self.language.bootstrap).map_err(NotStarted::Exhausted)?;
        let (theirs_in, requests) = channel().map_err(NotStarted::Exhausted)?;
        let (answers, theirs_out) = channel().map_err(NotStarted::Exhausted)?;
        let (halt, theirs_halt) = Halt::new().map_err(NotStarted::Exhausted)?;
        let theirs_halt = moved(&theirs_halt).map_err(NotStarted::Exhausted)?;
        let options = &self.handler.spec.options;
        let mut command = Command::new(&self.interpreter);
        command
            .args(self.language.flags)
            .arg(file)
            .env_clear()
            .env("PATH", &*self.path)
            .env("HOME", dir.work())
            .env("TMPDIR", dir.tmp())
            .env("LANG", "C.UTF-8")
            .envs(&options.env)
            .env("WINDLASS_TENANT", self.handler.key.tenant.as_str())
            .env(tree::MARKER, dir.path())
            .current_dir(dir.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let confine = Confine {
            dir: dir.path(),
            program: &self.interpreter,
            limits: &options.limits,
            channels: Some(Channels {
                requests: theirs_in,
                answers: theirs_out,
                halt: theirs_halt,
            }),
        };
        self.isolation.arm(&mut command, confine).map_err(NotStarted::Exhausted)?;
        match Main::start(&mut command, dir.path(), &self.scratch.gate) {
            Ok(main) => Ok(Spawned { main, dir, requests, answers, halt }),
            Err(reason) if is_exhaustion(&reason) => Err(NotStarted::Exhausted(reason)),
            Err(reason) => {
                let program = self.interpreter.display();
                Err(NotStarted::Refused(format!("{program} cannot be started: {reason}")))
            }
        }
    }
}

/// A process that was started, and our ends of what leads to it.
pub(super) struct Spawned {
    pub(super) main: Main,
    pub(super) dir: AttemptDir,
    pub(super) requests: OwnedFd,
    pub(super) answers: OwnedFd,
    pub(super) halt: Halt,
}

/// A pipe, its reading end first. Neither end has a number that a context uses itself: a copy onto
/// its own number, or onto that of the other end, would be none.
fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((moved(&reader)?, moved(&writer)?))
}

/// The same with a number that no context uses itself.
fn moved(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(descriptor, NUMBER_MIN)?)
}

impl Context {
    pub(super) fn ask(&mut self, request: &Request<'_>) -> Result<(), Unready> {
        let frame = encode(request).ok_or_else(|| Unready::broken("its source is too long"))?;
        self.process.ask(frame);
        Ok(())
    }

    pub(super) fn number_of(&self, handler: HandlerId) -> Option<u32> {
        self.loaded.iter().position(|loaded| loaded.id == handler).map(|at| at as u32)
    }

    /// Loads the handler and runs its `before`; how long that took.
    pub(super) async fn load(
        &mut self,
        handler: &Handler,
        limit: Instant,
        watch: &mut Watch,
        ids: &[AttemptId],
        output: &mut Output,
    ) -> Result<Duration, Unready> {
        let number = self.loaded.len() as u32;
        let spec = &handler.spec;
        let (tenant, name) = (handler.key.tenant.as_str(), handler.key.name.as_str());
        self.ask(&Request::Load(load(number, tenant, name, spec, false)))?;
        let took = self.answer(Kind::Loaded, limit, watch, ids, output).await?;
        self.loaded.push(Loaded { id: handler.id, name: handler.key.name.clone() });
        self.kept = self.process.main.tree.descendants();
        Ok(took)
    }

    /// Asks only the compiler.
    pub(super) async fn compile(
        &mut self,
        spec: &HandlerSpec,
        limit: Instant,
        watch: &mut Watch,
        ids: &[AttemptId],
        output: &mut Output,
    ) -> Result<(), Unready> {
        self.ask(&Request::Load(load(0, "", "", spec, true)))?;
        self.answer(Kind::Loaded, limit, watch, ids, output).await.map(drop)
    }

    /// Ends what the jobs of a batch left running. Costs a look at `/proc` only when some process
    /// was started on this machine since the last one.
    pub(super) fn end_leftovers(&mut self) {
        let newest = proc::newest();
        if self.newest_process != newest || newest.is_none() {
            self.process.end_leftovers(&self.kept);
            self.newest_process = newest;
        }
    }

    /// Waits for the answer of this kind; what is written meanwhile goes to the output.
    async fn answer(
        &mut self,
        wanted: Kind,
        limit: Instant,
        watch: &mut Watch,
        ids: &[AttemptId],
        output: &mut Output,
    ) -> Result<Duration, Unready> {
        let mut is_late = false;
        loop {
            match self.process.listen(limit, watch, ids).await {
                Heard::Raw(stream, bytes) => output.push(stream, &bytes),
                Heard::Answer(frame) => match Answer::parse(&frame) {
                    Some(answer) if answer.kind == wanted => {
                        let speaks = wanted != Kind::Ready || answer.protocol == Some(PROTOCOL);
                        return speaks.then(|| answer.us()).ok_or(Unready::broken(GARBAGE));
                    }
                    Some(answer) if answer.kind == Kind::Output => answer.output_to(output),
                    Some(answer) if answer.kind == Kind::Failed => return Err(failed(&answer)),
                    _ => return Err(Unready::broken(GARBAGE)),
                },
                Heard::Garbage => return Err(Unready::broken(GARBAGE)),
                Heard::Gone => return Err(Unready::broken(self.gone(output).await)),
                Heard::Stopped(_, why) => return Err(Unready::Stopped(why)),
                Heard::Crowded(reason) => {
                    self.process.kill().await;
                    return Err(Unready::broken(reason));
                }
                // It may have answered in time, and nobody listened.
                Heard::TimedOut if !is_late => {
                    is_late = true;
                    self.process.hear_channel();
                }
                Heard::TimedOut if wanted == Kind::Loaded => {
                    return Err(Unready::broken("before timed out"));
                }
                Heard::TimedOut => {
                    return Err(Unready::broken("its interpreter does not answer"));
                }
            }
        }
    }

    /// Why the process is gone, when it went by itself.
    async fn gone(&mut self, output: &mut Output) -> String {
        let status = self.process.bury().await;
        for (stream, bytes) in self.process.drain_all() {
            output.push(stream, &bytes);
        }
        output.end();
        obituary(status)
    }
}

/// How a process ended that was not asked to.
pub(super) fn obituary(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status)) {
        Some((Some(code), _)) => format!("its process ended with exit code {code}"),
        Some((None, status)) => {
            format!("its process was ended by {status}{}", isolate::limit_reached(status))
        }
        None => "its process does not die".into(),
    }
}

pub(super) const GARBAGE: &str = "it wrote to the descriptors that its context answers on";

fn load<'a>(
    handler: u32,
    tenant: &'a str,
    name: &'a str,
    spec: &'a HandlerSpec,
    check: bool,
) -> Load<'a> {
    Load {
        handler,
        tenant,
        r#type: name,
        body: &spec.body,
        before: spec.before.as_deref(),
        before_each: spec.before_each.as_deref(),
        after_each: spec.after_each.as_deref(),
        check,
    }
}

fn failed(answer: &Answer<'_>) -> Unready {
    let message = answer.message.as_deref().unwrap_or("no reason was given");
    let reason = match answer.stage {
        Some(Stage::Load) | None => message.to_owned(),
        Some(stage) => format!("{} failed: {message}", stage.as_str()),
    };
    Unready::Broken { field: answer.field.as_deref().map(str::to_owned), reason }
}
