//! `windlass restore`: copies a backup into an empty data directory.
//!
//! The directory may be a mount point, or its parent may belong to another user, so it is filled in
//! place. A marker file, created first and removed last, makes this atomic: no daemon starts while
//! it is there. Before it, the directory is locked: a daemon that starts at the same time either
//! comes first, or is refused.
//!
//! Nothing in the files is changed. To the first daemon, the directory looks as if all daemons had
//! been killed at the time of the backup: running jobs run again when their leases have expired.
//! Boot numbers and ids follow the clock, so those that were issued after the backup are not issued
//! again.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;

use super::copy::{self, FILE_MODE, Meter};
use super::manifest::{Entry, Manifest, STORE};
use super::{DIR_MODE, Places, load};
use crate::cli::Restore;
use crate::{output, serve};

/// While it is in a data directory, that directory is not complete.
const MARKER: &str = "restoring";
/// What the root of a file system may have of its own.
const LOST_AND_FOUND: &str = "lost+found";
/// What SQLite and the store keep beside the store's file.
const STORE_SUFFIXES: [&str; 5] = ["", "-wal", "-shm", "-journal", "-doubt"];

pub(crate) fn run(flags: &Restore, json: bool) -> anyhow::Result<ExitCode> {
    let places = load(&flags.data)?;
    check_target(&places)?;
    let manifest = Manifest::read(&flags.dir)?;
    let mut meter = Meter::new("check", Some(manifest.bytes()));
    for file in &manifest.files {
        file.verify(&flags.dir, &mut meter)?;
    }
    serve::create_data_dir(&places.data_dir)?;
    let _alone = lock_for_restore(&places.data_dir)?;
    // The check of the backup may have taken long.
    check_target(&places)?;
    let mut restoring = Restoring::begin(&places)?;
    restoring
        .fill(&flags.dir, &manifest)
        .with_context(|| format!("the restore into {} failed", places.data_dir.display()))?;
    report(&manifest, &places, json)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a directory that a restore did not finish.
pub(crate) fn check_finished(data_dir: &Path) -> anyhow::Result<()> {
    if data_dir.join(MARKER).exists() {
        let dir = data_dir.display();
        bail!("an earlier restore into {dir} was not finished; remove {dir} and restore again");
    }
    Ok(())
}

/// Keeps restores out of a data directory until the file is dropped.
pub(crate) fn lock_for_use(data_dir: &Path) -> anyhow::Result<File> {
    let dir = open_dir(data_dir)?;
    match dir.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let dir = data_dir.display();
            bail!("a restore into {dir} is in progress; start the daemon when it has ended")
        }
        // A file system without locks cannot keep anything out.
        _ => Ok(dir),
    }
}

fn lock_for_restore(data_dir: &Path) -> anyhow::Result<File> {
    let dir = open_dir(data_dir)?;
    match dir.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let dir = data_dir.display();
            bail!(
                "the data directory {dir} is in use: stop the daemon, or choose another one with \
                 --data-dir"
            )
        }
        _ => Ok(dir),
    }
}

fn open_dir(data_dir: &Path) -> anyhow::Result<File> {
    File::open(data_dir)
        .with_context(|| format!("cannot use the data directory {}", data_dir.display()))
}

/// Refuses if there is anything that a restore could mix with or overwrite.
fn check_target(places: &Places) -> anyhow::Result<()> {
    check_finished(&places.data_dir)?;
    let dir = places.data_dir.display();
    let entries = match fs::read_dir(&places.data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => entries
            .and_then(Iterator::collect)
            .with_context(|| format!("cannot use the data directory {dir}"))?,
    };
    if entries.iter().any(|entry| entry.file_name() != LOST_AND_FOUND) {
        bail!(
            "the data directory {dir} is not empty: stop the daemon that uses it and move it away, \
             or choose another one with --data-dir"
        );
    }
    for suffix in STORE_SUFFIXES {
        let mut path = OsString::from(&places.store);
        path.push(suffix);
        let path = PathBuf::from(path);
        if path.symlink_metadata().is_ok() {
            let path = path.display();
            bail!("{path} exists: stop the daemon that uses it and move it away");
        }
    }
    Ok(())
}

/// A data directory with the marker. If it is dropped before it is complete, everything that was
/// copied is removed, and the marker last.
struct Restoring<'a> {
    places: &'a Places,
    marker: PathBuf,
    made: Vec<PathBuf>,
    complete: bool,
}

impl<'a> Restoring<'a> {
    fn begin(places: &'a Places) -> anyhow::Result<Restoring<'a>> {
        let marker = places.data_dir.join(MARKER);
        let made = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(&marker);
        made.and_then(|_| File::open(&places.data_dir)?.sync_all())
            .with_context(|| format!("cannot write to {}", places.data_dir.display()))?;
        Ok(Restoring { places, marker, made: Vec::new(), complete: false })
    }

    fn fill(&mut self, backup: &Path, manifest: &Manifest) -> anyhow::Result<()> {
        let data_dir = &self.places.data_dir;
        let mut meter = Meter::new("restore", Some(manifest.bytes()));
        for file in &manifest.files {
            self.copy(backup, file, &mut meter)?;
        }
        meter.end();
        let in_data_dir: Vec<Entry> =
            manifest.files.iter().filter(|file| file.path != STORE).cloned().collect();
        copy::sync_dirs(data_dir, &in_data_dir)
            .and_then(|()| sync_parent(&self.places.store))
            .and_then(|()| sync_parent(data_dir))
            .and_then(|()| fs::remove_file(&self.marker))
            .with_context(|| format!("cannot sync {}", data_dir.display()))?;
        // From here on it is complete; only a power cut could bring the marker back.
        self.complete = true;
        let synced = File::open(data_dir).and_then(|dir| dir.sync_all());
        synced.with_context(|| format!("cannot sync {}", data_dir.display()))
    }

    fn copy(&mut self, backup: &Path, file: &Entry, meter: &mut Meter) -> anyhow::Result<()> {
        let from = backup.join(&file.path);
        let to = match file.path == STORE {
            true => self.places.store.clone(),
            false => self.places.data_dir.join(&file.path),
        };
        self.create_dirs(&to)?;
        let opened =
            File::open(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if to.symlink_metadata().is_err() {
            self.made.push(to.clone());
        }
        let copied = copy::copy((&opened, &from), &to, file.bytes, meter)?;
        file.check_sum(&from, &copied)
    }

    fn create_dirs(&mut self, to: &Path) -> anyhow::Result<()> {
        let missing: Vec<&Path> = to.ancestors().skip(1).take_while(|dir| !is_dir(dir)).collect();
        for dir in missing.into_iter().rev() {
            let made = DirBuilder::new().mode(DIR_MODE).create(dir);
            made.with_context(|| format!("cannot create {}", dir.display()))?;
            self.made.push(dir.to_owned());
        }
        Ok(())
    }
}

fn is_dir(dir: &Path) -> bool {
    dir.as_os_str().is_empty() || dir.is_dir()
}

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        let mut removed = Ok(());
        for path in self.made.iter().rev() {
            let gone = match path.is_dir() {
                true => fs::remove_dir(path),
                false => fs::remove_file(path),
            };
            removed = removed.and(gone);
        }
        let removed = removed
            .and_then(|()| sync_parent(&self.places.store))
            .and_then(|()| File::open(&self.places.data_dir)?.sync_all());
        // The marker stays beside anything that could not be removed for good.
        if removed.is_ok() {
            let _ = fs::remove_file(&self.marker);
        }
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    match File::open(parent).and_then(|dir| dir.sync_all()) {
        // Nothing was created in a directory that we may not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

#[derive(Serialize)]
struct RestoreReport<'a> {
    data_dir: &'a Path,
    store: &'a Path,
    created_at: &'a str,
    files: usize,
    bytes: u64,
}

fn report(manifest: &Manifest, places: &Places, json: bool) -> io::Result<()> {
    let Manifest { created_at, files, .. } = manifest;
    let (files, bytes) = (files.len(), manifest.bytes());
    let (data_dir, store) = (&places.data_dir, &places.store);
    if json {
        let report = RestoreReport { data_dir, store, created_at, files, bytes };
        return output::print_json(&report);
    }
    let (size, dir) = (copy::size_text(bytes), data_dir.display());
    let text = format!("restored {files} files ({size}) of {created_at} into {dir}\n");
    output::print(&text)
}
