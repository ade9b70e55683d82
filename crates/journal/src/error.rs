//! Errors, by what the caller does about them.

use std::io;
use std::path::{Path, PathBuf};

use windlass_core::JobId;
use windlass_core::file_name::FileName;
use windlass_core::id::ClockTooFarBack;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process uses this journal.
    #[error("the journal {} is in use by another process", FileName(.0))]
    Locked(PathBuf),
    /// The disk refused; nothing of the request is in the journal. Try again later.
    #[error("the journal cannot use its disk: {0}")]
    Storage(String),
    /// Stop: an operator has to look at the file. Nothing was changed.
    #[error("the journal is damaged: {} at byte {offset}: {what}", FileName(.file))]
    Corrupt { file: PathBuf, offset: u64, what: String },
    /// The ticket has expired and its records are readable again, or the store has them.
    #[error("the reservation has expired")]
    Expired,
    /// The handle was closed, or belongs to an adopted journal, which is read-only.
    #[error("the journal is closed for this use")]
    Closed,
    /// The writer thread has panicked, which is a bug; only a restart helps. The entries being
    /// appended may be in the journal.
    #[error("the journal's writer has panicked and accepts nothing more: {0}")]
    Writer(String),
    /// No id can be generated; an operator has to correct the clock.
    #[error(transparent)]
    Clock(#[from] ClockTooFarBack),
    /// Larger than one append may be.
    #[error("one append takes at most {bytes_max} bytes, not {bytes}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// The journal cannot go back this far: it has dropped records that would have to be read
    /// again.
    #[error(
        "the journal cannot go back to {}: it has dropped records up to {until}",
        .after.map_or("its beginning".into(), |id| id.to_string())
    )]
    Gap { after: Option<JobId>, until: JobId },
    /// Only a journal without unread records may be removed.
    #[error("the journal still has {records} unread records")]
    Unread { records: u64 },
}

impl Error {
    /// A file system error, with the operation and the file.
    pub(crate) fn storage(doing: &str, path: &Path, error: &io::Error) -> Error {
        Error::Storage(format!("cannot {doing} {}: {error}", FileName(path)))
    }

    pub(crate) fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }
}
