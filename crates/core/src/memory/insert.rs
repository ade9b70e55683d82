//! Jobs come in, with the idempotency keys and the journal mark that belong to them.

use crate::id::JobId;
use crate::job::{Job, NewJob};
use crate::name::Tenant;
use crate::store::{IdempotencyRecord, Insert, Inserted, Insertion};
use crate::time::Timestamp;

use super::{Row, State};

impl State {
    pub(super) fn job_insert(&mut self, insert: Insert) -> Insertion {
        if let Some(mark) = insert.mark {
            let position = self.marks.get(&mark.journal).copied();
            if position != mark.from {
                return Insertion::Behind(position);
            }
            self.marks.insert(mark.journal, mark.position);
        }
        let answers = insert.jobs.into_iter().map(|new| self.insert_one(new)).collect();
        for record in insert.keys {
            self.remember(record);
        }
        Insertion::Done(answers)
    }

    pub(super) fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
        now: Timestamp,
    ) -> Option<IdempotencyRecord> {
        let record = self.keys.get(&(tenant.clone(), key.to_owned()))?;
        (record.expires_at > now).then(|| record.clone())
    }

    /// Adds the job that follows one that ended well.
    pub(super) fn insert_follow(&mut self, mut new: NewJob) {
        let (id, pieces) = (new.id, new.split_payload());
        if self.insert_one(new) == Inserted::New {
            self.pieces.extend((0..).map(|index| (id, index)).zip(pieces));
        }
    }

    pub(super) fn insert_one(&mut self, new: NewJob) -> Inserted {
        if self.jobs.contains_key(&new.id) {
            return Inserted::Duplicate;
        }
        let holder = new.unique.as_deref().and_then(|unique| self.unique_holder(&new.key, unique));
        if let Some(holder) = holder {
            self.remove(new.id);
            return Inserted::Held(holder);
        }
        self.hear(new.created_at);
        self.type_row(&new.key);
        self.mark_parent(&new.key.tenant, new.parent);
        self.jobs.insert(new.id, Row::queued(new));
        Inserted::New
    }

    /// Notes that a job has children.
    pub(super) fn mark_parent(&mut self, tenant: &Tenant, parent: Option<JobId>) {
        if let Some(row) = parent.and_then(|parent| self.row_mut(tenant, parent)) {
            row.job.children = true;
        }
    }

    /// A replayed journal brings old records again: the one that lasts longest is the newest add's.
    fn remember(&mut self, record: IdempotencyRecord) {
        let key = (record.tenant.clone(), record.key.clone());
        let kept = self.keys.entry(key).or_insert_with(|| record.clone());
        if kept.expires_at < record.expires_at {
            *kept = record;
        }
    }
}

impl Row {
    fn queued(new: NewJob) -> Row {
        Row {
            payload: new.payload.clone(),
            job: Job::queued(new),
            progress: None,
            token_newest: None,
            result: None,
            logs: Vec::new(),
            purge_at: None,
        }
    }
}
