//! Runs a program to its end, within the deadline.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use super::wait::until_some;

/// How a program ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Finished {
    /// `None`: ended by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Standard output of a success.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    pub(crate) fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?}"))
    }
}

/// The program under test, without the caller's own WINDLASS settings.
pub(crate) fn windlass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command
}

/// Starts the command, feeds it `input`, and waits for its end.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Finished {
    let what = format!("{command:?} ends");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stdout = collect(child.stdout.take().expect("stdout is piped"));
    let stderr = collect(child.stderr.take().expect("stderr is piped"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A program that does not read its input may close it early; that is its right.
    let _ = stdin.write_all(input);
    drop(stdin);
    let mut child = KillOnDrop(child);
    let status = until_some(&what, || child.0.try_wait().expect("the child is ours"));
    Finished {
        code: status.code(),
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: stderr.join().expect("the reader does not panic"),
    }
}

/// Whether a process still runs. One that has ended but is not yet waited for by its parent does
/// not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    !text.lines().any(|line| line.starts_with("State:") && line.contains('Z'))
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
