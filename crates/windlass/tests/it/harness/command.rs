//! The program under test.

use std::process::Command;

/// `windlass` without the caller's own WINDLASS settings.
pub(crate) fn windlass() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command
}
