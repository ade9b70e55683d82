//! Failed syncs: what may no longer be promised, and how the file recovers.
//!
//! A failed sync cannot be repeated. The kernel marks the pages whose write-back failed as clean
//! and reports the error once; the next sync of the same file succeeds and proves nothing about
//! them. In SQLite's write-ahead mode that breaks two rules:
//!
//! 1. *A synced commit makes all earlier ones durable* (see `writer`). Their frames may have been
//!    dropped from the log on disk, and recovery stops at the first frame that is not there.
//! 2. *A checkpoint syncs the log, copies pages into the file, and syncs the file before the log is
//!    restarted.* If the log only seems to be synced, a power cut in the middle leaves a damaged
//!    file, with pages of commits that the log has lost. And a checkpoint that readers cut short
//!    counts its pages as copied before the file is synced; if that sync fails later, they are not
//!    copied again.
//!
//! So after an I/O error in a commit or a checkpoint the file is *in doubt*: this process refuses
//! every further write and flush, moves nothing from the log into the file, not even when it
//! closes, and creates a marker file next to it. Other daemons had the file open before the error,
//! so the kernel reports it to their next sync too; the marker, which is checked before and after
//! each synced commit, stops them sooner. Reads continue, because the pages in memory are correct.
//!
//! Only the writer's connection makes promises, because its descriptors are as old as the store: a
//! descriptor that is opened after an error was reported does not see it. SQL queries commit
//! unsynced, and are answered after a flush. Checkpoints run on the writer's connection, where
//! their errors are seen; SQLite does not report errors of its automatic checkpoints.
//!
//! The doubt ends when a daemon has the file to itself and opens it twice. The first time, it
//! rewrites the bytes of the log unchanged and syncs them: what this sync confirms was dirty before
//! it. The second time, SQLite recovers the log from the start: checksums prove that all frames up
//! to some commit are correct, and relaxed commits after it are lost, as after a power cut. The
//! recovery also forgets how far pages had been copied, so the checkpoint that follows copies all
//! of them into the file and syncs it. Only then is the marker removed. Every daemon that is alone
//! with a log does this when it starts, with or without a marker: the previous one may have been
//! killed between the error and the marker.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use windlass_core::file_name::FileName;
use windlass_core::store::{Cause, Error};

use crate::error::{Failure, Result};
use crate::open::{self, Options};

/// Bytes of the log that are rewritten at once.
const REWRITE_BYTES: usize = 1024 * 1024;

/// Whether commits to the file may still be acknowledged.
pub(crate) struct Doubt {
    path: PathBuf,
    mark: PathBuf,
    /// Set once, for the lifetime of the process.
    raised: OnceLock<Error>,
}

impl Doubt {
    pub(crate) fn new(path: &Path) -> Doubt {
        Doubt { path: path.into(), mark: mark(path), raised: OnceLock::new() }
    }

    /// An error if this process knows that the file is in doubt.
    pub(crate) fn check(&self) -> std::result::Result<(), Error> {
        self.raised.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// An error if any process has found that the file is in doubt.
    pub(crate) fn check_all(&self) -> std::result::Result<(), Error> {
        if self.raised.get().is_none() && self.mark.exists() {
            self.raised.get_or_init(|| Error::Unavailable(words(&self.path).into()));
        }
        self.check()
    }

    /// Examines the failure of a commit or a checkpoint: an I/O error puts the file in doubt.
    pub(crate) fn judge(&self, failure: Failure) -> Failure {
        let Failure::Sqlite(error) = failure else { return failure };
        if error.sqlite_error_code() != Some(ErrorCode::SystemIoFailure) {
            return Failure::Sqlite(error);
        }
        let file = self.path.display();
        let text = format!("{} ({error})", words(&self.path));
        let raised = self.raised.get_or_init(|| {
            tracing::error!(%file, %error, "a sync failed; nothing more is written to the store");
            Error::Unavailable(Cause::new(text, error))
        });
        // The marker is not synced: a power cut clears the kernel's memory, which ends the doubt.
        let mut open = OpenOptions::new();
        open.create(true).append(true).mode(0o600);
        if let Err(error) = open.open(&self.mark) {
            tracing::error!(%file, %error, "cannot warn other daemons of the failed sync");
        }
        Failure::Store(raised.clone())
    }
}

fn words(path: &Path) -> String {
    let file = FileName(path);
    format!(
        "a sync failed, so recent writes to {file} may not be on the disk: nothing more is \
         written until every daemon that uses it has been restarted"
    )
}

fn mark(path: &Path) -> PathBuf {
    beside(path, "-doubt")
}

/// A file beside the database, named as SQLite names its own.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Ends the doubt about a file that no other process has open. Called before the file is opened for
/// use.
pub(crate) fn settle(options: &Options) -> Result<()> {
    let (log, mark) = (beside(&options.path, "-wal"), mark(&options.path));
    let marked = mark.exists();
    if !marked && log.metadata().map_or(0, |metadata| metadata.len()) == 0 {
        return Ok(());
    }
    let Some(first) = alone_unless_used(options, marked)? else { return Ok(()) };
    rewrite(&log).map_err(|error| {
        let text = format!("the log {} cannot be rewritten: {error}", FileName(&log));
        Failure::Store(Error::Unavailable(Cause::new(text, error)))
    })?;
    drop(first);
    // A daemon that opened the file in between has recovered the log that was just synced.
    let Some(second) = alone_unless_used(options, marked)? else { return Ok(()) };
    second.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    second.close().map_err(|(_, error)| error)?;
    if marked {
        std::fs::remove_file(&mark).map_err(|error| {
            let text = format!("{} cannot be removed: {error}", FileName(&mark));
            Failure::Store(Error::Unavailable(Cause::new(text, error)))
        })?;
    }
    Ok(())
}

/// `None` if another daemon has the file open, or opening it for use will report why it failed. A
/// file that is marked as in doubt must not be used then.
fn alone_unless_used(options: &Options, marked: bool) -> Result<Option<Connection>> {
    match alone(options) {
        Ok(connection) => Ok(Some(connection)),
        Err(_) if marked => Err(Failure::Store(Error::Unavailable(words(&options.path).into()))),
        Err(_) => Ok(None),
    }
}

/// A connection with exclusive access, after it has recovered the log.
fn alone(options: &Options) -> Result<Connection> {
    let connection = open::connect(options, OpenFlags::empty())?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
    Ok(connection)
}

/// Rewrites all bytes of a file and syncs them.
fn rewrite(path: &Path) -> std::io::Result<()> {
    let file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut buffer = vec![0; REWRITE_BYTES];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut buffer, at)?;
        if read == 0 {
            return file.sync_all();
        }
        file.write_all_at(&buffer[..read], at)?;
        at += read as u64;
    }
}
