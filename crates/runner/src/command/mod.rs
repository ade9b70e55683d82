//! Runs the operator's commands for other crates: in the daemon's own environment, with its
//! privileges, without the isolation of handlers.
//!
//! ```text
//! launch ─► start ─┬─ read both outputs   until the process exits, its time is over, or it is
//!                  └─ time limit, kill    ended; then a short grace for what is left in the pipes
//! ```
//! Processes that the command leaves running are left alone. Their pipes are still read, so that
//! writing to them does not kill them.

mod name;
mod pipe;

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use tokio::io::unix::AsyncFd;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};
use windlass_core::launch::{
    Input, LaunchSpec, Launched, Launcher, Running, SignalTo, is_exhaustion,
};
use windlass_core::sync::lock;

use crate::command::pipe::Pipes;
use crate::tree::Main;
use crate::{Error, os};

/// Attempts to start a command while the machine is at a limit.
const START_TRIES_MAX: u32 = 5;
const START_PAUSE: Duration = Duration::from_millis(100);
/// How long a killed process may take to die. Only one stuck in the kernel takes longer.
const DEATH_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long to wait, after the process has exited, for output of others that hold its pipes. Its
/// own output is in the pipes by then.
const OUTPUT_GRACE: Duration = Duration::from_millis(250);
/// Ended commands whose pipes are still read because other processes hold them. Beyond this number
/// they are closed.
const LINGERING_MAX: usize = 512;

/// Runs commands on this machine.
pub struct CommandLauncher {
    lingering: Arc<Semaphore>,
}

impl CommandLauncher {
    /// Makes this process keep its descriptors to itself and its children's exit codes.
    pub fn new() -> Result<CommandLauncher, Error> {
        os::keep_inherited_descriptors().map_err(Error::System)?;
        os::keep_exit_codes().map_err(Error::System)?;
        Ok(CommandLauncher { lingering: Arc::new(Semaphore::new(LINGERING_MAX)) })
    }
}

impl Launcher for CommandLauncher {
    /// Must be called within a runtime, which then supervises the process.
    fn launch(&self, spec: LaunchSpec) -> Box<dyn Running> {
        let started = Process::start(&spec);
        let control = Arc::new(Control::default());
        if let Ok(process) = &started {
            control.started(process);
        }
        let (sender, ended) = watch::channel(None);
        let (task_control, lingering) = (Arc::clone(&control), Arc::clone(&self.lingering));
        tokio::spawn(async move {
            let launched = match start(started, &spec, &task_control).await {
                Ok(process) => process.supervise(&spec, &task_control, lingering).await,
                Err(reason) => not_started(&spec, &reason),
            };
            sender.send_replace(Some(launched));
        });
        Box::new(Launch { control, ended })
    }
}

/// Controls a command while it runs.
#[derive(Default)]
struct Control {
    /// Becomes readable when the process exits. Absent until it is started.
    exit: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    kill: Notify,
}

impl Control {
    fn started(&self, process: &Process) {
        *self.exit() = Some(Arc::clone(&process.exit));
    }

    fn exit(&self) -> MutexGuard<'_, Option<Arc<AsyncFd<OwnedFd>>>> {
        lock(&self.exit)
    }
}

struct Launch {
    control: Arc<Control>,
    ended: watch::Receiver<Option<Launched>>,
}

#[async_trait]
impl Running for Launch {
    fn signal(&self, signal: SignalTo) -> bool {
        let Some(number) = name::number_of(&signal) else {
            return false;
        };
        let Some(exit) = self.control.exit().clone() else {
            return false;
        };
        // The descriptor refers to this process even after its id has been reused.
        let process = exit.get_ref();
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let exited = rustix::process::waitid(WaitId::PidFd(process.as_fd()), peek);
        let alive = matches!(exited, Ok(None));
        match Signal::from_named_raw(number) {
            Some(signal) => alive && rustix::process::pidfd_send_signal(process, signal).is_ok(),
            None => alive && number == 0,
        }
    }

    fn kill_tree(&self) {
        self.control.kill.notify_one();
    }

    async fn wait(&self) -> Launched {
        let mut ended = self.ended.clone();
        let launched = ended.wait_for(Option::is_some).await;
        let launched = launched.map(|launched| launched.clone()).ok().flatten();
        launched.unwrap_or_else(|| Launched {
            failure: Some("the daemon stopped while it ran".into()),
            ..Launched::default()
        })
    }
}

/// Retries for a while if the machine is at a limit.
async fn start(
    mut started: io::Result<Process>,
    spec: &LaunchSpec,
    control: &Control,
) -> io::Result<Process> {
    for _ in 1..START_TRIES_MAX {
        match started {
            Err(reason) if is_exhaustion(&reason) => sleep(START_PAUSE).await,
            other => return other,
        }
        started = Process::start(spec);
        if let Ok(process) = &started {
            control.started(process);
        }
    }
    started
}

fn not_started(spec: &LaunchSpec, reason: &io::Error) -> Launched {
    let failure = match reason.raw_os_error() {
        Some(errno) => format!("spawn {} {}", spec.program, name::of_errno(errno)),
        None => format!("spawn {}: {reason}", spec.program),
    };
    Launched { failure: Some(failure), exhausted: is_exhaustion(reason), ..Launched::default() }
}

struct Process {
    /// Holds standard input if that stays open; nothing is ever written to it.
    main: Main,
    exit: Arc<AsyncFd<OwnedFd>>,
    pipes: Pipes,
}

impl Process {
    fn start(spec: &LaunchSpec) -> io::Result<Process> {
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).envs(spec.env.iter().map(|(name, value)| (name, value)));
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        // Its own group, so that killing the group does not kill the daemon.
        command.process_group(0);
        command.stdin(match spec.input {
            Input::Open => Stdio::piped(),
            Input::Ended => Stdio::null(),
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let main = Main::start_command(&mut command)?;
        Process::watch(main, spec.output_bytes_max).map_err(|reason| {
            // Not reported as exhaustion: the caller would start it a second time.
            io::Error::other(format!("it was ended at its start: {reason}"))
        })
    }

    /// If this fails, the process is killed.
    fn watch(mut main: Main, output_bytes_max: usize) -> io::Result<Process> {
        let piped = "its outputs are piped";
        let stdout = ChildStdout::from_std(main.child.stdout.take().expect(piped))?;
        let stderr = ChildStderr::from_std(main.child.stderr.take().expect(piped))?;
        let exit = Arc::new(os::exit_of(main.pid())?);
        Ok(Process { main, exit, pipes: Pipes::new(stdout, stderr, output_bytes_max) })
    }

    async fn supervise(
        self,
        spec: &LaunchSpec,
        control: &Control,
        lingering: Arc<Semaphore>,
    ) -> Launched {
        let Process { mut main, exit, mut pipes } = self;
        let limit = async {
            match spec.time_limit {
                Some(limit) => sleep(limit).await,
                None => pending().await,
            }
        };
        let mut limit = std::pin::pin!(limit);
        let (killed, timed_out) = loop {
            tokio::select! {
                _ = exit.readable() => break (false, false),
                () = control.kill.notified() => break (true, false),
                () = &mut limit => break (true, true),
                () = pipes.read(), if pipes.are_open() => {}
            }
        };
        if killed {
            main.tree.kill();
        }
        let dead = wait_for_death(&exit, &mut pipes).await;
        if !dead {
            // It runs as another user, or is stuck in the kernel.
            let process = main.pid().as_raw_pid();
            tracing::error!(process, "a process that was killed does not die");
        }
        let _ = timeout(OUTPUT_GRACE, pipes.read_to_end()).await;
        // If it is still alive, dropping `main` kills it once more.
        let status = if dead { main.reap().ok() } else { None };
        let (stdout, stderr) = pipes.taken();
        if let (true, Ok(permit)) = (pipes.are_open(), lingering.try_acquire_owned()) {
            tokio::spawn(async move {
                pipes.read_to_end().await;
                drop(permit);
            });
        }
        Launched {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()).map(name::of_signal),
            stdout,
            stderr,
            timed_out,
            failure: None,
            exhausted: false,
        }
    }
}

/// Keeps reading meanwhile, because a process may be blocked on a write. False if it does not die.
async fn wait_for_death(exit: &AsyncFd<OwnedFd>, pipes: &mut Pipes) -> bool {
    let mut given_up = std::pin::pin!(sleep(DEATH_WAIT_MAX));
    loop {
        tokio::select! {
            _ = exit.readable() => return true,
            () = &mut given_up => return false,
            () = pipes.read(), if pipes.are_open() => {}
        }
    }
}
