//! A worker's report about a job: what `FinishJob` and `RetryJob` have in common.

use std::time::Duration;

use windlass_bedrock_rules::date_text::{seconds_text, set_next_run};
use windlass_core::calendar::Civil;
use windlass_core::edit::{ChildMove, Edit, FamilyView, Put};
use windlass_core::family;
use windlass_core::repeat::{Bases, Repeat};
use windlass_core::{Job, JobId, State, Timestamp};

use crate::wire::Request;

use super::value::{self, filled};
use super::{Refusal, data, view};

/// The parameters of both commands.
pub(super) struct Report {
    pub(super) id: JobId,
    data: Option<String>,
    ignore_repeat: bool,
}

impl Report {
    #[cfg(test)]
    pub(super) fn plain(id: JobId, ignore_repeat: bool) -> Report {
        Report { id, data: None, ignore_repeat }
    }

    pub(super) fn new(request: &Request) -> Result<Report, Refusal> {
        Ok(Report {
            id: value::job_id(request)?,
            data: filled(request, "data").map(str::to_owned),
            ignore_repeat: value::test(request, "ignoreRepeat"),
        })
    }

    /// The data that was sent, if there is any.
    pub(super) fn data(&self) -> Option<&str> {
        self.data.as_deref()
    }

    /// The checks of both commands, and the job with its new data.
    pub(super) fn on<'a>(
        &self,
        seen: &'a FamilyView,
        now: Timestamp,
        retention: Duration,
    ) -> Result<Reported<'a>, Refusal> {
        let whole = view::found(seen)?;
        let job = &whole.job;
        if !job.is_out() && !job.extra.hidden {
            return Err((405, "Can only retry/finish RUNNING and RUNQUEUED jobs").into());
        }
        let parent = seen.parent.as_ref().map(|parent| &parent.job);
        let is_child = family::is_waited_for(parent);
        if is_child && parent.is_some_and(|parent| parent.state != State::Paused) {
            return Err((405, "Can only retry/finish child job when parent is PAUSED").into());
        }
        let given = self.data.as_deref();
        if given.is_some_and(|data| data::is_mocked(data) != job.extra.hidden) {
            return Err((500, "Mock Mismatch").into());
        }
        let old = data::text(&whole.payload);
        let text = match given {
            Some(data) => {
                data::reported(data).ok_or((502, "Failed to update job retryAfterCount"))?
            }
            None => data::without_retry_count(old.unwrap_or_default()),
        };
        let ends_for_good = given.is_some_and(data::asks_for_deletion);
        let changed = given.is_some() || old.is_some_and(|old| old != text);
        let payload = changed.then(|| data::bytes(text.as_str()));
        let mut job = Job { lease: None, ..job.clone() };
        job.extra.lent = false;
        Ok(Reported {
            repeats: job.extra.repeat.is_some() && !self.ignore_repeat && !ends_for_good,
            purge_at: now + whole.retention.unwrap_or(retention),
            text,
            seen,
            is_child,
            put: Put { job, payload, purge_at: None },
            now,
        })
    }
}

/// A job whose report was accepted, before its next step is decided.
pub(super) struct Reported<'a> {
    pub(super) seen: &'a FamilyView,
    /// Its parent waits for it.
    pub(super) is_child: bool,
    pub(super) repeats: bool,
    pub(super) put: Put,
    pub(super) purge_at: Timestamp,
    pub(super) now: Timestamp,
    text: String,
}

impl Reported<'_> {
    /// Its parent has seen its ended children by now.
    pub(super) fn detach_children(&self) -> Vec<Edit> {
        let detach = |from| Edit::Children {
            parent: self.put.job.id,
            from,
            to: ChildMove::Detach { purge_at: self.purge_at },
        };
        let seen = self.seen.children;
        let states = [(State::Finished, seen.finished), (State::Cancelled, seen.cancelled)];
        states.into_iter().filter(|(_, any)| *any).map(|(state, _)| detach(state)).collect()
    }

    /// Queued for the next time that its repeat names.
    pub(super) fn repeated(self) -> Put {
        let now = self.now;
        let at = self.next_time().unwrap_or(now);
        let mut put = queued(self.put, at, &seconds_text(at));
        put.job.attempt = 0;
        put
    }

    fn next_time(&self) -> Option<Timestamp> {
        let job = &self.put.job;
        let repeat = Repeat::parse(job.extra.repeat.as_deref()?).ok()?;
        // While it was lent, its time was that of the next try.
        let original = data::original_next_run(&self.text).filter(|_| is_lent_by_rule(job));
        let scheduled = match original {
            Some(text) => Civil::parse(&text),
            None => view::scheduled(job),
        };
        let scheduled = scheduled.or_else(|| Some(Civil::from_timestamp(self.now)));
        repeat.next(&Bases { scheduled, started: job.started_at.or(Some(self.now)), now: self.now })
    }
}

fn is_lent_by_rule(job: &Job) -> bool {
    job.extra.door_text.is_some()
}

/// The job in the queue, for a time with its text.
pub(super) fn queued(mut put: Put, at: Timestamp, text: &str) -> Put {
    put.job.state = State::Queued;
    put.job.run_at = at;
    put.job.due_at = at;
    put.job.finished_at = None;
    set_next_run(&mut put.job.extra, text, at);
    put
}
