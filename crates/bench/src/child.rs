//! Servers and other parts in processes of their own: the bench starts itself again under a role,
//! so that the processor time and the memory of each part can be told apart.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;

use crate::machine::{self, Usage};
use crate::{backlog, server};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Windlass, with a runner that does nothing.
    Windlass,
    /// An HTTP server that reads nothing and always answers the same.
    Empty,
    /// An HTTP server that appends bodies to a file.
    Append,
    /// Windlass without a door, with a queue of a given depth.
    Backlog,
}

impl Role {
    const ALL: [Role; 4] = [Role::Windlass, Role::Empty, Role::Append, Role::Backlog];

    fn name(self) -> &'static str {
        match self {
            Role::Windlass => "serve-windlass",
            Role::Empty => "serve-empty",
            Role::Append => "serve-append",
            Role::Backlog => "run-backlog",
        }
    }

    pub(crate) fn find(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    /// What the child does, with the arguments behind its role.
    pub(crate) fn play(self, mut args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
        let dir = PathBuf::from(args.next().context("a role needs a directory")?);
        if self != Role::Backlog {
            return server::run(self, &dir);
        }
        let mut number = || {
            let text = args.next().and_then(|text| text.into_string().ok());
            text.and_then(|text| text.parse::<u64>().ok()).context("a number is missing")
        };
        let (waiting, phase) = (number()?, Duration::from_millis(number()?));
        backlog::run(&dir, waiting, phase)
    }

    fn command(self, dir: &Path) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("this program cannot find itself")?;
        let mut command = Command::new(program);
        command.arg(self.name()).arg(dir).stdout(Stdio::piped());
        Ok(command)
    }
}

/// A server at work; ends with this value.
pub(crate) struct Server {
    child: std::process::Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(role: Role, dir: &Path) -> anyhow::Result<Server> {
        // The child ends when its input does, so it never outlives this process.
        let mut child = role.command(dir)?.stdin(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("the output is a pipe");
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first)?;
        match first.trim().parse() {
            Ok(address) => Ok(Server { child, address }),
            Err(_) => {
                let status = child.wait()?;
                anyhow::bail!("{} did not start ({status})", role.name())
            }
        }
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        machine::usage(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its data goes with it, so nothing is lost by not asking politely.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a queue of this depth in a child, to its end; what the child measured.
pub(crate) fn run_backlog<T: DeserializeOwned>(
    dir: &Path,
    waiting: u64,
    phase: Duration,
) -> anyhow::Result<T> {
    let mut command = Role::Backlog.command(dir)?;
    command.arg(waiting.to_string()).arg(phase.as_millis().to_string());
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the child that runs the queue failed");
    serde_json::from_slice(&output.stdout).context("the child said something else than figures")
}
