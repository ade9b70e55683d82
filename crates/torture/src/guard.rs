//! A daemon's guard: kills it when this program is gone, in whatever way that happened.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Kills a process (`$0`) when its input ends. A line of input means that there is nothing to do.
const SCRIPT: &str = "trap '' INT TERM HUP QUIT; read -r line || kill -9 \"$0\"";

pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn of(pid: u32) -> Result<Guard> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, &pid.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard(command.spawn().context("cannot start sh")?))
    }
}

/// The process has ended, or its owner ends it.
impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_test_kit::process::Tied;

    #[test]
    fn it_kills_only_if_it_was_not_told_that_all_is_done() {
        let mut sleeper = Tied::spawn(Command::new("sleep").arg("1000"));
        drop(Guard::of(sleeper.pid()).unwrap());
        assert!(sleeper.alive());
        let mut guard = Guard::of(sleeper.pid()).unwrap();
        // As the kernel does when we are killed.
        drop(guard.0.stdin.take());
        assert!(!sleeper.ended().success());
    }
}
