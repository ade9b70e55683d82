//! The daemon's files hold payloads, so other users get no access to them.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, ensure};

const FILE_MODE: u32 = 0o600;
/// The rights of the group and of everybody else.
const OTHERS: u32 = 0o077;
/// SQLite's files beside a store.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What a data directory of ours has.
const OURS: [&str; 3] = ["place", "journal", "store.db"];
const STICKY: u32 = 0o1000;

/// Closes a data directory. One that holds files of others is not ours to close, so it is refused.
pub(crate) fn close_data_dir(dir: &Path) -> anyhow::Result<()> {
    let mode = dir.metadata()?.permissions().mode();
    let is_ours = OURS.iter().any(|name| dir.join(name).exists());
    let is_shared = mode & STICKY != 0 || (!is_ours && dir.read_dir()?.next().is_some());
    ensure!(
        mode & OTHERS == 0 || !is_shared,
        "other users have access to {0}, and it holds files that are not Windlass's: choose \
         another data directory, or close it (chmod go= {0})",
        dir.display()
    );
    close(dir)
}

/// Takes the rights of other users away, if they have any.
fn close(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let closed = close_io(path).with_context(|| {
        format!("other users have access to {shown}, and it cannot be closed (chmod go= {shown})")
    })?;
    if let Some(mode) = closed {
        tracing::warn!(path = %shown, mode = format!("{mode:o}"), "closed to other users");
    }
    Ok(())
}

/// The mode before, if it had to be changed.
fn close_io(path: &Path) -> io::Result<Option<u32>> {
    let mode = path.metadata()?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(Some(mode))
}

/// Makes a store's file closed to others, if missing, and closes what is there. An empty file
/// is a new store for SQLite, which gives the files beside it the same mode.
pub(crate) fn close_store(file: &Path) -> anyhow::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(file);
    match made {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => close(file)?,
        // Opening the store says what is wrong.
        Err(_) => return Ok(()),
    }
    for suffix in BESIDE {
        let mut beside = file.as_os_str().to_owned();
        beside.push(suffix);
        let beside = Path::new(&beside);
        if beside.exists() {
            close(beside)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn only_the_rights_of_others_are_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        for (before, after) in [(0o755, 0o700), (0o777, 0o700), (0o750, 0o700), (0o700, 0o700)] {
            fs::set_permissions(dir.path(), Permissions::from_mode(before)).unwrap();
            close(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), after);
        }
        assert!(close(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn a_directory_with_files_of_others_is_refused_unless_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        set(0o755);
        close_data_dir(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700, "an empty one is closed");
        fs::write(dir.path().join("thesis"), "x").unwrap();
        close_data_dir(dir.path()).unwrap();
        set(0o755);
        let refused = close_data_dir(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("choose another data directory"), "{refused}");
        assert_eq!(mode(dir.path()), 0o755);
        fs::write(dir.path().join("place"), "1").unwrap();
        close_data_dir(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700, "it is ours");
        set(0o1777);
        assert!(close_data_dir(dir.path()).is_err(), "as /tmp");
    }

    #[test]
    fn a_store_and_the_files_beside_it_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new.db"), dir.path().join("old.db"));
        close_store(&new).unwrap();
        assert_eq!((mode(&new), fs::read(&new).unwrap().len()), (0o600, 0));
        for name in ["old.db", "old.db-wal"] {
            fs::write(dir.path().join(name), "x").unwrap();
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o644)).unwrap();
        }
        close_store(&old).unwrap();
        assert_eq!((mode(&old), mode(&dir.path().join("old.db-wal"))), (0o600, 0o600));
        assert_eq!(fs::read(&old).unwrap(), b"x");
    }
}
