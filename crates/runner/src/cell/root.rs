//! The private root of a cell: what the language needs, read-only; its own `/proc`; a few devices;
//! and one place to write to, of a limited size. Nothing else of the machine is there.
//!
//! ```text
//! /usr /lib /etc/… …   as outside, read-only
//! /proc                of the cell's own processes
//! /dev                 null, zero, full, random, urandom, tty
//! /job/work            working directory and HOME ┐
//! /job/tmp, /tmp       TMPDIR                     ├ one file system in memory, of a limited size
//! /job/shm, /dev/shm                              ┘
//! /job/in              what the daemon hands over, read-only
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::plan::{Room, User};
use super::sys::{c_string, copy_mount, mount, mount_copy, pivot_here, restrict_mount, unmount};

/// Where the process works, and where it finds what the daemon hands over.
pub(crate) const JOB: &str = "/job";
pub(crate) const WORK: &str = "/job/work";
pub(crate) const TMP: &str = "/tmp";
pub(crate) const INBOX: &str = "/job/in";
const SHARED_MEMORY: &str = "/dev/shm";
/// Where the scratch space is mounted, in this order.
const SCRATCH: [&str; 3] = [JOB, TMP, SHARED_MEMORY];

/// What every process may use.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", ZERO, FULL, "/dev/random", "/dev/urandom", "/dev/tty"];
const ZERO: &str = "/dev/zero";
const FULL: &str = "/dev/full";
/// Links that programs expect.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Bytes of scratch space for each file that may exist in it.
const BYTES_PER_FILE: u64 = 4096;
/// Symbolic links that are followed in one path.
const LINKS_MAX: usize = 40;

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | SAFE;
const SAFE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const BIND: libc::c_ulong = libc::MS_BIND | libc::MS_REC;
const PLAIN: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV;

/// Builds the root and moves into it. Needs a mount namespace of its own.
/// `without_shared_memory` leaves no device that makes memory which processes share.
pub(super) fn enter(room: &Room, without_shared_memory: bool) -> io::Result<Renewal> {
    let nothing = Path::new("none");
    mount(nothing, Path::new("/"), c"", libc::MS_REC | libc::MS_PRIVATE, c"")?;
    mount(Path::new("tmpfs"), &room.base, c"tmpfs", PLAIN, c"mode=0755,size=1m")?;
    let root = Root { base: &room.base };
    root.make_dir("/proc")?;
    let proc = PLAIN | libc::MS_NOEXEC;
    mount(Path::new("proc"), &root.at("/proc"), c"proc", proc, c"")?;
    root.make_devices(without_shared_memory)?;
    root.make_scratch(room)?;
    root.show_inbox(room)?;
    // After all else: an operator may show what lies below /tmp.
    let (mut shown, mut links) = (Vec::new(), Vec::new());
    root.show_all(&room.read, READ_ONLY, &mut shown, &mut links)?;
    root.show_all(&room.write, SAFE, &mut shown, &mut links)?;
    std::env::set_current_dir(&room.base)?;
    pivot_here()?;
    let fixed = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | PLAIN;
    mount(nothing, Path::new("/"), c"", fixed, c"")?;
    let in_scratch = |path: &PathBuf| SCRATCH.iter().any(|place| path.starts_with(place));
    shown.retain(in_scratch);
    shown.push(INBOX.into());
    links.retain(|(link, _)| in_scratch(link));
    let shown = shown.into_iter().map(Shown::at).collect::<io::Result<_>>()?;
    Ok(Renewal { shown, links })
}

/// What is needed to make the scratch space new.
pub(super) struct Renewal {
    /// What is mounted inside of it.
    shown: Vec<Shown>,
    /// Symbolic links in it, and where they lead.
    links: Vec<(PathBuf, PathBuf)>,
}

struct Shown {
    path: PathBuf,
    is_dir: bool,
    /// The mount itself: processes may move the directories above it, and put others in their
    /// place.
    mount: OwnedFd,
}

impl Shown {
    /// What is mounted here; nothing has run yet.
    fn at(path: PathBuf) -> io::Result<Shown> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let mount = File::options().read(true).custom_flags(flags).open(&path)?;
        let is_dir = mount.metadata()?.is_dir();
        Ok(Shown { path, is_dir, mount: mount.into() })
    }
}

impl Renewal {
    /// Replaces everything that processes could write to. Nothing may run that uses it.
    pub(super) fn renew(&mut self, room: &Room) -> io::Result<()> {
        let copies = self.shown.iter().map(|shown| copy_mount(&shown.mount));
        let copies: Vec<OwnedFd> = copies.collect::<io::Result<_>>()?;
        for place in SCRATCH.iter().rev() {
            unmount(Path::new(place))?;
        }
        let root = Root { base: Path::new("/") };
        root.make_scratch(room)?;
        for (shown, copy) in self.shown.iter_mut().zip(copies) {
            root.make_place(&shown.path, shown.is_dir)?;
            mount_copy(&copy, &shown.path)?;
            shown.mount = copy;
        }
        for (link, target) in &self.links {
            root.make_link(link, target)?;
        }
        Ok(())
    }
}

struct Root<'a> {
    base: &'a Path,
}

impl Root<'_> {
    /// The place below the new root.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.base.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn make_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o755).create(self.at(path))
    }

    /// Makes what is at these paths outside visible at the same paths inside, with the links that
    /// lead to them. What does not exist, or cannot be seen, is left out.
    fn show_all(
        &self,
        paths: &[PathBuf],
        attributes: u64,
        shown: &mut Vec<PathBuf>,
        links: &mut Vec<(PathBuf, PathBuf)>,
    ) -> io::Result<()> {
        let mut real = Vec::new();
        for path in paths {
            real.extend(self.copy_links(path, links)?);
        }
        real.sort();
        let mut last: Option<PathBuf> = None;
        for path in real {
            let is_inside = last.as_ref().is_some_and(|shown| path.starts_with(shown));
            if !is_inside && self.show(&path, attributes)? {
                shown.push(path.clone());
                last = Some(path);
            }
        }
        Ok(())
    }

    /// Whether it could be shown.
    fn show(&self, path: &Path, attributes: u64) -> io::Result<bool> {
        let Ok(meta) = fs::symlink_metadata(path) else { return Ok(false) };
        self.make_place(path, meta.is_dir())?;
        let inside = self.at(path);
        match mount(path, &inside, c"", BIND, c"") {
            Ok(()) => restrict_mount(&inside, attributes).map(|()| true),
            Err(reason) if reason.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(reason) => Err(reason),
        }
    }

    /// Something to mount on.
    fn make_place(&self, path: &Path, is_dir: bool) -> io::Result<()> {
        if is_dir {
            return self.make_dir(path);
        }
        self.make_dir(path.parent().unwrap_or(Path::new("/")))?;
        let inside = self.at(path);
        if inside.exists() { Ok(()) } else { fs::write(&inside, "") }
    }

    /// Follows symbolic links, and makes the same ones inside. `None` for a path that leads
    /// nowhere.
    fn copy_links(
        &self,
        path: &Path,
        links: &mut Vec<(PathBuf, PathBuf)>,
    ) -> io::Result<Option<PathBuf>> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let Some((link, target)) = first_link(&path) else {
                return Ok(path.exists().then_some(path));
            };
            self.make_link(&link, &target)?;
            links.push((link.clone(), target.clone()));
            let rest = path.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
            let beside = link.parent().unwrap_or(Path::new("/"));
            path = without_dots(&beside.join(target).join(rest));
        }
        Ok(None)
    }

    fn make_link(&self, link: &Path, target: &Path) -> io::Result<()> {
        let inside = self.at(link);
        if inside.symlink_metadata().is_ok() {
            return Ok(());
        }
        self.make_dir(link.parent().unwrap_or(Path::new("/")))?;
        symlink(target, inside)
    }

    fn make_devices(&self, without_shared_memory: bool) -> io::Result<()> {
        self.make_dir("/dev")?;
        for device in DEVICES {
            let inside = self.at(device);
            fs::write(&inside, "")?;
            // It reads the same, and cannot be mapped: a map of zeros can be shared.
            let is_replaced = without_shared_memory && device == ZERO;
            let outside = Path::new(if is_replaced { FULL } else { device });
            if outside.exists() {
                mount(outside, &inside, c"", BIND, c"")?;
                restrict_mount(&inside, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
            }
        }
        for (link, target) in LINKS {
            symlink(target, self.at(link))?;
        }
        Ok(())
    }

    /// One file system for everything that the process writes.
    fn make_scratch(&self, room: &Room) -> io::Result<()> {
        let owner = match room.user {
            User::Nobody => String::new(),
            User::Number(number) => format!(",uid={number},gid={number}"),
        };
        let (bytes, files) = (room.scratch_bytes, room.scratch_bytes / BYTES_PER_FILE);
        let options = format!("mode=0700,size={bytes},nr_inodes={}{owner}", files.max(16));
        self.make_dir(JOB)?;
        mount(Path::new("tmpfs"), &self.at(JOB), c"tmpfs", PLAIN, &c_string(options)?)?;
        for (name, seen_as) in [("work", None), ("tmp", Some(TMP)), ("shm", Some(SHARED_MEMORY))] {
            let dir = self.at(JOB).join(name);
            DirBuilder::new().mode(0o700).create(&dir)?;
            if let User::Number(number) = room.user {
                std::os::unix::fs::chown(&dir, Some(number), Some(number))?;
            }
            if let Some(place) = seen_as {
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777))?;
                self.make_dir(place)?;
                mount(&dir, &self.at(place), c"", BIND, c"")?;
            }
        }
        Ok(())
    }

    /// What the daemon hands over.
    fn show_inbox(&self, room: &Room) -> io::Result<()> {
        self.make_dir(INBOX)?;
        let inbox = self.at(INBOX);
        mount(&room.inbox, &inbox, c"", BIND, c"")?;
        restrict_mount(&inbox, READ_ONLY)
    }
}

/// The first symbolic link on the way, and where it leads.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut ways: Vec<&Path> = path.ancestors().collect();
    ways.reverse();
    ways.into_iter().find_map(|way| Some((way.to_owned(), fs::read_link(way).ok()?)))
}

/// The path without `.` and `..`; there are no links before them.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}
