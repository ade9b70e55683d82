//! Other users of the machine look into the daemon's files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::Daemon;
use crate::users::as_both_users;

/// Any user who is neither the daemon's nor root.
const STRANGER: u32 = 65_533;

/// What a stranger can read of these.
fn readable(paths: &[PathBuf]) -> Vec<&Path> {
    let reads = |path: &&PathBuf| {
        let mut cat = Command::new("cat");
        cat.arg(path).uid(STRANGER).gid(STRANGER);
        cat.output().unwrap().status.success()
    };
    paths.iter().filter(reads).map(PathBuf::as_path).collect()
}

fn all_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_below(&path) } else { vec![path] }).collect()
}

#[test]
fn b14_a_data_directory_that_others_could_read_is_closed() {
    as_both_users(|config| {
        fs::set_permissions(config.home.dir(), Permissions::from_mode(0o755)).unwrap();
        let mut daemon = Daemon::start(config.clone());
        let id = daemon.tenant("a").add_one("t", "payload");
        daemon.tenant("a").add_one("large", &"x".repeat(3 << 20));
        let data = config.home.data();
        assert_eq!(readable(&all_below(&data)), [] as [&Path; 0], "as it was made");
        assert!(daemon.terminate().success());
        drop(daemon);
        fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(data.join("store.db"), Permissions::from_mode(0o666)).unwrap();
        let files = all_below(&data);
        assert!(readable(&files).contains(&&*data.join("store.db")), "the control");
        let daemon = Daemon::start(config);
        assert_eq!(readable(&all_below(&data)), [] as [&Path; 0]);
        assert_eq!(daemon.tenant("a").job(&id)["state"], "queued");
    });
}
