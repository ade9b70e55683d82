//! The audit. A change by a client is entered in the store before it begins (`audited`), and its
//! outcome is added, synced, before it is answered. So a kill or a power cut loses no entry of a
//! change that was made: the first write is before the change, and the change's own sync makes it
//! durable, too. If the store fails between the change and its outcome, the client is answered,
//! and the outcome is stored later, or lost with the daemon.
//!
//! Refusals must not cost more than their answers. They are counted in memory (`waiting`), and the
//! service (`service`) stores a bounded number of entries about them, within about a second.

mod service;
mod waiting;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::Notify;

use windlass_core::audit::{Act, AuditEntry, AuditId, Subject};
use windlass_core::job::Boot;
use windlass_core::store::Durability;
use windlass_core::sync::{lock, panic_text};

use crate::api::{Ended, Refusal};
use crate::detach::Room;
use crate::error::{Error, store_error};
use crate::shared::Shared;

pub(crate) use service::{AuditWriter, flush};
use waiting::{Noted, Waiting};

/// Entry ids of one boot; they start again after that. More are not begun in one millisecond.
const IDS_PER_BOOT: i64 = 1 << 20;
/// The status in the entry of a change that panicked.
const STATUS_OF_PANIC: u16 = 500;

pub(crate) struct AuditLog {
    boot: Boot,
    /// Entries begun so far.
    begun: AtomicI64,
    waiting: Mutex<Waiting>,
    /// Notified when something waits again.
    pub wake: Arc<Notify>,
    /// For audited changes, which continue if their callers disconnect.
    pub room: Room,
}

impl AuditLog {
    pub(crate) fn new(boot: Boot) -> AuditLog {
        AuditLog {
            boot,
            begun: AtomicI64::new(0),
            waiting: Mutex::default(),
            wake: Arc::default(),
            room: Room::default(),
        }
    }

    /// No other entry has this id and the same time.
    fn make_id(&self) -> AuditId {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) % IDS_PER_BOOT;
        AuditId(self.boot.0 * IDS_PER_BOOT + number)
    }
}

fn begin(shared: &Shared, act: Act) -> AuditEntry {
    let (at, id) = (shared.now(), shared.audit.make_id());
    AuditEntry { at, id, act, status: None, reason: None, count: 1, last_at: at }
}

/// Makes a change between the two writes of its entry. The change does not begin without the first.
/// If the second fails, it is made up for later.
pub(crate) async fn audited<T>(
    shared: Arc<Shared>,
    act: Act,
    change: impl Future<Output = (T, Ended)>,
) -> Result<T, Error> {
    let mut entry = begin(&shared, act);
    let begun = shared.store.audit_put(vec![entry.clone()], Durability::Relaxed).await;
    begun.map_err(store_error)?;
    let (answer, Ended { status, reason, about }) = match AssertUnwindSafe(change)
        .catch_unwind()
        .await
    {
        Ok((answer, ended)) => (Ok(answer), ended),
        Err(panic) => {
            let why = Error::Internal(format!("panicked: {}", panic_text(&*panic)));
            (Err(why), Ended { status: STATUS_OF_PANIC, reason: None, about: Subject::default() })
        }
    };
    entry.act.subject.complete(about);
    (entry.status, entry.reason, entry.last_at) = (Some(status), reason, shared.now());
    if let Err(error) = shared.store.audit_put(vec![entry.clone()], Durability::Synced).await {
        tracing::warn!(%error, "the outcome of an audited change is stored later");
        let mut waiting = lock(&shared.audit.waiting);
        let was_empty = waiting.is_empty();
        if !waiting.put_last(entry) {
            tracing::error!("too many outcomes of audited changes wait for the store");
        }
        if was_empty {
            shared.audit.wake.notify_one();
        }
    }
    answer
}

/// Enters an act of the daemon itself; durable when this returns.
pub(crate) async fn note(shared: &Shared, act: Act) -> Result<(), Error> {
    let entry = begin(shared, act);
    shared.store.audit_put(vec![entry], Durability::Synced).await.map_err(store_error)
}

/// Counts a refusal. Reads and writes memory only.
pub(crate) fn refused(shared: &Shared, refusal: Refusal) {
    let (steady, at) = (shared.clock.steady(), shared.now());
    let mut waiting = lock(&shared.audit.waiting);
    let was_empty = waiting.is_empty();
    let noted = waiting.note(refusal, steady, at, || shared.audit.make_id());
    drop(waiting);
    if was_empty {
        shared.audit.wake.notify_one();
    }
    match noted {
        Noted::Entered => {}
        Noted::Dropped { first } => {
            shared.metrics.audit_dropped();
            if first {
                tracing::warn!("too many refusals for the audit; it counts the others together");
            }
        }
    }
}
