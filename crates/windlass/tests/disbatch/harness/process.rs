//! The program: started as those who use it do.

use std::process::{Command, Stdio};

use windlass_test_kit::process::{self, Ended};

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

/// Runs a program to its end with this on its standard input.
#[track_caller]
pub(crate) fn run(mut command: Command, input: &str) -> Ended {
    process::run(&mut command, input.as_bytes())
}

/// Whether the process of a plugin runs.
pub(crate) fn is_alive(pid: i32) -> bool {
    process::is_alive(pid)
}
