//! What can go wrong, cut by what the caller does about it.

use std::io;
use std::path::{Path, PathBuf};

use windlass_core::JobId;
use windlass_core::id::ClockTooFarBack;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process uses this journal.
    #[error("the journal {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The disk refused; nothing of the request is in the journal. Try again later.
    #[error("the journal cannot use its disk: {0}")]
    Storage(String),
    /// Stop; somebody must look at the file. Nothing was changed.
    #[error("the journal is damaged: {} at byte {offset}: {what}", .file.display())]
    Corrupt { file: PathBuf, offset: u64, what: String },
    /// The ticket's time is over and its records are readable again, or the store has them.
    #[error("the reservation has expired")]
    Expired,
    /// The handle was closed, or is an adopted journal that is only read.
    #[error("the journal is closed for this use")]
    Closed,
    /// The thread that writes has ended by a panic, a defect of ours; only a restart helps. What
    /// was being appended may be in the journal.
    #[error("the journal's writer has ended by a panic and accepts nothing more: {0}")]
    Writer(String),
    /// No id can be made; somebody must set the clock right.
    #[error(transparent)]
    Clock(#[from] ClockTooFarBack),
    /// Larger than what one append may bring.
    #[error("one append has at most {bytes_max} bytes; these are {bytes}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// The journal cannot go back so far: it has dropped records that would have to be read again.
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
    /// An error of the file system, with what was being done to which file.
    pub(crate) fn storage(doing: &str, path: &Path, error: &io::Error) -> Error {
        Error::Storage(format!("cannot {doing} {}: {error}", path.display()))
    }

    pub(crate) fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }
}
