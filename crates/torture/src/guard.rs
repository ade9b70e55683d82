//! Guards: clean up when this program is gone, in whatever way that happened.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Acts when its input ends. A line of input means that there is nothing to do.
const SCRIPT: &str = "trap '' INT TERM HUP QUIT; read -r line || ";

pub(crate) struct Guard(Child);

impl Guard {
    /// Kills a process.
    pub(crate) fn of_process(pid: u32) -> Result<Guard> {
        Guard::new("kill -9 \"$0\"", &[pid.to_string().as_ref()])
    }

    /// Unmounts everything at a place and removes a file. Processes that still
    /// use the place keep it until they end.
    pub(crate) fn of_mount(place: &Path, file: &Path) -> Result<Guard> {
        let act = "{ while umount -l \"$0\"; do :; done; rm -f \"$1\"; }";
        Guard::new(act, &[place.as_os_str(), file.as_os_str()])
    }

    /// In a process group of its own, because what kills us may kill our whole group.
    fn new(act: &str, arguments: &[&OsStr]) -> Result<Guard> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{SCRIPT}{act}")).args(arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard(command.spawn().context("cannot start sh")?))
    }
}

/// All is done, or its owner does it.
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
        drop(Guard::of_process(sleeper.pid()).unwrap());
        assert!(sleeper.alive());
        let mut guard = Guard::of_process(sleeper.pid()).unwrap();
        // As the kernel does when we are killed.
        drop(guard.0.stdin.take());
        assert!(!sleeper.ended().success());
    }
}
