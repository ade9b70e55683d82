//! `RetryJob`: returns the job to the queue, for its next repeat or for a time that the worker
//! chooses.

use std::time::Duration;

use windlass_bedrock_rules::date_text::{due_at, seconds_text};
use windlass_core::edit::{Decision, Edit, FamilyView, Target};
use windlass_core::{Priority, Timestamp, TypeName};

use crate::execute::Reply;
use crate::number::leading_integer;
use crate::wire::Request;

use super::report::{Report, queued};
use super::value::{self, filled};
use super::{Bedrock, Refusal, done};

/// Longest delay, in digits.
const DELAY_DIGITS_MAX: usize = 8;

pub(super) struct Retry {
    report: Report,
    name: Option<String>,
    priority: Option<String>,
    next_run: Option<String>,
    delay: Option<String>,
}

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let text = |name| filled(request, name).map(str::to_owned);
    let retry = Retry {
        report: Report::new(request)?,
        name: text("name"),
        priority: request.header("jobPriority").map(str::to_owned),
        next_run: text("nextRun"),
        delay: text("delay"),
    };
    let (target, retention) = (Target::Job(retry.report.id), door.engine.retention());
    let decide = move |_, seen: &FamilyView, now| decision(&retry, seen, now, retention);
    door.decide(vec![target], decide).await?;
    done()
}

pub(super) fn decision(
    retry: &Retry,
    seen: &FamilyView,
    now: Timestamp,
    retention: Duration,
) -> Result<Decision, Refusal> {
    let mut reported = retry.report.on(seen, now, retention)?;
    let name: Option<TypeName> = retry.name.as_deref().map(value::type_name).transpose()?;
    let priority: Option<Priority> = retry.priority.as_deref().map(value::priority).transpose()?;
    let mut edits = reported.detach_children();
    let job = &mut reported.put.job;
    job.key.name = name.unwrap_or_else(|| job.key.name.clone());
    job.priority = priority.unwrap_or(job.priority);
    let put = if reported.repeats {
        reported.repeated()
    } else {
        let (at, text) = retry.time(now)?;
        queued(reported.put, at, &text)
    };
    edits.push(Edit::Put(Box::new(put)));
    Ok(Decision { edits, id: None })
}

impl Retry {
    /// Immediately, unchanged.
    #[cfg(test)]
    pub(super) fn plain(id: windlass_core::JobId) -> Retry {
        let report = Report::plain(id, false);
        Retry { report, name: None, priority: None, next_run: None, delay: None }
    }

    /// When it is tried again, and the text of that time.
    fn time(&self, now: Timestamp) -> Result<(Timestamp, String), Refusal> {
        if let Some(text) = &self.next_run {
            return Ok((due_at(text), text.clone()));
        }
        let delay = leading_integer(self.delay.as_deref().unwrap_or_default());
        if delay < 0 {
            return Err((402, "Must specify a non-negative delay when retrying").into());
        }
        if delay.to_string().len() > DELAY_DIGITS_MAX {
            return Err((402, "Malformed delay").into());
        }
        let text = seconds_text(now + Duration::from_secs(delay.unsigned_abs()));
        Ok((due_at(&text), text))
    }
}
