//! `UpdateJob`: sets data and optionally repeat, priority or time, regardless of the job's state.

use std::sync::Arc;

use windlass_bedrock_rules::date_text::{due_at, seconds_text, set_next_run};
use windlass_core::edit::{Decision, Edit, FamilyView, Put, Target};
use windlass_core::key::Right;
use windlass_core::repeat::{Bases, Repeat};
use windlass_core::{Job, Priority, Timestamp};

use crate::execute::Reply;
use crate::number::leading_integer;
use crate::wire::Request;

use super::value::{self, filled};
use super::{Bedrock, Refusal, data, done, view};

struct Update {
    data: String,
    repeat: Option<Repeat>,
    clear_repeat: bool,
    priority: Option<Priority>,
    next_run: Option<String>,
}

/// A worker keeps the data of its job up to date; the rest is administration.
pub(super) fn needs(request: &Request) -> Right {
    let headers = ["repeat", "jobPriority", "nextRun"];
    let more = headers.iter().any(|header| filled(request, header).is_some());
    if more || clears_repeat(request) { Right::Manage } else { Right::Work }
}

fn clears_repeat(request: &Request) -> bool {
    leading_integer(request.header("shouldClearRepeat").unwrap_or_default()) != 0
}

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let id = value::job_id(request)?;
    let update = Update {
        data: value::update_data(request)?.to_owned(),
        repeat: value::repeat(request.header("repeat").unwrap_or_default())?,
        clear_repeat: clears_repeat(request),
        priority: value::job_priority(request)?,
        next_run: filled(request, "nextRun").map(str::to_owned),
    };
    let decide = move |_, seen: &FamilyView, now| decision(&update, seen, now);
    door.decide(vec![Target::Job(id)], decide).await?;
    done()
}

fn decision(update: &Update, seen: &FamilyView, now: Timestamp) -> Result<Decision, Refusal> {
    let mut job = view::found(seen)?.job.clone();
    let data = data::updated(&update.data, job.extra.hidden);
    if let Some(text) = update.next_run(&job, now) {
        job.run_at = due_at(&text);
        job.due_at = job.run_at;
        set_next_run(&mut job.extra, &text, job.run_at);
    }
    if update.clear_repeat {
        job.extra.repeat = None;
    } else if let Some(repeat) = &update.repeat {
        job.extra.repeat = Some(Arc::from(repeat.as_str()));
    }
    job.priority = update.priority.unwrap_or(job.priority);
    job.extra.hidden = data::is_mocked(&data);
    let put = Put { job, payload: Some(data::bytes(data)), purge_at: None };
    Ok(Decision { edits: vec![Edit::Put(Box::new(put))], id: None })
}

impl Update {
    /// The given time, or the one computed from the repeat.
    fn next_run(&self, job: &Job, now: Timestamp) -> Option<String> {
        if self.next_run.is_some() {
            return self.next_run.clone();
        }
        let repeat = self.repeat.as_ref().filter(|_| !self.clear_repeat)?;
        let bases = Bases { scheduled: view::scheduled(job), started: job.started_at, now };
        Some(seconds_text(repeat.next(&bases)?))
    }
}
