//! The program under test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where daemons leave their keys for commands of the same user.
const RUNTIME: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/runtime");
/// Where no keys are saved.
const NO_CONFIG: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/config");

/// `windlass` without the caller's own settings and keys.
pub(crate) fn windlass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    find_keys(&mut command);
    command
}

/// The file that a daemon leaves for commands of its user.
pub(crate) fn runtime_key(address: SocketAddr) -> PathBuf {
    Path::new(RUNTIME).join(format!("windlass/{address}.key"))
}

/// Lets a command find the keys of the tests' daemons, and no others.
pub(crate) fn find_keys(command: &mut Command) {
    std::fs::create_dir_all(RUNTIME).expect("cargo's directory for tests can be written");
    command.env("XDG_RUNTIME_DIR", RUNTIME).env("XDG_CONFIG_HOME", NO_CONFIG);
}
