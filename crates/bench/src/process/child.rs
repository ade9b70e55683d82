//! Servers and other parts in their own processes: the bench starts itself again under a role, so
//! that the CPU time and the memory of each part are known.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{backlog, warm};
use crate::jobd::{self, Program, poke, spawn};
use crate::machine::{self, Usage};
use crate::process::server;

/// The role of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Serve(Role),
    /// Windlass without a door, with a queue of a given depth and a runner that does nothing.
    Backlog,
    /// Windlass without a door, with handlers in warm contexts.
    Warm,
    Jobd(Program),
    /// Commands that are run without a table.
    Spawn,
    /// Such a command: it reports that it has started.
    ReportStart,
}

/// The servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Windlass with both its doors, and a runner that does nothing.
    Windlass,
    /// An HTTP server that reads nothing and always answers the same.
    Empty,
    /// An HTTP server that appends bodies to a file.
    Append,
}

impl Part {
    const ALL: [Part; 9] = [
        Part::Serve(Role::Windlass),
        Part::Serve(Role::Empty),
        Part::Serve(Role::Append),
        Part::Backlog,
        Part::Warm,
        Part::Jobd(Program::Worker),
        Part::Jobd(Program::Master),
        Part::Spawn,
        Part::ReportStart,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Serve(Role::Windlass) => "serve-windlass",
            Part::Serve(Role::Empty) => "serve-empty",
            Part::Serve(Role::Append) => "serve-append",
            Part::Backlog => "run-backlog",
            Part::Warm => "run-warm",
            Part::Jobd(Program::Worker) => "serve-jobd",
            Part::Jobd(Program::Master) => "serve-jobd-master",
            Part::Spawn => "run-commands",
            Part::ReportStart => "tell-start",
        }
    }

    pub(crate) fn find(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name)
    }

    /// Runs the child's part, with the arguments after its name.
    pub(crate) fn run_as_child(
        self,
        mut args: impl Iterator<Item = OsString>,
    ) -> anyhow::Result<()> {
        let dir = PathBuf::from(args.next().context("a part needs a directory")?);
        let plan = args.next().unwrap_or_default();
        let plan = plan.as_encoded_bytes();
        match self {
            Part::Serve(role) => server::run(role, &dir),
            Part::Backlog => backlog::run(&dir, &serde_json::from_slice(plan)?),
            Part::Warm => warm::run(&dir, &serde_json::from_slice(plan)?),
            Part::Jobd(program) => jobd::run(program, &dir),
            Part::Spawn => spawn::run(&serde_json::from_slice(plan)?),
            Part::ReportStart => poke::report_start(std::str::from_utf8(plan)?),
        }
    }

    fn command(self, dir: &Path) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("this program cannot find itself")?;
        let mut command = Command::new(program);
        command.arg(self.name()).arg(dir).stdout(Stdio::piped());
        Ok(command)
    }

    /// Runs the part with this plan in a child, to its end; returns what the child measured.
    pub(crate) fn run<T: DeserializeOwned>(
        self,
        dir: &Path,
        plan: &impl Serialize,
    ) -> anyhow::Result<T> {
        let mut command = self.command(dir)?;
        let output = command.arg(serde_json::to_string(plan)?).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "the child failed: {}", self.name());
        serde_json::from_slice(&output.stdout)
            .context("the child printed something other than figures")
    }
}

/// A running server; ends with this value.
pub(crate) struct Server {
    child: std::process::Child,
    /// Its HTTP address.
    pub(crate) address: SocketAddr,
    /// Its Bedrock address, if it has one.
    bedrock: Option<SocketAddr>,
}

impl Server {
    pub(crate) fn start(role: Role, dir: &Path) -> anyhow::Result<Server> {
        Server::begin(Part::Serve(role), dir)
    }

    pub(crate) fn begin(part: Part, dir: &Path) -> anyhow::Result<Server> {
        // The child ends with its standard input, so it never outlives this process.
        let mut child = part.command(dir)?.stdin(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("the output is a pipe");
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first)?;
        let mut addresses = first.split_whitespace().map_while(|address| address.parse().ok());
        match (addresses.next(), addresses.next()) {
            (Some(address), bedrock) => Ok(Server { child, address, bedrock }),
            (None, _) => {
                let status = child.wait()?;
                anyhow::bail!("{} did not start ({status})", part.name())
            }
        }
    }

    pub(crate) fn bedrock(&self) -> anyhow::Result<SocketAddr> {
        self.bedrock.context("this server does not speak Bedrock's protocol")
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        machine::usage(&self.child.id().to_string())
    }

    /// CPU time of its children.
    pub(crate) fn children_cpu(&self) -> anyhow::Result<Duration> {
        Ok(machine::family(&self.child.id().to_string())?.cpu)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its data is removed with it, so there is nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
