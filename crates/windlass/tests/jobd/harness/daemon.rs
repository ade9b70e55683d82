//! The programs: started under their own names, queried, stopped, killed.

use std::fs;
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use windlass_test_kit::process::Program;

use super::{Client, Conf};

/// The binary under the names of the original programs, among cargo's files.
static NAMES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jobd-names");
    fs::create_dir_all(folder.join("home")).unwrap();
    for name in ["jobd", "jobd-master", "jobctl"] {
        let new = folder.join(format!("{name}-{:016x}", fastrand::u64(..)));
        symlink(env!("CARGO_BIN_EXE_windlass"), &new).unwrap();
        fs::rename(new, folder.join(name)).unwrap();
    }
    folder
});

/// `jobd`, `jobd-master` or `jobctl`.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(NAMES.join(name));
    command.stdin(Stdio::null()).env("HOME", NAMES.join("home"));
    command
}

/// A program that listens on its port.
pub(crate) struct Daemon {
    program: Program,
    port: u16,
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

    pub(crate) fn spawn(command: Command, folder: &Path, port: u16) -> Self {
        Self { program: Program::spawn(command, folder), port }
    }

    #[track_caller]
    pub(crate) fn listening(&mut self) {
        let port = self.port;
        let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
        self.program.until_some("the daemon listens", connect);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }
}

impl Deref for Daemon {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}
