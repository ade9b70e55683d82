//! Parents and children: they never run at the same time, and a parent whose attempt ended well
//! waits until its children have ended.

use windlass_proof::history::{JobId, State};

use super::{Bug, Queue};

impl Queue {
    /// Whether a job below this one may be added.
    pub(super) fn may_be_parent(&self, id: JobId) -> bool {
        self.jobs.get(&id.0).is_some_and(|job| {
            job.parent.is_none() && matches!(job.state, State::Running | State::Paused)
        })
    }

    /// Whether nobody has its parent or one of its children.
    pub(super) fn is_family_idle(&self, id: u64) -> bool {
        let runs =
            |other: u64| self.jobs.get(&other).is_some_and(|job| job.state == State::Running);
        let parent_runs = self.jobs[&id].parent.is_some_and(|parent| runs(parent.0));
        let child_runs = self.children(JobId(id)).any(|state| state == State::Running);
        self.bug == Some(Bug::RunsFamiliesTogether) || !(parent_runs || child_runs)
    }

    pub(super) fn waits_for_children(&self, id: JobId) -> bool {
        self.children(id).any(|state| !state.is_ended())
    }

    /// Parents go on when all their children have ended.
    pub(super) fn resume_parents(&mut self, now: u64) {
        if self.bug == Some(Bug::LeavesParents) {
            return;
        }
        let paused = self.jobs.iter().filter(|(_, job)| job.state == State::Paused);
        let done = paused.filter(|(id, _)| !self.waits_for_children(JobId(**id)));
        for id in done.map(|(id, _)| *id).collect::<Vec<_>>() {
            let job = self.jobs.get_mut(&id).expect("it is there");
            (job.state, job.run_at, job.resumed) = (State::Queued, now, true);
        }
    }

    fn children(&self, parent: JobId) -> impl Iterator<Item = State> {
        let ids = self.families.get(&parent.0).into_iter().flatten();
        ids.filter_map(|id| self.jobs.get(id)).map(|job| job.state)
    }
}
