//! Removes a directory that a handler has filled, even while its processes still change it.
//!
//! Everything is done relative to open directories, and no link is followed. A process that puts a
//! link in place of a directory loses the link; nothing outside is opened, changed or moved.
//! Subdirectories are first moved up into the directory, so that neither depth nor path length nor
//! permissions can stop or harm the daemon.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::fs::{chmod, openat, renameat_with, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;

/// The parent of `path` is ours.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let top = open(CWD, path)?;
    let mut waiting = Vec::new();
    for name in names(&top)? {
        if !unlink(&top, &name)? {
            waiting.push(name);
        }
    }
    let mut moved: u64 = 0;
    while let Some(name) = waiting.pop() {
        if unlinkat(&top, &name, AtFlags::REMOVEDIR).is_ok() || unlink(&top, &name)? {
            continue;
        }
        let current = open(&top, &name)?;
        for inner in names(&current)? {
            if unlink(&current, &inner)? {
                continue;
            }
            // Moving a directory requires permission to write to it.
            drop(open(&current, &inner)?);
            waiting.push(move_up(&current, &inner, &top, &mut moved)?);
        }
        unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

/// Opens a directory, whatever its mode, and makes it accessible.
fn open(parent: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let itself = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(parent, name, itself, Mode::empty())?;
    // Of a descriptor that is only a place, the mode can be changed in no other way.
    chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)?;
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&place, ".", readable, Mode::empty())?)
}

fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Removes an entry unless it is a directory; false if it is one.
fn unlink(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns its new name, which nothing in the directory had before.
fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> io::Result<CString> {
    loop {
        let up = CString::new(format!(".removed-{moved}")).expect("it has no zeros");
        *moved += 1;
        match renameat_with(from, name, top, &up, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            renamed => return Ok(renamed.map(|()| up)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Removals while a process swaps a directory and a link.
    const ROUNDS: usize = 500;

    #[test]
    fn links_are_removed_and_what_they_lead_to_stays() {
        let place = tempfile::tempdir().unwrap();
        let (dir, victim) = (place.path().join("dir"), place.path().join("victim"));
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::create_dir_all(victim.join("inside")).unwrap();
        for link in ["link", "a/link", "a/b/link"] {
            symlink(&victim, dir.join(link)).unwrap();
        }
        remove(&dir).unwrap();
        assert!(!dir.exists() && victim.join("inside").exists());
        symlink(&victim, &dir).unwrap();
        assert!(remove(&dir).is_err() && victim.join("inside").exists());
    }

    /// A process that was left behind puts a link to a foreign directory in place of its own one,
    /// and back, while the directory is removed.
    #[test]
    fn a_directory_that_becomes_a_link_leads_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let (victim, link) = (place.path().join("victim"), place.path().join("link"));
        fs::create_dir_all(victim.join("precious/x")).unwrap();
        fs::write(victim.join("file"), "as it was").unwrap();
        fs::set_permissions(&victim, PermissionsExt::from_mode(0o755)).unwrap();
        let dir = place.path().join("dir");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = symlink(&victim, &link);
                    let swap = RenameFlags::EXCHANGE;
                    let _ = renameat_with(CWD, &link, CWD, dir.join("d"), swap);
                    let _ = fs::remove_dir_all(&link).or_else(|_| fs::remove_file(&link));
                }
            });
            for _ in 0..ROUNDS {
                let _ = fs::create_dir_all(dir.join("d/e/f"));
                let _ = remove(&dir);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read(victim.join("file")).unwrap(), b"as it was");
        assert!(victim.join("precious/x").exists());
        assert_eq!(victim.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    }
}
