//! Starts contexts: a process with the bootstrap of its language, then the greeting, then the
//! handler's source.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::Pid;
use tokio::time::Instant;
use windlass_core::limit::RESULT_BYTES_MAX;
use windlass_core::runner::Stop;
use windlass_core::{AttemptId, Handler, HandlerId, HandlerSpec, TypeName};

use super::Equipped;
use super::frame::encode;
use super::halt::Halt;
use super::language::Language;
use super::message::{ContextAnswer, Kind, Load, PROTOCOL, Request, Stage};
use super::pool::Permit;
use super::process::{ContextEvent, Process};
use crate::Ground;
use crate::isolate::{self, Channels, Order, ProcessCounter};
use crate::launch::{Environment, NotStarted};
use crate::output::Output;
use crate::proc;
use crate::scratch::AttemptDir;
use crate::stop::Watch;
use crate::tree::Main;

/// The lowest descriptor number for the daemon's end of a channel.
const NUMBER_MIN: i32 = 10;
/// Requested size of the channel's pipes, so that a batch and its answers fit. Optional.
const PIPE_BYTES: usize = 256 * 1024;
/// Handlers that share one context; further ones get a new context.
pub(super) const LOADED_MAX: usize = 64;

/// Everything needed to start contexts for one handler.
pub(super) struct Starter {
    pub(super) language: &'static Language,
    pub(super) interpreter: PathBuf,
    pub(super) ground: Arc<Ground>,
    pub(super) equipped: Equipped,
    /// How long the interpreter may take to answer the greeting.
    pub(super) greeting_max: Duration,
}

/// A context that has answered the greeting. Handlers are loaded into it as needed.
pub(super) struct Context {
    pub(super) process: Process,
    /// What it writes to its ordinary outputs between jobs, on request.
    pub(super) mark: Vec<u8>,
    pub(super) loaded: Vec<Loaded>,
    /// Processes that existed after the last load: they belong to the handler, not to a job.
    pub(super) kept: HashSet<Pid>,
    /// The machine's newest process at the last search for leftovers.
    newest_process: Option<u32>,
    /// Jobs that it has received.
    pub(super) jobs: u32,
    /// Consecutive jobs without a byte on its ordinary outputs.
    pub(super) quiet_jobs: u32,
    /// Absent if it exists only for one compilation.
    pub(super) _permit: Option<Permit>,
}

/// A loaded handler; its number is its index in the list.
pub(super) struct Loaded {
    pub(super) id: HandlerId,
    pub(super) name: TypeName,
}

/// Why a handler is not ready to run.
pub(super) enum Unready {
    /// The machine temporarily lacks something.
    Exhausted(io::Error),
    /// The handler's fault; the text is for its author. The context may still be alive.
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
        let network = self.equipped.handler.spec.options.network.as_ref();
        // Names may have to be looked up for it.
        let policy = tokio::select! {
            policy = self.ground.policies.policy(network) => policy,
            (_, why) = watch.stopped(ids) => return Err(Unready::Stopped(why)),
        };
        let spawn = move || starter.spawn(policy.to_string());
        let spawned = tokio::task::spawn_blocking(spawn).await;
        let spawned = spawned.map_err(|failed| Unready::broken(failed.to_string()))??;
        let own = &self.equipped.handler.spec.options.limits;
        let counter = ProcessCounter::new(self.ground.isolation.effective(own).processes);
        let process = Process::new(spawned, counter).map_err(Unready::Exhausted)?;
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
        let limit = Instant::now() + self.greeting_max;
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

    /// Starts the process. Blocks for some milliseconds.
    fn spawn(&self, network: String) -> Result<Spawned, NotStarted> {
        let Equipped { handler, secrets, .. } = &self.equipped;
        let dir = self.ground.scratch.attempt(handler.id).map_err(NotStarted::Exhausted)?;
        let (file, bootstrap) = (self.language.file, self.language.bootstrap);
        dir.hand(file, bootstrap.as_bytes()).map_err(NotStarted::Exhausted)?;
        let (theirs_in, requests) = channel().map_err(NotStarted::Exhausted)?;
        let (answers, theirs_out) = channel().map_err(NotStarted::Exhausted)?;
        let (halt, theirs_halt) = Halt::new().map_err(NotStarted::Exhausted)?;
        let theirs_halt = moved(&theirs_halt).map_err(NotStarted::Exhausted)?;
        let options = &handler.spec.options;
        let places = self.ground.isolation.places(&dir);
        let mut argv: Vec<OsString> = vec![self.interpreter.clone().into()];
        argv.extend(self.language.flags.iter().map(OsString::from));
        argv.push(places.inbox.join(file).into());
        let mut env = Environment::new(&self.ground.path, &places, &options.env);
        env.add_secrets(secrets);
        env.set("WINDLASS_TENANT", handler.key.tenant.as_str());
        let order = Order {
            argv,
            env: env.finish(&places),
            stdin: Stdio::null(),
            channels: Some(Channels {
                requests: theirs_in,
                answers: theirs_out,
                halt: theirs_halt,
            }),
            dir: &dir,
            program: &self.interpreter,
            tenant: &handler.key.tenant,
            limits: &options.limits,
            network,
        };
        let main = self.ground.isolation.start(order, &self.ground.scratch.gate)?;
        Ok(Spawned { main, dir, inbox: places.inbox, requests, answers, halt })
    }
}

/// A started process, and our ends of its pipes.
pub(super) struct Spawned {
    pub(super) main: Main,
    pub(super) dir: AttemptDir,
    /// Where it finds what it is handed.
    pub(super) inbox: PathBuf,
    pub(super) requests: OwnedFd,
    pub(super) answers: OwnedFd,
    pub(super) halt: Halt,
}

/// A pipe, reading end first. Neither end has a number that a context uses itself: copying one onto
/// its own number would leave it close-on-exec, and onto the other end's would close that.
fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((moved(&reader)?, moved(&writer)?))
}

/// Moves the descriptor to a number that no context uses itself.
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

    /// Loads the handler and runs its `before`; returns how long that took.
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

    /// Only compiles.
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

    /// Kills what the jobs of a batch left running. Walks through `/proc` only if some process was
    /// started on this machine since the last time.
    pub(super) fn end_leftovers(&mut self) {
        let newest = proc::newest();
        if self.newest_process != newest || newest.is_none() {
            self.process.end_leftovers(&self.kept);
            self.newest_process = newest;
        }
    }

    /// Waits for the answer of this kind; output meanwhile goes to `output`.
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
                ContextEvent::Raw(stream, bytes) => output.push(stream, &bytes),
                ContextEvent::Answer(frame) => match ContextAnswer::parse(&frame) {
                    Some(answer) if answer.kind == wanted => {
                        let speaks = wanted != Kind::Ready || answer.protocol == Some(PROTOCOL);
                        return speaks.then(|| answer.us()).ok_or(Unready::broken(GARBAGE));
                    }
                    Some(answer) if answer.kind == Kind::Output => answer.output_to(output),
                    Some(answer) if answer.kind == Kind::Failed => return Err(failed(&answer)),
                    _ => return Err(Unready::broken(GARBAGE)),
                },
                ContextEvent::InvalidFrame => return Err(Unready::broken(GARBAGE)),
                ContextEvent::Exited => return Err(Unready::broken(self.exited(output).await)),
                ContextEvent::Stopped(_, why) => return Err(Unready::Stopped(why)),
                ContextEvent::OverLimit(reason) => {
                    self.process.kill().await;
                    return Err(Unready::broken(reason));
                }
                // It may have answered in time without being read.
                ContextEvent::TimedOut if !is_late => {
                    is_late = true;
                    self.process.read_channel();
                }
                ContextEvent::TimedOut if wanted == Kind::Loaded => {
                    return Err(Unready::broken("before timed out"));
                }
                ContextEvent::TimedOut => {
                    return Err(Unready::broken("its interpreter does not answer"));
                }
            }
        }
    }

    /// Why the process exited by itself.
    async fn exited(&mut self, output: &mut Output) -> String {
        let status = self.process.wait_for_exit().await;
        for (stream, bytes) in self.process.drain_all() {
            output.push(stream, &bytes);
        }
        output.end();
        describe_exit(status)
    }
}

/// How a process ended unexpectedly.
pub(super) fn describe_exit(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status)) {
        Some((Some(code), _)) => format!("its process ended with exit code {code}"),
        Some((None, status)) => {
            format!("its process was {}", isolate::describe_end(status))
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

fn failed(answer: &ContextAnswer<'_>) -> Unready {
    let message = answer.message.as_deref().unwrap_or("no reason was given");
    let reason = match answer.stage {
        Some(Stage::Load) | None => message.to_owned(),
        Some(stage) => format!("{} failed: {message}", stage.as_str()),
    };
    Unready::Broken { field: answer.field.as_deref().map(str::to_owned), reason }
}
