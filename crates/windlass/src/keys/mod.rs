//! Files with API keys: those of a daemon, and those that commands find.
//!
//! | module | owns |
//! |---|---|
//! | `admin` | `<data_dir>/admin.key`, which the first start of a daemon makes |
//! | `runtime` | `$XDG_RUNTIME_DIR/windlass/<address>.key` and `.der`, there while a daemon runs |
//! | `saved` | `~/.config/windlass/keys.toml`, which `windlass login` writes |
//! | `login` | what a command shows a daemon, and how it knows the daemon |
//! | `find` | in which order commands look for a key and a certificate |
//! | `listener` | to whom the key of a file may be sent |
//!
//! All files are for their owner alone.

pub(crate) mod admin;
pub(crate) mod find;
mod listener;
mod login;
pub(crate) mod runtime;
pub(crate) mod saved;

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;

use windlass_core::KeyText;
use windlass_core::audit::{Act, Actor, Subject};

pub(crate) use self::login::Login;

const DIR_MODE: u32 = 0o700;
/// Longest file with a key.
const FILE_BYTES_MAX: u64 = 1024;

/// The directories in which keys are found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    /// `$XDG_RUNTIME_DIR`.
    pub(crate) runtime: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or `~/.config`.
    pub(crate) config: Option<PathBuf>,
    pub(crate) working: PathBuf,
}

impl Places {
    pub(crate) fn of_process() -> Places {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        // A relative path is to be ignored, by the specification of these variables.
        let directory = |name| variable(name).filter(|path| path.is_absolute());
        let config =
            directory("XDG_CONFIG_HOME").or(directory("HOME").map(|home| home.join(".config")));
        Places { runtime: directory("XDG_RUNTIME_DIR"), config, working: PathBuf::new() }
    }
}

/// What the audit says of an act of the daemon itself.
pub(crate) fn act(action: &str, subject: Subject) -> Act {
    Act { by: Actor::Daemon, address: None, action: action.to_owned(), subject }
}

/// A file as it was read, and the user who owns it.
struct OwnedFile {
    bytes: Vec<u8>,
    owner: u32,
}

/// A key in a file, and the user who owns the file.
struct OwnedKey {
    text: KeyText,
    owner: u32,
}

/// Whether a path that is itself a symbolic link is read. The last part of a path decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    Follow,
    Refuse,
}

/// The key in a file of the daemon's own directories; `None` if there is no file.
fn read(path: &Path) -> anyhow::Result<Option<KeyText>> {
    Ok(read_owned(path, Links::Follow)?.map(|key| key.text))
}

/// The key in a file, with its owner. `None` if there is no file.
fn read_owned(path: &Path, links: Links) -> anyhow::Result<Option<OwnedKey>> {
    let Some(OwnedFile { bytes, owner }) = read_file(path, links, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    let key = std::str::from_utf8(&bytes).ok().and_then(|text| KeyText::parse(text.trim()));
    let text = key.ok_or_else(|| anyhow!("{} holds no key", path.display()))?;
    Ok(Some(OwnedKey { text, owner }))
}

/// A file that anyone may have put there: nothing but a short ordinary file is read, and its owner
/// is that of the file which was read. `None` if there is no file.
fn read_file(path: &Path, links: Links, bytes_max: u64) -> anyhow::Result<Option<OwnedFile>> {
    let shown = path.display();
    // A pipe or a device is opened without waiting, and then refused.
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, links == Links::Refuse);
    let file = match rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from) {
        Ok(file) => File::from(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let about = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    if !about.is_file() {
        bail!("{shown} is not an ordinary file");
    }
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() as u64 > bytes_max {
        bail!("{shown} is longer than {bytes_max} bytes");
    }
    Ok(Some(OwnedFile { bytes, owner: about.uid() }))
}

/// A complete file beside `path`, on disk, for its owner alone.
pub(crate) fn beside(path: &Path, text: &[u8]) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Made with mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(".key-")
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Writes a whole file or none, in place of one that is there.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    beside(path, text)?.persist(path)?;
    sync_parent(path)
}

/// Writes a whole file or none; false if there is one.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<bool> {
    match beside(path, text.as_bytes())?.persist_noclobber(path) {
        Ok(_) => sync_parent(path).map(|()| true),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(failed) => Err(failed.error),
    }
}

pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}
