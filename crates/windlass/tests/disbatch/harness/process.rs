//! The program and the processes that it starts.

use std::process::{Command, Stdio};

use windlass_test_kit::process;

/// `windlass` with these arguments, without any settings of the user who runs the tests.
pub(crate) fn windlass(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).stdin(Stdio::null()).env("HOME", "/nonexistent");
    for name in ["WINDLASS_URL", "DISBATCH_URL", "DISBATCH_PASSWORD", "DISBATCH_TOKEN", "RUST_LOG"]
    {
        command.env_remove(name);
    }
    command
}

/// Whether the process of a plugin runs.
pub(crate) fn is_alive(pid: i32) -> bool {
    process::is_alive(pid)
}
