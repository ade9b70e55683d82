//! The effects of changes on parents and children, by the rules of `family`.

use crate::edit::Edit;
use crate::family;
use crate::id::JobId;
use crate::job::Job;
use crate::limit::ORPHAN_RETENTION;
use crate::time::Timestamp;

use super::State;
use super::edit::Changes;

impl State {
    /// An attempt of this job ended well: returns whether it waits for its children now.
    pub(super) fn waits_for_children(&mut self, id: JobId) -> bool {
        let job = &self.jobs[&id].job;
        let edits = family::wait_for_children(job, self.children(job));
        let waits = edits.is_some();
        self.carry_out_all(edits.unwrap_or_default());
        waits
    }

    pub(super) fn after_end(&mut self, id: JobId, purge_at: Timestamp) {
        let job = &self.jobs[&id].job;
        let parent = self.parent(job).map(|row| &row.job);
        let siblings = self.siblings(parent, Some(id));
        self.carry_out_all(family::after_end(job, parent, siblings, purge_at));
    }

    /// Removes an existing job.
    pub(super) fn remove_from_family(&mut self, job: &Job) {
        self.remove(job.id);
        let parent = self.parent(job).map(|row| &row.job);
        let siblings = self.siblings(parent, Some(job.id));
        let purge_at = self.now + ORPHAN_RETENTION;
        self.carry_out_all(family::after_removal(job, parent, siblings, purge_at));
    }

    fn carry_out_all(&mut self, edits: Vec<Edit>) {
        for edit in edits {
            self.carry_out(&edit, &mut Changes::default())
                .expect("nobody else holds the unique key of a job that has not ended");
        }
    }
}
