//! `windlass backup`: copies a data directory, while daemons may be using it, into a directory that
//! `windlass restore` reads. `windlass_engine::backup` shows why the order of the copies matters.
//!
//! The backup is written under another name, synced, and renamed: a directory with the final name
//! is complete.

mod copy;
mod manifest;
pub(crate) mod restore;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;
use tempfile::TempDir;

use windlass_core::time::{Clock, SystemClock};
use windlass_engine::backup as data;

use self::copy::{FILE_MODE, Meter, sync_dirs};
use self::manifest::{Entry, Manifest, STORE};
use crate::cli::{Backup, DataFlags};
use crate::config::{Config, Inputs, StorePlace};
use crate::{output, serve};

/// The backup holds payloads, so only its owner may access it.
const DIR_MODE: u32 = 0o700;
/// How often a segment is copied until it has not changed meanwhile.
const COPY_TRIES_MAX: usize = 5;

pub(crate) fn run(flags: &Backup, json: bool) -> anyhow::Result<ExitCode> {
    let places = load(&flags.data)?;
    let target = std::path::absolute(&flags.dir).context("cannot determine the directory")?;
    check_source(&places)?;
    let parent = check_target(&target, &places.data_dir)?;
    let unfinished = unfinished_dir(&target, parent)?;
    let manifest = write(&places, unfinished.path())
        .with_context(|| format!("the backup of {} failed", places.data_dir.display()))?;
    publish(unfinished, &target, parent)
        .with_context(|| format!("the backup cannot be moved to {}", target.display()))?;
    report(&manifest, &target, &places, json)?;
    Ok(ExitCode::SUCCESS)
}

/// What a backup is about.
struct Places {
    data_dir: PathBuf,
    /// The file of the embedded store.
    store: PathBuf,
    secrets_key_file: PathBuf,
}

fn load(flags: &DataFlags) -> anyhow::Result<Places> {
    let config = Config::load(&Inputs {
        flags: flags.flags(),
        config_flag: flags.config.as_deref(),
        environment: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        cores: serve::cores(),
    })?;
    let StorePlace::File(store) = config.store else {
        bail!(
            "backups are of the embedded store, and this store is a PostgreSQL database: back it \
             up with its own tools, such as pg_dump or a standby"
        );
    };
    let Config { data_dir, secrets_key_file, .. } = config;
    Ok(Places { data_dir, store, secrets_key_file })
}

fn check_source(places: &Places) -> anyhow::Result<()> {
    let (dir, store) = (places.data_dir.display(), &places.store);
    if !places.data_dir.is_dir() {
        bail!("there is no data directory {dir}; choose it with --data-dir");
    }
    restore::check_finished(&places.data_dir)?;
    if !places.data_dir.join(data::PLACE).is_file() {
        bail!("{dir} is not a data directory of Windlass: it has no file '{}'", data::PLACE);
    }
    if !store.is_file() {
        bail!("there is no store {}; choose it with --store", store.display());
    }
    Ok(())
}

/// Refuses a directory that cannot become the backup; returns its parent.
fn check_target<'a>(target: &'a Path, data_dir: &Path) -> anyhow::Result<&'a Path> {
    let name = target.display();
    let Some(parent) = target.parent() else { bail!("{name} cannot be a backup") };
    let real_parent = parent.canonicalize();
    let real_parent =
        real_parent.with_context(|| format!("cannot use the directory {}", parent.display()))?;
    if data_dir.canonicalize().is_ok_and(|data_dir| real_parent.starts_with(data_dir)) {
        bail!("{name} is inside the data directory; choose a directory elsewhere");
    }
    let entries = match fs::read_dir(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(parent),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("{name} is not a directory; choose a new one for the backup")
        }
        entries => entries.with_context(|| format!("cannot use the directory {name}"))?,
    };
    if entries.count() > 0 {
        bail!("{name} is not empty; choose a new directory for the backup");
    }
    if target.metadata()?.dev() != real_parent.metadata()?.dev() {
        bail!("{name} is a mount point; choose a new directory in it for the backup");
    }
    Ok(parent)
}

/// Beside the target, so that it can be renamed. Removed on drop.
fn unfinished_dir(target: &Path, parent: &Path) -> anyhow::Result<TempDir> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}.unfinished-");
    let mode = Permissions::from_mode(DIR_MODE);
    let dir = tempfile::Builder::new().prefix(&prefix).permissions(mode).tempdir_in(parent);
    dir.with_context(|| format!("cannot create a directory in {}", parent.display()))
}

/// Copies everything into `dir`, in the order that `windlass_engine::backup` gives, and syncs it.
fn write(places: &Places, dir: &Path) -> anyhow::Result<Manifest> {
    let mut files = Vec::new();
    let mut meter = Meter::new("backup", None);
    let source = &places.data_dir;
    files.extend(copy_one(source, Path::new(data::PLACE), dir, &mut meter)?);
    let cannot_list = || format!("cannot list the files of {}", source.display());
    for path in data::segments(source).with_context(cannot_list)? {
        files.extend(copy_settled(source, &path, dir, &mut meter)?);
    }
    for path in data::payloads(source).with_context(cannot_list)? {
        files.extend(copy_one(source, &path, dir, &mut meter)?);
    }
    files.push(copy_store(&places.store, dir, &mut meter)?);
    meter.end();
    let created_at = jiff::Timestamp::from_millisecond(SystemClock.now().ms())?;
    let manifest = Manifest::new(created_at.to_string(), files);
    manifest.write(dir)?;
    sync_dirs(dir, &manifest.files).with_context(|| format!("cannot sync {}", dir.display()))?;
    Ok(manifest)
}

/// Copies a file of the data directory up to its present length; `None` if it is gone.
fn copy_one(
    source: &Path,
    path: &Path,
    dir: &Path,
    meter: &mut Meter,
) -> anyhow::Result<Option<Entry>> {
    let (from, to) = (source.join(path), dir.join(path));
    let cannot_read = || format!("cannot read {}", from.display());
    let file = match File::open(&from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(cannot_read)?,
    };
    let bytes = file.metadata().with_context(cannot_read)?.len();
    create_parent(&to)?;
    let (bytes, sha256) = copy::copy((&file, &from), &to, bytes, meter)?;
    Ok(Some(Entry { path: path_text(path)?, bytes, sha256 }))
}

/// Copies a segment. Journals only append, except after a failed write, whose remains are cut off
/// and overwritten: a copy made meanwhile could mix both. So a second look has to see the same.
fn copy_settled(
    source: &Path,
    path: &Path,
    dir: &Path,
    meter: &mut Meter,
) -> anyhow::Result<Option<Entry>> {
    for _ in 0..COPY_TRIES_MAX {
        let Some(entry) = copy_one(source, path, dir, meter)? else { break };
        let from = source.join(path);
        let again = match File::open(&from) {
            // It was copied before the store had all of it, or after; either is right.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(entry)),
            file => copy::checksum((&file?, &from), entry.bytes, &mut Meter::new("check", None))?,
        };
        if again == (entry.bytes, entry.sha256.clone()) {
            return Ok(Some(entry));
        }
        fs::remove_file(dir.join(path))?;
    }
    match source.join(path).exists() {
        false => Ok(None),
        true => bail!("{} keeps changing; try again", source.join(path).display()),
    }
}

fn copy_store(store: &Path, dir: &Path, meter: &mut Meter) -> anyhow::Result<Entry> {
    let to = dir.join(STORE);
    let cannot_write = || format!("cannot write {}", to.display());
    let file = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(&to);
    let file = file.with_context(cannot_write)?;
    windlass_store_sqlite::back_up(store, &to, |done, total| meter.show_part(done, total))?;
    file.sync_all().with_context(cannot_write)?;
    let bytes = file.metadata().with_context(cannot_write)?.len();
    let (bytes, sha256) = copy::checksum((&File::open(&to)?, &to), bytes, meter)?;
    Ok(Entry { path: STORE.to_owned(), bytes, sha256 })
}

fn create_parent(path: &Path) -> anyhow::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(DIR_MODE).create(parent);
    made.with_context(|| format!("cannot create {}", parent.display()))
}

fn path_text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.to_owned())
}

/// Gives the complete backup its name, for good. An empty directory of that name is replaced.
fn publish(unfinished: TempDir, target: &Path, parent: &Path) -> io::Result<()> {
    fs::rename(unfinished.path(), target)?;
    // Nothing has the old name any more, so nothing is to be removed.
    let _: PathBuf = unfinished.keep();
    File::open(parent)?.sync_all()
}

#[derive(Serialize)]
struct BackupReport<'a> {
    backup: &'a Path,
    created_at: &'a str,
    files: usize,
    bytes: u64,
    /// The key file of secrets, if there is one. A backup that had it would show all secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_included: Option<&'a Path>,
}

fn report(manifest: &Manifest, target: &Path, places: &Places, json: bool) -> io::Result<()> {
    let Manifest { created_at, files, .. } = manifest;
    let (files, bytes) = (files.len(), manifest.bytes());
    let key_file = Some(places.secrets_key_file.as_path()).filter(|path| path.exists());
    if json {
        let (backup, not_included) = (target, key_file);
        return output::print_json(&BackupReport {
            backup,
            created_at,
            files,
            bytes,
            not_included,
        });
    }
    let size = copy::size_text(bytes);
    output::print(&format!("backed up {files} files ({size}) to {}\n", target.display()))?;
    if let Some(key_file) = key_file {
        output::note(&format!(
            "the key file of secrets, {}, is not in the backup: keep a copy of it elsewhere\n",
            key_file.display()
        ));
    }
    Ok(())
}
