//! Which files a handler may read, execute and write. Landlock lists what is allowed; the
//! kernel refuses everything else, to root as well. It does not hide names: a path can be walked
//! through, and a handler can see whether a file exists.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use windlass_core::sync::lock;

use crate::Error;
use crate::cell::DEVICES;

/// Newest rights that were tested; an older kernel uses those that it knows.
const TRIED: ABI = ABI::V7;

/// How long resolved paths stay valid.
const LOOK_UP_PAUSE: Duration = Duration::from_secs(1);

/// What every language needs to start, and where no secrets are kept.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/proc",
    "/sys",
    "/run/systemd/resolve",
];
/// Of `/etc` only what libraries look up; the rest may contain secrets.
const CONFIGURATION: [&str; 44] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "passwd",
    "group",
    "nsswitch.conf",
    "hosts",
    "host.conf",
    "hostname",
    "resolv.conf",
    "gai.conf",
    "services",
    "protocols",
    "localtime",
    "timezone",
    "locale.alias",
    "locale.conf",
    "os-release",
    "debian_version",
    "lsb-release",
    "mime.types",
    "magic",
    "inputrc",
    "terminfo",
    "fonts",
    "alternatives",
    "ca-certificates",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "pki/ca-trust",
    "crypto-policies",
    "php",
    "php.ini",
    "python3",
    "perl",
    "gitconfig",
    "wgetrc",
    "ImageMagick-6",
    "ImageMagick-7",
    "ghostscript",
    "papersize",
];
/// Whether handlers are confined by Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Landlock {
    /// If the kernel supports it.
    #[default]
    Preferred,
    /// Otherwise the runner does not start.
    Required,
    Off,
}

impl Landlock {
    /// Whether to use it, given the kernel's answer about its version.
    pub(super) fn decide(self, version: io::Result<i64>) -> Result<bool, Error> {
        match (self, version) {
            (Landlock::Off, _) => Ok(false),
            (Landlock::Preferred | Landlock::Required, Ok(_)) => Ok(true),
            (Landlock::Required, Err(reason)) => Err(Error::Landlock(reason)),
            (Landlock::Preferred, Err(reason)) => {
                tracing::warn!(%reason, "no Landlock: handlers can access all files of this user");
                Ok(false)
            }
        }
    }
}

/// The files that all handlers of a runner may use.
pub(super) struct Paths {
    /// All names of what may be read, with those that lead into others of them.
    named: Vec<PathBuf>,
    read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// What these paths resolve to now.
    opened: Mutex<Option<Opened>>,
}

/// Resolved paths, and when they were resolved.
struct Opened {
    at: Instant,
    allowed: Arc<Vec<Allowed>>,
}

/// A file, or a directory with everything below it, and the rights to it.
type Allowed = (PathFd, BitFlags<AccessFs>);

impl Paths {
    /// `hidden` paths are never readable, and `path` is where handlers look for programs.
    pub(super) fn new(
        read: &[PathBuf],
        write: &[PathBuf],
        hidden: &[PathBuf],
        path: &str,
    ) -> Paths {
        let etc = Path::new("/etc");
        let system = SYSTEM.iter().map(PathBuf::from);
        let configuration = CONFIGURATION.iter().map(|name| etc.join(name));
        let programs = std::env::split_paths(path).filter(|dir| dir.is_absolute());
        let known: BTreeSet<PathBuf> = system.chain(configuration).chain(programs).collect();
        let known = known.iter().flat_map(|path| contents_except(path, hidden));
        // What lies in a writable path is shown with it. Shown by its own name, it could be a link
        // by then that a handler has put there.
        let outside = |path: &PathBuf| !write.iter().any(|writable| lies_in(path, writable));
        let named = known.chain(read.iter().cloned()).filter(outside);
        let named: Vec<PathBuf> = named.collect();
        let is_alone =
            |path: &&PathBuf| !write.iter().any(|other| other != *path && lies_in(path, other));
        let write = write.iter().filter(is_alone).cloned().collect();
        let read = covering(&named);
        Paths { named, read, write, opened: Mutex::default() }
    }

    /// With what a program needs besides: its installation.
    pub(super) fn readable(&self, program: &Path) -> Vec<PathBuf> {
        self.named.iter().cloned().chain(installation(program)).collect()
    }

    /// The rules of one process, as the kernel holds them: with its own directories to read and to
    /// write.
    pub(super) fn compile(
        &self,
        program: &Path,
        read: &Path,
        write: &[PathBuf],
    ) -> io::Result<OwnedFd> {
        let installation = installation(program);
        let installation = installation.iter().filter(|path| !is_covered(path, &self.read));
        let mut own = Vec::new();
        for path in installation.map(PathBuf::as_path).chain([read]) {
            own.extend(open(path, AccessFs::from_read(TRIED))?);
        }
        for path in write {
            own.extend(open(path, AccessFs::from_all(TRIED))?);
        }
        let ruleset: Option<OwnedFd> = ruleset(self.opened()?.iter().chain(&own))?.into();
        ruleset.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// What the common paths resolve to. A rule applies to a file, not to a name, and files such as
    /// resolv.conf are replaced. So paths are resolved again from time to time, but not for each
    /// process.
    fn opened(&self) -> io::Result<Arc<Vec<Allowed>>> {
        let mut opened = lock(&self.opened);
        if let Some(opened) = opened.as_ref().filter(|opened| opened.at.elapsed() < LOOK_UP_PAUSE) {
            return Ok(Arc::clone(&opened.allowed));
        }
        let mut allowed = Vec::new();
        for path in &self.read {
            allowed.extend(open(path, AccessFs::from_read(TRIED))?);
        }
        for device in DEVICES {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            allowed.extend(open(Path::new(device), access)?);
        }
        for path in &self.write {
            allowed.extend(open(path, AccessFs::from_all(TRIED))?);
        }
        let allowed = Arc::new(allowed);
        *opened = Some(Opened { at: Instant::now(), allowed: Arc::clone(&allowed) });
        Ok(allowed)
    }
}

/// Restricts this process to these files, and to signals and sockets of its own.
pub(crate) fn restrict_files(read: &[PathBuf], write: &[PathBuf]) -> io::Result<()> {
    let mut allowed = Vec::new();
    for path in read {
        allowed.extend(open(path, AccessFs::from_read(TRIED))?);
    }
    for device in DEVICES {
        let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        allowed.extend(open(Path::new(device), access)?);
    }
    for path in write {
        allowed.extend(open(path, AccessFs::from_all(TRIED))?);
    }
    ruleset(allowed.iter())?.restrict_self().map(drop).map_err(refused)
}

fn ruleset<'a>(allowed: impl Iterator<Item = &'a Allowed>) -> io::Result<RulesetCreated> {
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(TRIED)).map_err(refused)?;
    let scopes = Scope::Signal | Scope::AbstractUnixSocket;
    let mut ruleset = ruleset.scope(scopes).map_err(refused)?.create().map_err(refused)?;
    for (descriptor, access) in allowed {
        ruleset = ruleset.add_rule(PathBeneath::new(descriptor, *access)).map_err(refused)?;
    }
    Ok(ruleset)
}

/// Resolves a path; one that does not exist needs no rule.
fn open(path: &Path, access: BitFlags<AccessFs>) -> io::Result<Option<Allowed>> {
    let descriptor = match PathFd::new(path) {
        Ok(descriptor) => descriptor,
        Err(PathFdError::OpenCall { source, .. }) => {
            return match source.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(source),
            };
        }
        Err(other) => return Err(io::Error::other(other)),
    };
    let is_dir = fs::metadata(path).is_ok_and(|meta| meta.is_dir());
    let access = if is_dir { access } else { access & AccessFs::from_file(TRIED) };
    Ok(Some((descriptor, access)))
}

/// Whether the path is in the directory, or is it, by its name or by what is there now.
fn lies_in(path: &Path, dir: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.starts_with(dir) || real(path).starts_with(real(dir))
}

/// The paths without those below others of them, after following links.
fn covering(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().filter(|path| !is_covered(path, paths)).cloned().collect()
}

fn is_covered(path: &Path, by: &[PathBuf]) -> bool {
    let real = path.canonicalize().unwrap_or_default();
    by.iter().any(|other| other != path && real.starts_with(other))
}

fn refused(error: RulesetError) -> io::Error {
    io::Error::other(format!("Landlock: {error}"))
}

/// Where the interpreter is installed: the directory above its `bin`, both by the name under which
/// it was found and by the file behind it. A home directory is not an installation.
fn installation(program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().unwrap_or_default();
    let mut found = Vec::new();
    for path in [program, &real] {
        let Some(dir) = path.parent().filter(|dir| dir.is_absolute()) else { continue };
        let in_bin = dir.ends_with("bin") || dir.ends_with("shims");
        match dir.parent() {
            Some(prefix) if in_bin && !is_home(prefix) => found.push(prefix.to_owned()),
            _ => found.push(path.to_owned()),
        }
    }
    found
}

fn is_home(dir: &Path) -> bool {
    let [root, home, homes] = ["/", "/root", "/home"].map(Path::new);
    dir == root || dir == home || dir.parent() == Some(homes)
}

/// The path, or its contents except the hidden ones.
fn contents_except(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let covers = |path: &Path| hidden.iter().any(|hidden| hidden.starts_with(path));
    let hides = |path: &Path| hidden.iter().any(|hidden| is_of(path, hidden));
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if hides(&real) {
        return Vec::new();
    }
    if !covers(&real) {
        return vec![path.to_owned()];
    }
    let inside = fs::read_dir(&real).into_iter().flatten().flatten();
    inside.flat_map(|entry| contents_except(&entry.path(), hidden)).collect()
}

/// Whether this is the hidden path, something in it, or a file next to it whose name extends it,
/// such as a store's log.
fn is_of(path: &Path, hidden: &Path) -> bool {
    let beside = || {
        let name = hidden.file_name()?.to_str()?;
        let continues = path.file_name()?.to_str()?.starts_with(&format!("{name}-"));
        Some(continues && path.parent() == hidden.parent())
    };
    path.starts_with(hidden) || beside().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_must_be_there() {
        let (there, missing) = (|| Ok(1), || Err(io::ErrorKind::Unsupported.into()));
        assert!(matches!(Landlock::Preferred.decide(there()), Ok(true)));
        assert!(matches!(Landlock::Preferred.decide(missing()), Ok(false)));
        assert!(matches!(Landlock::Required.decide(there()), Ok(true)));
        let refused = Landlock::Required.decide(missing()).unwrap_err().to_string();
        assert!(refused.contains("isolation.landlock is required"), "{refused}");
        assert!(matches!(Landlock::Off.decide(there()), Ok(false)));
    }

    #[test]
    fn an_installation_is_what_is_above_bin_and_never_a_home() {
        let of = |program: &str| installation(Path::new(program));
        assert_eq!(of("/srv/node/bin/node"), [Path::new("/srv/node")]);
        assert_eq!(of("/root/bin/node"), [Path::new("/root/bin/node")]);
        let of_ann = Path::new("/home").join("ann/bin/node");
        assert_eq!(installation(&of_ann), [of_ann]);
        assert_eq!(of("/root/.pyenv/shims/no-such-python")[0], Path::new("/root/.pyenv"));
        assert_eq!(of("/bin/no-such-sh"), [Path::new("/bin/no-such-sh")]);
        assert!(of("").is_empty() && of("relative/bin/x").is_empty());
    }

    #[test]
    fn paths_below_others_need_no_rule_of_their_own() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
        let paths = ["usr", "bin", "usr/bin", "missing"].map(|name| root.join(name));
        assert_eq!(covering(&paths), [root.join("usr"), root.join("missing")]);
    }

    #[test]
    fn what_is_hidden_is_taken_out_of_what_contains_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for dir in ["a/data/journal", "a/other", "b"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for file in ["a/store.db", "a/store.db-wal", "a/storeroom"] {
            fs::write(root.join(file), "").unwrap();
        }
        let hidden = [root.join("a/data"), root.join("a/store.db")];
        let mut seen = contents_except(&root, &hidden);
        seen.sort();
        assert_eq!(seen, ["a/other", "a/storeroom", "b"].map(|name| root.join(name)));
        assert_eq!(contents_except(&root.join("b"), &hidden), [root.join("b")]);
        assert!(contents_except(&root.join("a/data"), &hidden).is_empty());
        assert!(contents_except(&root.join("a/data/journal"), &hidden).is_empty());
    }
}
