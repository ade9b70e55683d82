//! Jobs come in, with the idempotency keys and the journal mark that belong to them.

use std::collections::HashMap;

use crate::edit::Moved;
use crate::family::{self, Unfit};
use crate::id::JobId;
use crate::job::{Job, NewJob};
use crate::limit::ORPHAN_RETENTION;
use crate::name::Tenant;
use crate::store::{Add, Added, EndRequest, IdempotencyRecord, Insert, Inserted, Insertion};
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
        // Jobs of adds whose keys others had first, and how long they are kept.
        let mut repeats: HashMap<JobId, Timestamp> = HashMap::new();
        for record in insert.keys {
            match self.keys.get(&(record.tenant.clone(), record.key.clone())) {
                Some(known) if record.is_repeat_of(known) => {
                    let purge_at = record.expires_at + ORPHAN_RETENTION;
                    repeats.extend(record.ids.into_iter().map(|id| (id, purge_at)));
                }
                _ => self.remember(record),
            }
        }
        let insert_one = |new: NewJob| match repeats.get(&new.id) {
            None => self.insert_one(new),
            Some(purge_at) => self.insert_cancelled(new, *purge_at),
        };
        Insertion::Done(insert.jobs.into_iter().map(insert_one).collect())
    }

    pub(super) fn job_add(&mut self, add: Add) -> Added {
        let Add { tenant, mut jobs, key, now } = add;
        let known = key.as_ref().and_then(|key| self.idempotency_get(&tenant, &key.key, now));
        if let Some(record) = known {
            self.remove_pieces(&jobs);
            return Added::Known(record);
        }
        if let Err((parent, unfit)) = self.begin_all(&mut jobs) {
            self.remove_pieces(&jobs);
            return Added::Unfit { parent, unfit };
        }
        let mut moved = Box::<Moved>::default();
        let mut enter = |new: NewJob| match self.insert_one(new.clone()) {
            Inserted::Held(holder) => holder,
            Inserted::New => {
                moved.note_entered(&new, now);
                new.id
            }
            Inserted::Duplicate | Inserted::Repeated => new.id,
        };
        let ids: Vec<JobId> = jobs.into_iter().map(&mut enter).collect();
        if let Some(key) = key {
            self.remember(IdempotencyRecord::new(&tenant, &key, ids.clone(), now));
        }
        Added::New { ids, moved }
    }

    /// How these jobs begin; says which parent is unfit.
    pub(super) fn begin_all(&self, jobs: &mut [NewJob]) -> Result<(), (JobId, Unfit)> {
        for job in jobs {
            let Some(parent) = job.parent else { continue };
            let found = self.row(&job.key.tenant, parent).map(|row| &row.job);
            family::begin(job, found).map_err(|unfit| (parent, unfit))?;
        }
        Ok(())
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

    /// Adds a job that enters with the end of another.
    pub(super) fn enter_split(&mut self, mut new: NewJob, now: Timestamp, moved: &mut Moved) {
        let (id, pieces) = (new.id, new.split_payload());
        if self.insert_one(new.clone()) == Inserted::New {
            self.pieces.extend((0..).map(|index| (id, index)).zip(pieces));
            moved.note_entered(&new, now);
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
        self.touch(&new.key);
        self.mark_parent(&new.key.tenant, new.parent);
        self.jobs.insert(new.id, Row::queued(new));
        Inserted::New
    }

    fn insert_cancelled(&mut self, new: NewJob, purge_at: Timestamp) -> Inserted {
        let (tenant, id, now) = (new.key.tenant.clone(), new.id, new.created_at);
        match self.insert_one(new) {
            Inserted::New => {
                self.job_cancel(&EndRequest { tenant, id, now, purge_at });
                Inserted::Repeated
            }
            other => other,
        }
    }

    /// Of jobs that do not enter.
    fn remove_pieces(&mut self, jobs: &[NewJob]) {
        for job in jobs.iter().filter(|job| job.payload.is_in_pieces()) {
            if !self.jobs.contains_key(&job.id) {
                self.remove(job.id);
            }
        }
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
