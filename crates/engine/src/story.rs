//! Story: what the decisions of doors do to runs, for the log and the numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_core::edit::{Decide, Edit, Seen};
use windlass_core::{Job, JobId, State};

use crate::event;
use crate::shared::Shared;

/// Jobs before and after a change. A decision may be asked more than once: its last answer counts.
#[derive(Clone, Default)]
pub(crate) struct Story(Arc<Mutex<BTreeMap<JobId, (Job, Job)>>>);

impl Story {
    fn changes(&self) -> MutexGuard<'_, BTreeMap<JobId, (Job, Job)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same decision, and what it does to the job that it is shown is noted.
    pub(crate) fn watch(&self, decide: Decide) -> Decide {
        let story = self.clone();
        Arc::new(move |index, seen: &Seen| {
            let decision = decide(index, seen)?;
            if let Some(whole) = &seen.job {
                for edit in &decision.edits {
                    if let Edit::Put(put) = edit
                        && put.job.id == whole.job.id
                    {
                        story.note(&whole.job, &put.job);
                    }
                }
            }
            Ok(decision)
        })
    }

    pub(crate) fn note(&self, before: &Job, after: &Job) {
        if ends_run(before, after) || is_cancelled(before, after) {
            self.changes().insert(before.id, (before.clone(), after.clone()));
        }
    }

    /// After the changes were made.
    pub(crate) fn tell(&self, shared: &Shared) {
        for (before, after) in std::mem::take(&mut *self.changes()).values() {
            if is_cancelled(before, after) {
                event::cancelled(after);
                continue;
            }
            let held = shared.now().since(before.started_at.unwrap_or_else(|| shared.now()));
            shared.metrics.held(held);
            match after.last.filter(|_| says_how_it_ended(before, after)) {
                Some(ended) => {
                    shared.metrics.ended(&after.key, ended.code, false);
                    event::ended(before, ended, held, what_next(after));
                }
                None => event::returned(before, "queued again"),
            }
        }
    }
}

/// A worker had it, and has it no more.
fn ends_run(before: &Job, after: &Job) -> bool {
    let token = |job: &Job| job.lease.map(|lease| lease.token);
    match before.state {
        State::Running => token(before) != token(after),
        State::Queued => before.extra.lent && !after.extra.lent && after.state != State::Running,
        _ => false,
    }
}

fn is_cancelled(before: &Job, after: &Job) -> bool {
    !before.state.is_ended() && after.state == State::Cancelled
}

/// A job that goes back to the queue keeps what was said of it before, unless it begins anew.
fn says_how_it_ended(before: &Job, after: &Job) -> bool {
    after.state != State::Queued || after.last != before.last || after.attempt == 0
}

fn what_next(after: &Job) -> &'static str {
    match after.state {
        State::Queued if after.extra.repeat.is_some() => "repeats",
        State::Queued => "again",
        state => state.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::job::{Ended, Lease, Token};
    use windlass_core::{Status, Sysid, Timestamp, TypeKey};

    fn job(state: State, token: Option<i64>, last: Option<Status>) -> Job {
        let owner = Sysid::new(1).unwrap();
        let lease = |token| Lease { owner, token: Token(token), expires_at: Timestamp(9) };
        let new = windlass_core::NewJob {
            id: JobId::new(7).unwrap(),
            key: TypeKey::new("acme", "t").unwrap(),
            priority: Default::default(),
            run_at: Timestamp(1),
            created_at: Timestamp(1),
            expires_at: None,
            timeout: None,
            unique: None,
            then: None,
            parent: None,
            paused: false,
            extra: Default::default(),
            payload: windlass_core::Payload::Inline(Default::default()),
        };
        Job {
            state,
            attempt: 1,
            lease: token.map(lease),
            last: last.map(Ended::from),
            ..crate::read::as_queued(new)
        }
    }

    #[test]
    fn a_run_ends_when_its_lease_is_another_or_its_loan_is_over() {
        let running = job(State::Running, Some(1), None);
        assert!(!ends_run(&running, &running));
        assert!(ends_run(&running, &job(State::Running, Some(2), None)));
        assert!(ends_run(&running, &job(State::Finished, None, None)));
        let mut lent = job(State::Queued, None, None);
        assert!(!ends_run(&lent, &job(State::Queued, None, None)), "nobody had it");
        lent.extra.lent = true;
        assert!(!ends_run(&lent, &lent), "it is lent again");
        assert!(ends_run(&lent, &job(State::Queued, None, None)));
        assert!(ends_run(&lent, &job(State::Failed, None, None)));
    }

    #[test]
    fn how_a_run_ended_is_told_from_how_an_earlier_one_did() {
        let ok = Some(Status::OK);
        let running = job(State::Running, Some(1), ok);
        assert!(!says_how_it_ended(&running, &job(State::Queued, None, ok)));
        assert!(says_how_it_ended(&running, &job(State::Queued, None, Some(Status::ERROR))));
        assert!(says_how_it_ended(&running, &job(State::Finished, None, ok)));
        let anew = Job { attempt: 0, ..job(State::Queued, None, ok) };
        assert!(says_how_it_ended(&running, &anew));
    }
}
