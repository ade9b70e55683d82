//! Runs the commands for backups.

use std::path::Path;

use crate::harness::{Config, Daemon, Finished, Home, run, windlass};

pub(super) fn back_up(home: &Home, to: &Path) -> Finished {
    back_up_from(&home.data(), to)
}

pub(super) fn back_up_from(data_dir: &Path, to: &Path) -> Finished {
    let mut command = windlass();
    command.args(["backup", "--json"]).arg(to).arg("--data-dir").arg(data_dir);
    run(&mut command, b"")
}

pub(super) fn restore(from: &Path, data_dir: &Path, store: Option<&Path>) -> Finished {
    let mut command = windlass();
    command.args(["restore", "--json"]).arg(from).arg("--data-dir").arg(data_dir);
    if let Some(store) = store {
        command.arg("--store").arg(format!("sqlite:{}", store.display()));
    }
    run(&mut command, b"")
}

/// A daemon on a restored data directory of its own; its handlers may write where those of the
/// `old` one did.
pub(super) fn restored(from: &Path, old: &Home) -> Daemon {
    let config = Config::embedded();
    restore(from, &config.home.data(), None).ok();
    let files = format!("[{:?}, {:?}]", config.home.files(), old.files());
    Daemon::start(config.set("isolation.write", &files))
}
