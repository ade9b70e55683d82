//! The program: started, watched, signalled, killed.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::until_some;

/// Below the ports that the system and the database servers choose from.
static NEXT_PORT: LazyLock<AtomicU16> =
    LazyLock::new(|| AtomicU16::new(10_000 + u16::try_from(std::process::id() % 8_000).unwrap()));

pub(crate) fn free_port() -> u16 {
    loop {
        let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// `windlass` with these arguments, without anything of the user who runs the tests.
pub(crate) fn windlass(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).stdin(Stdio::null()).env("HOME", "/nonexistent");
    for name in ["WINDLASS_URL", "DISBATCH_URL", "DISBATCH_PASSWORD", "DISBATCH_TOKEN", "RUST_LOG"]
    {
        command.env_remove(name);
    }
    command
}

/// What a program left when it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    fn of(child: Child) -> Self {
        let done = child.wait_with_output().unwrap();
        Self {
            code: done.status.code(),
            stdout: String::from_utf8(done.stdout).unwrap(),
            stderr: String::from_utf8(done.stderr).unwrap(),
        }
    }
}

/// Runs a program to its end with this on its standard input.
pub(crate) fn run(mut command: Command, input: &str) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Ended::of(child)
}

/// One that goes on until it is ended; what it prints goes to a file.
pub(crate) struct Program {
    child: Child,
    console: PathBuf,
}

impl Program {
    pub(crate) fn spawn(mut command: Command, folder: &Path) -> Self {
        let console = folder.join(format!("console-{:08x}", fastrand::u32(..)));
        let output = File::create(&console).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Self { child: command.spawn().unwrap(), console }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap()).into_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub(crate) fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        until_some("the program ends", || self.child.try_wait().unwrap())
    }

    /// Ends it as an administrator does.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
