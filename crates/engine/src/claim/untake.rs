//! Untake: undoes a take whose jobs did not reach their worker.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use windlass_core::edit::{Ask, Decide, Decision, Edit, MovedJobs, Put, Target};
use windlass_core::job::Token;
use windlass_core::store::Durability;
use windlass_core::{Job, Payload, Timestamp};

use crate::error::{Error, store_error};
use crate::event;
use crate::follow_up;
use crate::shared::Shared;

/// A job that a take gave.
#[derive(Debug, Clone)]
pub struct Taken {
    /// What it becomes again.
    pub before: Job,
    /// What the take made of it.
    pub after: Job,
}

/// Pure: gets the number of a job and its payload as it is now. Returns the payload without what
/// the take wrote; `None` keeps it.
pub type PayloadBefore = Arc<dyn Fn(usize, &Payload) -> Option<Bytes> + Send + Sync>;

/// Whether the log has the starts of the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    Logged,
    NotLogged,
}

/// Undoes what a take changed. What others have changed since stays, and so do jobs that another
/// attempt has by now, or none. If the store is away, the beat releases those with leases later.
pub(crate) async fn untake(
    shared: &Shared,
    taken: Vec<Taken>,
    payload: PayloadBefore,
    starts: Starts,
) -> Result<(), Error> {
    let Some(first) = taken.first() else { return Ok(()) };
    let tenant = first.before.key.tenant.clone();
    let targets = taken.iter().map(|taken| Target::Job(taken.after.id)).collect();
    let leases = taken.iter().filter_map(|taken| taken.after.lease);
    let tokens: BTreeSet<Token> = leases.map(|lease| lease.token).collect();
    let decide: Decide = Arc::new(move |index, seen, _| {
        let undone = seen.job.as_ref().and_then(|now| {
            let job = without(&taken[index], &now.job)?;
            let payload = payload(index, &now.payload);
            Some(Edit::Put(Box::new(Put { job, payload, purge_at: None })))
        });
        Ok(Decision { edits: undone.into_iter().collect(), id: None })
    });
    let ask = Ask { tenant, targets, decide, durability: Durability::Relaxed };
    let decided = shared.store.job_decide(ask).await.map_err(|error| {
        tokens.into_iter().for_each(|token| shared.daemon.abandoned.note(token));
        store_error(error)
    })?;
    if starts == Starts::Logged {
        decided.moved.back.iter().for_each(|(job, _)| event::returned(job, "not delivered"));
    }
    // Nobody had them, so no attempt has ended.
    follow_up::announce(shared, &MovedJobs { back: Vec::new(), ..decided.moved });
    Ok(())
}

/// The job as it is now, without the take; `None` if the take's attempt no longer has it.
fn without(taken: &Taken, now: &Job) -> Option<Job> {
    let Taken { before, after } = taken;
    if holder(now) != holder(after) {
        return None;
    }
    let mut job = Job {
        state: before.state,
        lease: before.lease,
        attempt: before.attempt,
        started_at: before.started_at,
        finished_at: before.finished_at,
        last: before.last,
        ..now.clone()
    };
    job.extra.lent = before.extra.lent;
    if time(now) == time(after) {
        (job.run_at, job.due_at) = (before.run_at, before.due_at);
        job.extra.run_at_text.clone_from(&before.extra.run_at_text);
        job.extra.order_key = before.extra.order_key;
    }
    Some(job)
}

/// What differs between two attempts of a job.
fn holder(job: &Job) -> impl PartialEq {
    let token = job.lease.map(|lease| lease.token);
    (job.state, job.extra.lent, job.started_at, token)
}

fn time(job: &Job) -> (Timestamp, Timestamp, Option<&str>) {
    (job.run_at, job.due_at, job.extra.run_at_text.as_deref())
}

#[cfg(test)]
mod tests {
    use windlass_core::{JobId, NewJob, TypeKey};

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const LATER: Timestamp = Timestamp(1_800_000_060_000);

    /// A job that a take has lent until later.
    fn lent() -> Taken {
        let key = TypeKey::new("acme", "t").unwrap();
        let payload = Payload::Inline(Bytes::new());
        let before = Job::queued(NewJob::new(JobId::new(1).unwrap(), key, payload, NOW));
        let mut after = Job { run_at: LATER, attempt: 1, started_at: Some(NOW), ..before.clone() };
        (after.extra.lent, after.extra.run_at_text) = (true, Some("later".into()));
        Taken { before, after }
    }

    #[test]
    fn a_lent_job_becomes_what_it_was() {
        let taken = lent();
        assert_eq!(without(&taken, &taken.after), Some(taken.before));
    }

    #[test]
    fn a_time_that_was_set_meanwhile_stays() {
        let taken = lent();
        let set = Job { run_at: NOW, due_at: LATER, ..taken.after.clone() };
        let job = without(&taken, &set).unwrap();
        assert_eq!((job.run_at, job.due_at), (NOW, LATER));
        assert_eq!((job.attempt, job.extra.lent, job.started_at), (0, false, None));
    }

    #[test]
    fn a_job_that_was_lent_again_or_has_ended_is_left_alone() {
        let taken = lent();
        let again = Job { started_at: Some(LATER), ..taken.after.clone() };
        let mut back = taken.after.clone();
        back.extra.lent = false;
        for now in [again, back] {
            assert_eq!(without(&taken, &now), None);
        }
    }
}
