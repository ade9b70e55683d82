//! A job in Bedrock's terms: its state, its times as text, and whether it exists.

use std::borrow::Cow;

use windlass_bedrock_rules::date_text::{millis_text, seconds_text};
use windlass_bedrock_rules::state;
use windlass_core::calendar::Civil;
use windlass_core::edit::{FamilyView, FullJob};
use windlass_core::{Job, State};

use crate::wire::json::Object;

use super::Refusal;
use super::data;

/// A finished or cancelled job exists only until its parent has seen it.
pub(super) fn exists(job: &Job) -> bool {
    job.parent.is_some() || !matches!(job.state, State::Finished | State::Cancelled)
}

/// The job that a command names.
pub(super) fn found(seen: &FamilyView) -> Result<&FullJob, Refusal> {
    let there = seen.job.as_ref().filter(|whole| exists(&whole.job));
    there.ok_or_else(|| (404, "No job with this jobID").into())
}

/// `nextRun` exactly as it was set.
pub(super) fn next_run(job: &Job) -> Cow<'_, str> {
    match &job.extra.run_at_text {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(millis_text(job.run_at)),
    }
}

/// The same as a date, if it is one.
pub(super) fn scheduled(job: &Job) -> Option<Civil> {
    Civil::parse(&next_run(job))
}

/// The nine keys of a job in a reply to `GetJob`.
pub(super) fn handed_out(whole: &FullJob) -> Object {
    let job = &whole.job;
    Object::new()
        .text("created", &seconds_text(job.created_at))
        .text("data", &data::shown(&whole.payload))
        .number("jobID", job.id.get())
        .text("lastRun", &job.started_at.map(seconds_text).unwrap_or_default())
        .text("name", job.key.name.as_str())
        .text("nextRun", &next_run(job))
        .number("priority", i64::from(job.priority.get()))
        .text("repeat", job.extra.repeat.as_deref().unwrap_or_default())
        .text("retryAfter", job.extra.door_text.as_deref().unwrap_or_default())
}

/// The ten keys of a job in a reply to `QueryJob`.
pub(super) fn queried(whole: &FullJob) -> Object {
    handed_out(whole).text("state", state::word(whole.job.state, whole.job.extra.lent))
}
