//! What fails at the moment.

use std::sync::{Condvar, Mutex, PoisonError};

use fuser::Errno;

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

    /// Waits while the disk hangs; then an error if this trouble concerns the call.
    pub(super) fn pass(&self, concerned: Trouble) -> Result<(), Errno> {
        let guard = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let over = self.changed.wait_while(guard, |now| *now == Trouble::Hang);
        let now = *over.unwrap_or_else(PoisonError::into_inner);
        if now == concerned { Err(Errno::EIO) } else { Ok(()) }
    }
}
