//! Log lines of a job: one when it enters, one for each start, one for each end of an attempt. They
//! have ids, names, codes and durations, never a payload, a key or a result.

use std::time::Duration;

use windlass_core::job::Ended;
use windlass_core::{Job, JobId, Timestamp, TypeKey};

pub(crate) fn entered(id: JobId, key: &TypeKey) {
    tracing::info!(
        event = "job_entered",
        %id,
        tenant = %key.tenant,
        r#type = %key.name,
        attempt = 0,
    );
}

pub(crate) fn started(job: &Job) {
    tracing::info!(
        event = "job_started",
        id = %job.id,
        tenant = %job.key.tenant,
        r#type = %job.key.name,
        attempt = job.attempt,
    );
}

/// `run` is how long the attempt ran, zero if unknown.
pub(crate) fn ended(job: &Job, ended: Ended, run: Duration, what: &'static str) {
    tracing::info!(
        event = "job_ended",
        id = %job.id,
        tenant = %job.key.tenant,
        r#type = %job.key.name,
        attempt = job.attempt,
        code = ended.code.as_str(),
        exitcode = ended.status.get(),
        run_ms = run.as_millis() as u64,
        wait_ms = waited(job).as_millis() as u64,
        then = what,
    );
}

pub(crate) fn cancelled(job: &Job) {
    tracing::info!(
        event = "job_cancelled",
        id = %job.id,
        tenant = %job.key.tenant,
        r#type = %job.key.name,
    );
}

/// Entered as cancelled: another add used its idempotency key first.
pub(crate) fn repeated(id: JobId, key: &TypeKey) {
    entered(id, key);
    tracing::warn!(
        event = "job_cancelled",
        %id,
        tenant = %key.tenant,
        r#type = %key.name,
        why = "another add had its idempotency key first",
    );
}

/// An attempt that does not count: released, or lost to another owner.
pub(crate) fn returned(job: &Job, why: &'static str) {
    tracing::info!(
        event = "job_returned",
        id = %job.id,
        tenant = %job.key.tenant,
        r#type = %job.key.name,
        attempt = job.attempt,
        why,
    );
}

/// From when the job was due to when it was claimed.
fn waited(job: &Job) -> Duration {
    job.started_at.map_or(Duration::ZERO, |at: Timestamp| at.since(job.run_at))
}
