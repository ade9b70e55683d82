//! What fails at the moment.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use fuser::Errno;

/// What the names of the store's files begin with.
const STORE: &str = "store.db";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Trouble {
    #[default]
    None,
    Reads,
    Writes,
    /// Syncs fail, and sync nothing.
    Syncs,
    /// Reads, writes and syncs wait until the trouble is over.
    Hang,
    /// As `Hang`, but only those of the store's files: journals work.
    StoreHang,
}

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Store,
    /// Journals, large payloads, folders.
    Other,
}

impl Part {
    pub(super) fn of(path: &Path) -> Part {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with(STORE) { Part::Store } else { Part::Other }
    }
}

impl Trouble {
    fn blocks(self, part: Part) -> bool {
        self == Trouble::Hang || (self == Trouble::StoreHang && part == Part::Store)
    }
}

/// Set by the run, and looked at by every call.
#[derive(Default)]
pub(super) struct Switch {
    trouble: Mutex<Trouble>,
    changed: Condvar,
}

impl Switch {
    pub(super) fn set(&self, trouble: Trouble) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        self.changed.notify_all();
    }

    /// Waits while this part of the disk hangs; then an error if this trouble concerns the call.
    pub(super) fn pass(&self, concerned: Trouble, part: Part) -> Result<(), Errno> {
        let guard = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let over = self.changed.wait_while(guard, |now| now.blocks(part));
        let now = *over.unwrap_or_else(PoisonError::into_inner);
        if now == concerned { Err(Errno::EIO) } else { Ok(()) }
    }
}
