//! The daemon's files hold payloads, so other users get no access to them.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, ensure};

const FILE_MODE: u32 = 0o600;
/// The rights of the group and of everybody else.
const OTHERS: u32 = 0o077;
/// Of directories that everybody may write to, such as `/tmp`.
const STICKY: u32 = 0o1000;
/// SQLite's files beside a store.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What is in a data directory of ours.
const OURS: [&str; 8] =
    ["place", "journal", "payload", "scratch", "restoring", "store.db", "admin.key", "secrets.key"];
/// What is in every new file system.
const NOBODYS: &str = "lost+found";

/// Closes a data directory; returns its mode before, if that was changed. One that holds files of
/// others is not ours to close, so it is refused.
pub(crate) fn close_data_dir(dir: &Path) -> anyhow::Result<Option<u32>> {
    let shown = dir.display();
    ensure!(
        mode(dir)? & OTHERS == 0 || !is_shared(dir)?,
        "other users have access to {shown}, and it holds files that are not Windlass's: choose \
         another data directory, or close it (chmod go= {shown})"
    );
    close(dir)
}

/// Whether others keep files here too.
fn is_shared(dir: &Path) -> io::Result<bool> {
    let names: Vec<_> =
        dir.read_dir()?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    let is_ours = |name: &OsString| {
        OURS.iter().any(|ours| name.as_encoded_bytes().starts_with(ours.as_bytes()))
    };
    let is_foreign = |name: &OsString| name != NOBODYS && !is_ours(name);
    let is_public = mode(dir)? & STICKY != 0;
    Ok(names.iter().any(is_foreign) && (is_public || !names.iter().any(is_ours)))
}

fn mode(path: &Path) -> io::Result<u32> {
    Ok(path.metadata()?.permissions().mode() & 0o7777)
}

/// Takes the rights of other users away; returns the mode before if they had any.
fn close(path: &Path) -> anyhow::Result<Option<u32>> {
    let before = mode(path)?;
    if before & OTHERS == 0 {
        return Ok(None);
    }
    let shown = path.display();
    fs::set_permissions(path, Permissions::from_mode(before & !OTHERS)).with_context(|| {
        format!("other users have access to {shown}, and it cannot be closed (chmod go= {shown})")
    })?;
    Ok(Some(before))
}

/// Makes the file of a new store, for its owner alone. An empty file is a new store for SQLite,
/// which gives the files beside it the same mode.
pub(crate) fn make_store(file: &Path) {
    // If this fails, opening the store says why.
    let _ = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(file);
}

/// Closes a store that was there before; returns its mode before, if that was changed.
pub(crate) fn close_store(file: &Path) -> anyhow::Result<Option<u32>> {
    for suffix in BESIDE {
        let mut beside = file.as_os_str().to_owned();
        beside.push(suffix);
        if Path::new(&beside).exists() {
            close(Path::new(&beside))?;
        }
    }
    close(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_the_rights_of_others_are_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        for before in [0o755, 0o777, 0o750, 0o1777] {
            set(dir.path(), before);
            assert_eq!(close_data_dir(dir.path()).unwrap(), Some(before));
            assert_eq!(mode(dir.path()).unwrap() & 0o777, 0o700);
        }
        assert_eq!(close_data_dir(dir.path()).unwrap(), None);
        assert!(close_data_dir(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn a_directory_with_files_of_others_is_refused_unless_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        set(dir.path(), 0o755);
        assert!(close_data_dir(dir.path()).is_ok(), "a new file system");
        fs::write(dir.path().join("thesis"), "x").unwrap();
        assert!(close_data_dir(dir.path()).is_ok(), "it is closed");
        set(dir.path(), 0o755);
        let refused = close_data_dir(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("choose another data directory"), "{refused}");
        assert_eq!(mode(dir.path()).unwrap(), 0o755);
        fs::write(dir.path().join("place"), "1").unwrap();
        assert!(close_data_dir(dir.path()).is_ok(), "it is ours");
        set(dir.path(), 0o1777);
        assert!(close_data_dir(dir.path()).is_err(), "as /tmp");
    }

    #[test]
    fn a_store_and_the_files_beside_it_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new.db"), dir.path().join("old.db"));
        make_store(&new);
        assert_eq!((mode(&new).unwrap(), fs::read(&new).unwrap().len()), (0o600, 0));
        for name in ["old.db", "old.db-wal"] {
            fs::write(dir.path().join(name), "x").unwrap();
            set(&dir.path().join(name), 0o644);
        }
        make_store(&old);
        assert_eq!(close_store(&old).unwrap(), Some(0o644));
        assert_eq!(mode(&old).unwrap(), 0o600);
        assert_eq!(mode(&dir.path().join("old.db-wal")).unwrap(), 0o600);
        assert_eq!(fs::read(&old).unwrap(), b"x");
    }
}
