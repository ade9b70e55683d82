//! Changes by clients, giving up, and purging.

use crate::id::JobId;
use crate::job::Job;
use crate::limit::ORPHAN_PIECES_AGE;
use crate::name::Tenant;
use crate::state::{self, Event, State as JobState};
use crate::store::{Changed, EndRequest, GiveUp, Overdue, Requeue};
use crate::time::Timestamp;

use super::State;

impl State {
    pub(super) fn job_cancel(&mut self, end: &EndRequest) -> Changed {
        let now = self.now;
        let Some(row) = self.row_mut(&end.tenant, end.id) else { return Changed::NotFound };
        let before = row.job.clone();
        let Some(next) = state::next(before.state, Event::Cancel) else {
            return Changed::Refused(before.state);
        };
        row.job.state = next;
        let purge_at = now + end.keep;
        row.ended(now, purge_at);
        self.touch(&before.key);
        self.after_end(end.id, purge_at);
        Changed::Done(Box::new(before))
    }

    pub(super) fn job_rerun(&mut self, tenant: &Tenant, id: JobId) -> Changed {
        let now = self.now;
        let Some(row) = self.row(tenant, id) else { return Changed::NotFound };
        let before = row.job.clone();
        let Some(next) = state::next(before.state, Event::Rerun) else {
            return Changed::Refused(before.state);
        };
        let unique = before.unique.as_deref();
        if let Some(holder) = unique.and_then(|unique| self.unique_holder(&before.key, unique)) {
            return Changed::Held(holder);
        }
        let row = self.row_mut(tenant, id).expect("a job that was just found");
        row.job = Job {
            state: next,
            run_at: now,
            due_at: now,
            attempt: 0,
            started_at: None,
            finished_at: None,
            expires_at: None,
            last: None,
            ..before.clone()
        };
        row.job.extra.retime();
        row.result = None;
        row.progress = None;
        row.purge_at = None;
        row.requeue(now);
        self.touch(&before.key);
        Changed::Done(Box::new(before))
    }

    /// Skips a job whose unique key is held.
    pub(super) fn job_requeue(&mut self, requeue: &Requeue) -> u64 {
        let wanted = |job: &Job| job.key == requeue.key && job.state == requeue.state;
        let jobs = self.jobs.values().map(|row| &row.job);
        let candidates: Vec<JobId> = jobs.filter(|job| wanted(job)).map(|job| job.id).collect();
        let mut queued = 0;
        for id in candidates {
            if queued == requeue.limit as u64 {
                break;
            }
            let changed = self.job_rerun(&requeue.key.tenant, id);
            queued += u64::from(matches!(changed, Changed::Done(_)));
        }
        queued
    }

    pub(super) fn job_delete(&mut self, tenant: &Tenant, id: JobId) -> Changed {
        let Some(row) = self.row(tenant, id) else { return Changed::NotFound };
        let before = row.job.clone();
        if state::next(before.state, Event::Delete).is_none() {
            return Changed::Refused(before.state);
        }
        self.remove_from_family(&before);
        Changed::Done(Box::new(before))
    }

    pub(super) fn job_give_up(&mut self, give_up: &GiveUp) -> Vec<Job> {
        let jobs = self.jobs.values().map(|row| &row.job);
        let overdue: Vec<JobId> = jobs
            .filter(|job| state::next(job.state, Event::GiveUp).is_some())
            .filter(|job| self.is_overdue(job, give_up))
            .map(|job| job.id)
            .take(give_up.limit)
            .collect();
        let (mut given_up, now) = (Vec::new(), self.now);
        for id in overdue {
            let row = self.jobs.get_mut(&id).expect("a job that was just found");
            row.job.state =
                state::next(row.job.state, Event::GiveUp).expect("only jobs that wait are overdue");
            row.job.last = Some(give_up.ended);
            row.log(now, give_up.log.clone());
            row.ended(now, now + give_up.keep);
            given_up.push(row.job.clone());
        }
        given_up
    }

    pub(super) fn job_purge(&mut self, limit: usize) -> u64 {
        let now = self.now;
        self.keys.retain(|_, record| record.expires_at > now);
        self.purge_pieces();
        let over = |purge_at: Option<Timestamp>| purge_at.is_some_and(|at| at <= now);
        let rows = self.jobs.values().filter(|row| over(row.purge_at));
        let old: Vec<Job> = rows.map(|row| row.job.clone()).take(limit).collect();
        for job in &old {
            self.remove_from_family(job);
        }
        old.len() as u64
    }

    /// Removes pieces without a job.
    fn purge_pieces(&mut self) {
        let put_until = self.now - ORPHAN_PIECES_AGE;
        let waiting = self.pieces_waiting.iter().filter(|(_, put_at)| **put_at <= put_until);
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.pieces_waiting.remove(&id);
            if !self.jobs.contains_key(&id) {
                self.pieces.retain(|(of, _), _| *of != id);
            }
        }
    }

    fn is_overdue(&self, job: &Job, give_up: &GiveUp) -> bool {
        match &give_up.which {
            Overdue::Expired => job.is_expired(self.now),
            Overdue::Lost { tenant, id } => job.key.tenant == *tenant && job.id == *id,
            Overdue::Unhandled { key, due_for } => {
                let due_until = self.now - *due_for;
                let unattended = self.types.get(key).is_some_and(|row| {
                    row.in_force.is_none() && row.claimed_at.is_none_or(|at| at < due_until)
                });
                let queued = job.state == JobState::Queued && job.key == *key;
                queued && job.due_at <= due_until && unattended
            }
        }
    }
}
