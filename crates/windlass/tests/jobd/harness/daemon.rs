//! The programs: started under their own names, asked, stopped, killed.

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Client, Conf, until, until_some};

/// The binary under the names of the original programs.
static NAMES: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    for name in ["jobd", "jobd-master", "jobctl"] {
        symlink(env!("CARGO_BIN_EXE_windlass"), folder.path().join(name)).unwrap();
    }
    folder
});

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

/// `jobd`, `jobd-master` or `jobctl`.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(NAMES.path().join(name));
    command.stdin(Stdio::null()).env("HOME", NAMES.path());
    command
}

/// What a program left when it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program to its end with this on its standard input.
pub(crate) fn run(mut command: Command, input: &str) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let done = child.wait_with_output().unwrap();
    Ended {
        code: done.status.code(),
        stdout: String::from_utf8(done.stdout).unwrap(),
        stderr: String::from_utf8(done.stderr).unwrap(),
    }
}

pub(crate) struct Daemon {
    child: Child,
    port: u16,
    console: PathBuf,
}

impl Daemon {
    /// Starts `jobd` or `jobd-master` and waits until it listens.
    pub(crate) fn start(name: &str, folder: &Path, conf: &Conf) -> Self {
        let file = folder.join(format!("{name}-{}.conf", conf.port()));
        conf.write(&file);
        let mut command = program(name);
        command.arg("--config").arg(&file);
        let mut daemon = Self::spawn(command, folder, conf.port());
        daemon.listening();
        daemon
    }

    /// Starts a command whose output goes to a file.
    pub(crate) fn spawn(mut command: Command, folder: &Path, port: u16) -> Self {
        let console = folder.join(format!("console-{port}-{}", fastrand::u32(..)));
        let output = File::create(&console).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Self { child: command.spawn().unwrap(), port, console }
    }

    pub(crate) fn listening(&mut self) {
        until("the daemon listens", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended with {status}: {}", self.console());
            }
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
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
        until_some("the daemon ends", || self.child.try_wait().unwrap())
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

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
