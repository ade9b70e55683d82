//! Which files a handler may read, execute and write. Landlock is a list of what is allowed; all
//! else is refused by the kernel, whoever the user is. It does not hide names: a path can be walked
//! through, and whether a file exists can be seen.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use crate::Error;

/// Newest rights that were tried; a kernel that knows fewer keeps those that it knows.
const TRIED: ABI = ABI::V7;

/// What every language needs to start, and what nobody has secrets in.
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
/// Of `/etc` only what libraries look up; the rest may have secrets in it.
const CONFIGURATION: [&str; 36] = [
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
];
/// Devices that anybody may use.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Whether handlers are confined by Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Landlock {
    /// Where the kernel has it.
    #[default]
    Preferred,
    /// Or the runner does not start.
    Required,
    Off,
}

impl Landlock {
    /// Whether it is used, where the kernel says this about its version.
    pub(super) fn decide(self, version: io::Result<i64>) -> Result<bool, Error> {
        match (self, version) {
            (Landlock::Off, _) => Ok(false),
            (Landlock::Preferred | Landlock::Required, Ok(_)) => Ok(true),
            (Landlock::Required, Err(reason)) => Err(Error::Landlock(reason)),
            (Landlock::Preferred, Err(reason)) => {
                tracing::warn!(%reason, "handlers may read and write files: there is no Landlock");
                Ok(false)
            }
        }
    }
}

/// The rules that all handlers of a runner have in common.
pub(super) struct Rules {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
}

impl Rules {
    /// `hidden` are never readable, and `path` is where handlers look for programs.
    pub(super) fn new(
        read: &[PathBuf],
        write: &[PathBuf],
        hidden: &[PathBuf],
        path: &str,
    ) -> Rules {
        let etc = Path::new("/etc");
        let system = SYSTEM.iter().map(PathBuf::from);
        let configuration = CONFIGURATION.iter().map(|name| etc.join(name));
        let programs = std::env::split_paths(path).filter(|dir| dir.is_absolute());
        let known: BTreeSet<PathBuf> = system.chain(configuration).chain(programs).collect();
        let known = known.iter().flat_map(|path| without(path, hidden));
        Rules { read: known.chain(read.iter().cloned()).collect(), write: write.to_vec() }
    }

    /// The rules of one process, as the kernel keeps them. Paths are looked up anew each time:
    /// a rule is for a file, not for a name, and files such as resolv.conf are replaced.
    pub(super) fn compile(&self, dir: &Path, program: &Path) -> io::Result<OwnedFd> {
        let all = AccessFs::from_all(TRIED);
        let ruleset = Ruleset::default().handle_access(all).map_err(refused)?;
        let ruleset = ruleset.scope(Scope::Signal).map_err(refused)?;
        let mut ruleset = ruleset.create().map_err(refused)?;
        let installation = installation(program);
        for path in self.read.iter().chain(&installation) {
            ruleset = allow(ruleset, path, AccessFs::from_read(TRIED))?;
        }
        for device in DEVICES {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            ruleset = allow(ruleset, Path::new(device), access)?;
        }
        for path in self.write.iter().map(PathBuf::as_path).chain([dir]) {
            ruleset = allow(ruleset, path, all)?;
        }
        let ruleset: Option<OwnedFd> = ruleset.into();
        ruleset.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// Adds a rule; a path that is not there needs none.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    let descriptor = match PathFd::new(path) {
        Ok(descriptor) => descriptor,
        Err(PathFdError::OpenCall { source, .. }) => {
            return match source.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotADirectory => Ok(ruleset),
                _ => Err(source),
            };
        }
        Err(other) => return Err(io::Error::other(other)),
    };
    let is_dir = fs::metadata(path).is_ok_and(|meta| meta.is_dir());
    let access = if is_dir { access } else { access & AccessFs::from_file(TRIED) };
    ruleset.add_rule(PathBeneath::new(descriptor, access)).map_err(refused)
}

fn refused(error: RulesetError) -> io::Error {
    io::Error::other(format!("Landlock: {error}"))
}

/// Where the interpreter was installed: the directory above its `bin`, by the name under which it
/// was found and by the file that this leads to. Somebody's home is no installation.
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

/// The path, or what is in it beside the hidden ones.
fn without(path: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
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
    inside.flat_map(|entry| without(&entry.path(), hidden)).collect()
}

/// Whether this is the hidden path, something in it, or a file beside it that continues its name,
/// as a store's log does.
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
        assert_eq!(of("/home/ann/bin/node"), [Path::new("/home/ann/bin/node")]);
        assert_eq!(of("/root/.pyenv/shims/no-such-python")[0], Path::new("/root/.pyenv"));
        assert_eq!(of("/bin/no-such-sh"), [Path::new("/bin/no-such-sh")]);
        assert!(of("").is_empty() && of("relative/bin/x").is_empty());
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
        let mut seen = without(&root, &hidden);
        seen.sort();
        assert_eq!(seen, ["a/other", "a/storeroom", "b"].map(|name| root.join(name)));
        assert_eq!(without(&root.join("b"), &hidden), [root.join("b")]);
        assert!(without(&root.join("a/data"), &hidden).is_empty());
        assert!(without(&root.join("a/data/journal"), &hidden).is_empty());
    }
}
