//! Inserts of jobs, with their idempotency keys and journal mark.

use std::collections::HashSet;

use crate::edit::MovedJobs;
use crate::family::{self, Unfit};
use crate::id::JobId;
use crate::job::{Job, NewJob};
use crate::limit::REPEATED_RETENTION;
use crate::name::Tenant;
use crate::store::{Add, Added, EndRequest, Error, IdempotencyRecord, Insert, Inserted, Insertion};
use crate::time::Timestamp;

use super::{Row, State};

impl State {
    pub(super) fn job_insert(&mut self, insert: Insert) -> Result<Insertion, Error> {
        let before = self.if_pieces_needed(&insert.jobs);
        let mut missing = None;
        if let Some(mark) = insert.mark {
            let position = self.marks.get(&mark.journal).copied();
            if position != mark.from {
                return Ok(Insertion::Behind(position));
            }
            self.marks.insert(mark.journal, mark.position);
        }
        // Jobs of adds whose keys were used before.
        let mut repeats: HashSet<JobId> = HashSet::new();
        for record in insert.keys {
            match self.keys.get(&(record.tenant.clone(), record.key.clone())) {
                Some(known) if record.is_repeat_of(known) => {
                    repeats.extend(record.ids);
                }
                _ => self.remember(record),
            }
        }
        let insert_one = |new: NewJob| {
            let (id, lacks) = (new.id, self.lacks_pieces(&new));
            let inserted = match repeats.contains(&new.id) {
                false => self.insert_one(new),
                true => self.insert_cancelled(new),
            };
            let has_entered = matches!(inserted, Inserted::New | Inserted::Repeated);
            missing = missing.or((lacks && has_entered).then_some(id));
            inserted
        };
        let inserted = insert.jobs.into_iter().map(insert_one).collect();
        self.unless_missing(missing, before)?;
        Ok(Insertion::Done(inserted))
    }

    /// The state to return to, if there are jobs that need pieces.
    fn if_pieces_needed(&self, jobs: &[NewJob]) -> Option<State> {
        jobs.iter().any(|job| job.pieces_needed().is_some()).then(|| self.clone())
    }

    fn lacks_pieces(&self, new: &NewJob) -> bool {
        new.pieces_needed().is_some_and(|bytes| {
            let pieces = self.pieces.range((new.id, 0)..=(new.id, u32::MAX));
            bytes != pieces.map(|(_, piece)| piece.len() as u64).sum::<u64>()
        })
    }

    fn unless_missing(
        &mut self,
        missing: Option<JobId>,
        before: Option<State>,
    ) -> Result<(), Error> {
        match missing.zip(before) {
            None => Ok(()),
            Some((id, before)) => {
                *self = before;
                Err(Error::pieces_missing(id))
            }
        }
    }

    pub(super) fn job_add(&mut self, add: Add) -> Result<Added, Error> {
        let Add { tenant, mut jobs, key } = add;
        let before = self.if_pieces_needed(&jobs);
        let mut missing = None;
        let now = self.now;
        let known = key.as_ref().and_then(|key| self.idempotency_get(&tenant, &key.key));
        if let Some(record) = known {
            self.remove_pieces(&jobs);
            return Ok(Added::Known(record));
        }
        if let Err((parent, unfit)) = self.begin_all(&mut jobs) {
            self.remove_pieces(&jobs);
            return Ok(Added::Unfit { parent, unfit });
        }
        let mut moved = Box::<MovedJobs>::default();
        let mut enter = |new: NewJob| {
            let lacks = self.lacks_pieces(&new);
            match self.insert_one(new.clone()) {
                Inserted::Held(holder) => holder,
                Inserted::New => {
                    moved.note_entered(&new, now);
                    missing = missing.or(lacks.then_some(new.id));
                    new.id
                }
                Inserted::Duplicate | Inserted::Repeated => new.id,
            }
        };
        let ids: Vec<JobId> = jobs.into_iter().map(&mut enter).collect();
        self.unless_missing(missing, before)?;
        if let Some(key) = key {
            self.remember(IdempotencyRecord::new(&tenant, &key, ids.clone(), now));
        }
        Ok(Added::New { ids, moved })
    }

    /// Sets how these jobs begin; the error is the unfit parent.
    pub(super) fn begin_all(&self, jobs: &mut [NewJob]) -> Result<(), (JobId, Unfit)> {
        for job in jobs {
            let Some(parent) = job.parent else { continue };
            let found = self.row(&job.key.tenant, parent).map(|row| &row.job);
            family::begin(job, found).map_err(|unfit| (parent, unfit))?;
        }
        Ok(())
    }

    pub(super) fn idempotency_get(&self, tenant: &Tenant, key: &str) -> Option<IdempotencyRecord> {
        let record = self.keys.get(&(tenant.clone(), key.to_owned()))?;
        (record.expires_at > self.now).then(|| record.clone())
    }

    /// Adds a job that enters with a settlement.
    pub(super) fn enter_split(&mut self, mut new: NewJob, moved: &mut MovedJobs) {
        let (id, pieces) = (new.id, new.split_payload());
        if self.insert_one(new.clone()) == Inserted::New {
            self.pieces.extend((0..).map(|index| (id, index)).zip(pieces));
            moved.note_entered(&new, self.now);
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
        self.touch(&new.key);
        self.mark_parent(&new.key.tenant, new.parent);
        let row = Row::queued(new, self.now);
        self.jobs.insert(row.job.id, row);
        Inserted::New
    }

    fn insert_cancelled(&mut self, new: NewJob) -> Inserted {
        let (tenant, id, keep) = (new.key.tenant.clone(), new.id, REPEATED_RETENTION);
        match self.insert_one(new) {
            Inserted::New => {
                self.job_cancel(&EndRequest { tenant, id, keep });
                Inserted::Repeated
            }
            other => other,
        }
    }

    /// Removes the pieces of jobs that do not enter.
    fn remove_pieces(&mut self, jobs: &[NewJob]) {
        for job in jobs.iter().filter(|job| job.payload.is_in_pieces()) {
            if !self.jobs.contains_key(&job.id) {
                self.remove(job.id);
            }
        }
    }

    /// Marks a job as having children.
    pub(super) fn mark_parent(&mut self, tenant: &Tenant, parent: Option<JobId>) {
        if let Some(row) = parent.and_then(|parent| self.row_mut(tenant, parent)) {
            row.job.children = true;
        }
    }

    /// A replayed journal brings old records again: the record with the latest expiry is the newest
    /// add's.
    fn remember(&mut self, record: IdempotencyRecord) {
        let key = (record.tenant.clone(), record.key.clone());
        let kept = self.keys.entry(key).or_insert_with(|| record.clone());
        if kept.expires_at < record.expires_at {
            *kept = record;
        }
    }
}

impl Row {
    fn queued(new: NewJob, now: Timestamp) -> Row {
        Row {
            due: !new.paused && new.is_due(now),
            payload: new.payload.clone(),
            job: Job::queued(new),
            progress: None,
            token_newest: None,
            started_before: None,
            result: None,
            logs: Vec::new(),
            purge_at: None,
        }
    }
}
