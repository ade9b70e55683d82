//! What native changes of a job do to its parent and its children; the rules are `family`'s.

use crate::edit::Edit;
use crate::family;
use crate::id::JobId;
use crate::job::Job;
use crate::limit::ORPHAN_RETENTION;
use crate::time::Timestamp;

use super::State;
use super::edit::Changes;

impl State {
    /// An attempt of this job ended well: whether it waits for its children now.
    pub(super) fn waits_for_children(&mut self, id: JobId, now: Timestamp) -> bool {
        let job = &self.jobs[&id].job;
        let edits = family::wait_for_children(job, self.children(job));
        let waits = edits.is_some();
        self.carry_out_all(edits.unwrap_or_default(), now);
        waits
    }

    pub(super) fn after_end(&mut self, id: JobId, now: Timestamp, purge_at: Timestamp) {
        let job = &self.jobs[&id].job;
        let parent = self.parent(job).map(|row| &row.job);
        let siblings = self.siblings(parent, Some(id));
        self.carry_out_all(family::after_end(job, parent, siblings, purge_at), now);
    }

    /// Removes a job that is there.
    pub(super) fn remove_from_family(&mut self, job: &Job, now: Timestamp) {
        self.remove(job.id);
        let parent = self.parent(job).map(|row| &row.job);
        let siblings = self.siblings(parent, Some(job.id));
        let purge_at = now + ORPHAN_RETENTION;
        self.carry_out_all(family::after_removal(job, parent, siblings, purge_at), now);
    }

    fn carry_out_all(&mut self, edits: Vec<Edit>, now: Timestamp) {
        for edit in edits {
            self.carry_out(&edit, now, &mut Changes::default())
                .expect("nobody else holds the unique key of a job that has not ended");
        }
    }
}
