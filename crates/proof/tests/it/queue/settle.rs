//! The ends of attempts, and what enters with them.

use windlass_proof::history::{Claimed, JobId, State};
use windlass_proof::workload::payload;

use super::job::Job;
use super::{ATTEMPTS_MAX, Bug, MS, Queue, RARE, REPEAT_NS, RETRY_NS};

/// Longer than any run.
const NEVER_NS: u64 = 3_600_000 * MS;

impl Queue {
    /// A handler's end, if it still has the job.
    pub(crate) fn settle_handled(&mut self, now: u64, job: &Claimed, status: u16, emits: u32) {
        let Some(token) = job.token else { return };
        if self.held(job.job, token).is_some() {
            let result = payload::of_result(job.job, &token.to_string());
            self.settle(now, job.job, status, Some(result), emits);
        }
    }

    pub(super) fn settle(
        &mut self,
        now: u64,
        id: JobId,
        status: u16,
        data: Option<String>,
        emits: u32,
    ) {
        let bug = self.bug;
        let waits = status / 100 == 2 && self.waits_for_children(id);
        let Some(job) = self.jobs.get_mut(&id.0) else { return };
        let ends = matches!(status / 100, 2 | 4);
        let again = !ends && job.attempt < ATTEMPTS_MAX;
        job.status = Some(status);
        job.result.clone_from(&data);
        (job.state, job.run_at) = match (again, status / 100) {
            (true, _) => (State::Queued, now + RETRY_NS),
            (false, 2) => (State::Finished, job.run_at),
            _ => (State::Failed, job.run_at),
        };
        if waits {
            (job.state, job.attempt) = (State::Paused, 0);
            return;
        }
        if job.repeats && !again {
            let pause = if bug == Some(Bug::ForgetsRounds) { NEVER_NS } else { REPEAT_NS };
            (job.state, job.attempt, job.run_at) = (State::Queued, 0, now + pause);
            job.resumed = false;
        } else if bug == Some(Bug::RunsAgain)
            && ends
            && id.0.is_multiple_of(RARE)
            && job.attempt == 1
        {
            job.state = State::Queued;
        }
        let (tenant, of) = job.key.clone();
        let then = job.then.clone().filter(|_| status / 100 == 2);
        let followers = if bug == Some(Bug::FollowsTwice) { 2 } else { 1 };
        for name in then.iter().cycle().take(followers * usize::from(then.is_some())) {
            let result = data.clone().unwrap_or_default().into_bytes();
            self.insert(Job::new((tenant.clone(), name.clone()), result, now));
        }
        if ends || bug == Some(Bug::EmitsEarly) {
            for index in 0..emits {
                let payload = payload::of_emit(id, index).into_bytes();
                self.insert(Job::new((tenant.clone(), of.clone()), payload, now));
            }
        }
    }
}
