//! Progress reports of running handlers. A handler may report as often as it likes and never waits
//! for the store: the latest report of each job is written at most once per `INTERVAL`. A report
//! that is not written by the end of the attempt goes into its settlement.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use windlass_core::AttemptId;
use windlass_core::job::Progress;
use windlass_core::limit::PROGRESS_BYTES_MAX;
use windlass_core::store::LeaseRef;
use windlass_core::sync::lock;

use crate::shared::Shared;

/// Minimum time between two writes of a job's progress.
const INTERVAL: Duration = Duration::from_millis(250);

/// The progress of one batch.
#[derive(Default)]
pub(crate) struct Progresses {
    attempts: Mutex<HashMap<AttemptId, AttemptProgress>>,
}

/// The progress of one attempt.
#[derive(Default)]
struct AttemptProgress {
    newest: Option<Progress>,
    /// The number of the latest report; it is in the store if `stored` is the same.
    reported: u64,
    stored: u64,
    /// A task is writing, or pausing before the next write.
    writing: bool,
    /// The first value that was not a percentage.
    invalid: Option<f64>,
}

/// The progress that is left to store when an attempt has ended.
#[derive(Default)]
pub(crate) struct Rest {
    /// The latest report, if the store may not have it.
    pub progress: Option<Progress>,
    /// A note for the job's log.
    pub note: Option<String>,
}

impl Progresses {
    pub(crate) fn report(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        lease: LeaseRef,
        percent: f64,
        message: String,
    ) {
        let mut attempts = self.attempts();
        let of = attempts.entry(lease.attempt_id()).or_default();
        if !(0.0..=100.0).contains(&percent) {
            of.invalid = of.invalid.or(Some(percent));
        }
        if percent.is_nan() {
            return;
        }
        let (percent, message) = (percent.clamp(0.0, 100.0), cut(message));
        of.newest = Some(Progress { percent, message, at: shared.now() });
        of.reported += 1;
        if !std::mem::replace(&mut of.writing, true) {
            tokio::spawn(self.clone().write(shared.clone(), lease));
        }
    }

    /// Forgets the attempt; no more progress is written for it.
    pub(crate) fn end(&self, attempt: AttemptId) -> Rest {
        let Some(of) = self.attempts().remove(&attempt) else { return Rest::default() };
        let note = |percent| format!("a progress of {percent} is not a percentage from 0 to 100");
        let progress = of.newest.filter(|_| of.stored < of.reported);
        Rest { progress, note: of.invalid.map(note) }
    }

    async fn write(self: Arc<Self>, shared: Arc<Shared>, lease: LeaseRef) {
        let attempt = lease.attempt_id();
        while let Some((number, progress)) = self.next(attempt) {
            match shared.store.job_progress(vec![(lease.clone(), progress)]).await {
                Ok(_) => self.stored(attempt, number),
                Err(error) => tracing::debug!(%error, id = %lease.id, "cannot store progress now"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// The report to write, if there is a new one.
    fn next(&self, attempt: AttemptId) -> Option<(u64, Progress)> {
        let mut attempts = self.attempts();
        let of = attempts.get_mut(&attempt)?;
        of.writing = of.stored < of.reported;
        of.newest.clone().filter(|_| of.writing).map(|progress| (of.reported, progress))
    }

    fn stored(&self, attempt: AttemptId, number: u64) {
        if let Some(of) = self.attempts().get_mut(&attempt) {
            of.stored = number;
        }
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<AttemptId, AttemptProgress>> {
        lock(&self.attempts)
    }
}

/// The message cut to its bound, as text that every store can keep.
fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(PROGRESS_BYTES_MAX));
    if message.contains('\0') {
        // The replacement is longer, so the end may have to be cut again.
        message = message.replace('\0', "\u{fffd}");
        message.truncate(message.floor_char_boundary(PROGRESS_BYTES_MAX));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(cut("short".into()), "short");
        assert_eq!(cut("ä".repeat(PROGRESS_BYTES_MAX)), "ä".repeat(PROGRESS_BYTES_MAX / 2));
        let zeros = cut("\0".repeat(PROGRESS_BYTES_MAX));
        assert_eq!(zeros, "\u{fffd}".repeat(PROGRESS_BYTES_MAX / 3));
    }
}
