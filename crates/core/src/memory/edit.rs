//! Shows jobs to decisions and carries out their edits, all or none.

use bytes::Bytes;

use crate::edit::{
    Ask, ChildMove, Children, Decided, Edit, FamilyView, FullJob, MovedJobs, Only, Put, Target,
};
use crate::id::JobId;
use crate::job::{Job, NewJob, Payload};
use crate::limit::WHOLE_BYTES_MAX;
use crate::name::{Tenant, TypeKey};
use crate::state::State as JobState;
use crate::store::{Error, Inserted};

use super::{Row, State};

/// The effects of edits, and how to undo them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) moved: MovedJobs,
    undo: Vec<Undo>,
}

#[derive(Debug)]
enum Undo {
    Job { id: JobId, row: Option<Box<Row>>, pieces: Vec<(u32, Bytes)> },
    NewType(TypeKey),
}

impl State {
    pub(super) fn job_decide(&mut self, ask: &Ask) -> Result<Decided, Error> {
        let mut changes = Changes::default();
        let mut ids = Vec::new();
        for (index, target) in ask.targets.iter().enumerate() {
            match self.decide_one(ask, index, target, &mut changes) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    self.undo(changes);
                    return Err(error);
                }
            }
        }
        changes.moved.tidy();
        Ok(Decided { ids, moved: changes.moved })
    }

    fn decide_one(
        &mut self,
        ask: &Ask,
        index: usize,
        target: &Target,
        changes: &mut Changes,
    ) -> Result<Option<JobId>, Error> {
        let seen = self.seen(&ask.tenant, target);
        let decision = ask.decision(index, &seen, self.now)?;
        for edit in &decision.edits {
            self.carry_out(edit, changes)?;
        }
        Ok(decision.id)
    }

    fn seen(&self, tenant: &Tenant, target: &Target) -> FamilyView {
        let (job, parent) = match target {
            Target::Job(id) => {
                let job = self.row(tenant, *id);
                (job, job.and_then(|row| self.parent(&row.job)))
            }
            Target::New { only, parent } => {
                let job = only.as_ref().and_then(|only| self.in_the_way(tenant, only));
                (job, parent.and_then(|id| self.row(tenant, id)))
            }
        };
        let (of_job, of_parent) = (job.map(|row| &row.job), parent.map(|row| &row.job));
        FamilyView {
            job: job.map(|row| self.full_job(row)),
            parent: parent.map(|row| self.full_job(row)),
            children: of_job.map(|job| self.children(job)).unwrap_or_default(),
            siblings: self.siblings(of_parent, of_job.map(|job| job.id)),
        }
    }

    fn in_the_way(&self, tenant: &Tenant, only: &Only) -> Option<&Row> {
        let is = |job: &Job| {
            job.key.tenant == *tenant
                && job.key.name == only.name
                && job.extra.hidden == only.hidden
                && (!matches!(job.state, JobState::Finished | JobState::Cancelled)
                    || job.parent.is_some())
        };
        self.jobs.values().find(|row| is(&row.job))
    }

    pub(super) fn full_job(&self, row: &Row) -> FullJob {
        let retention = self.types.get(&row.job.key).and_then(|of| of.settings.retention);
        let (job, payload) = (row.job.clone(), self.in_one(row));
        FullJob { job, payload, retention }
    }

    /// The payload in one buffer, unless it is too large for that.
    pub(super) fn in_one(&self, row: &Row) -> Payload {
        match &row.payload {
            Payload::Pieces { bytes } if *bytes <= WHOLE_BYTES_MAX => {
                let pieces = self.pieces.range((row.job.id, 0)..=(row.job.id, u32::MAX));
                Payload::Inline(pieces.flat_map(|(_, piece)| piece.iter().copied()).collect())
            }
            as_it_is => as_it_is.clone(),
        }
    }

    pub(super) fn carry_out(&mut self, edit: &Edit, changes: &mut Changes) -> Result<(), Error> {
        match edit {
            Edit::Insert(new) => self.enter((**new).clone(), changes),
            Edit::Put(put) => self.put(put, changes).map(drop),
            Edit::Delete(id) => {
                self.note(*id, changes);
                if let Some(row) = self.jobs.get(id) {
                    changes.moved.note_gone(&row.job);
                    self.remove(*id);
                }
                Ok(())
            }
            Edit::Children { parent, from, to } => self.move_children(*parent, *from, *to, changes),
        }
    }

    fn enter(&mut self, mut new: NewJob, changes: &mut Changes) -> Result<(), Error> {
        self.note(new.id, changes);
        new.parent.into_iter().for_each(|parent| self.note(parent, changes));
        self.note_type(&new.key, changes);
        let (id, pieces) = (new.id, new.split_payload());
        match self.insert_one(new.clone()) {
            Inserted::New => {
                self.pieces.extend((0..).map(|index| (id, index)).zip(pieces));
                changes.moved.note_entered(&new, self.now);
                Ok(())
            }
            Inserted::Duplicate | Inserted::Repeated => {
                Err(Error::Conflict(format!("there is a job {id} already")))
            }
            Inserted::Held(holder) => Err(held(holder)),
        }
    }

    /// Returns the job after the change.
    pub(super) fn put(&mut self, put: &Put, changes: &mut Changes) -> Result<Job, Error> {
        let now = self.now;
        let id = put.job.id;
        let Some(row) = self.jobs.get(&id) else {
            return Err(Error::Conflict(format!("there is no job {id}")));
        };
        let (before, job) = (row.job.clone(), put.tidied(&row.job, now)?);
        if let Some(lease) = job.lease
            && row.token_newest > Some(lease.token)
        {
            return Err(larger_token(id));
        }
        let holder = job.unique.as_deref().filter(|_| !job.state.is_ended());
        if let Some(holder) = holder
            .and_then(|unique| self.unique_holder(&job.key, unique))
            .filter(|holder| *holder != id)
        {
            return Err(held(holder));
        }
        self.note(id, changes);
        self.note_type(&job.key, changes);
        if job.parent != before.parent {
            job.parent.into_iter().for_each(|parent| self.note(parent, changes));
            self.mark_parent(&job.key.tenant, job.parent);
        }
        changes.moved.note_changed(&before, &job, now);
        self.touch(&before.key);
        self.touch(&job.key);
        let payload = put.payload.as_ref().map(|payload| self.keep_payload(id, payload));
        let row = self.jobs.get_mut(&id).expect("a job that was just found");
        row.payload = payload.unwrap_or_else(|| row.payload.clone());
        if let Some(token) = job.lease.map(|lease| lease.token)
            && row.token_newest != Some(token)
        {
            (row.token_newest, row.progress) = (Some(token), None);
        }
        row.purge_at = put.purge_at.filter(|_| job.state.is_ended());
        if before.state != JobState::Running {
            row.started_before = before.started_at;
        }
        row.job = job.clone();
        row.requeue(now);
        Ok(job)
    }

    fn keep_payload(&mut self, id: JobId, payload: &Bytes) -> Payload {
        self.pieces.retain(|(owner, _), _| *owner != id);
        let (payload, pieces) = Payload::Inline(payload.clone()).split();
        self.pieces.extend((0..).map(|index| (id, index)).zip(pieces));
        payload
    }

    fn move_children(
        &mut self,
        parent: JobId,
        from: JobState,
        to: ChildMove,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let wanted = |job: &&Job| job.parent == Some(parent) && job.state == from;
        let jobs = self.jobs.values().map(|row| &row.job);
        let puts: Vec<Put> = jobs.filter(wanted).map(|child| to.put(child, self.now)).collect();
        puts.iter().try_for_each(|put| self.put(put, changes).map(drop))
    }

    /// Saves a job as it is, to undo the changes.
    fn note(&mut self, id: JobId, changes: &mut Changes) {
        let row = self.jobs.get(&id).cloned().map(Box::new);
        let pieces = self.pieces.range((id, 0)..=(id, u32::MAX));
        let pieces = pieces.map(|((_, index), piece)| (*index, piece.clone())).collect();
        changes.undo.push(Undo::Job { id, row, pieces });
    }

    fn note_type(&mut self, key: &TypeKey, changes: &mut Changes) {
        if !self.types.contains_key(key) {
            changes.undo.push(Undo::NewType(key.clone()));
        }
    }

    pub(super) fn undo(&mut self, changes: Changes) {
        for undo in changes.undo.into_iter().rev() {
            match undo {
                Undo::NewType(key) => drop(self.types.remove(&key)),
                Undo::Job { id, row, pieces } => {
                    self.remove(id);
                    self.jobs.extend(row.map(|row| (id, *row)));
                    self.pieces
                        .extend(pieces.into_iter().map(|(index, piece)| ((id, index), piece)));
                }
            }
        }
    }

    /// The states of a job's children.
    pub(super) fn children(&self, job: &Job) -> Children {
        if job.children { self.siblings(Some(job), None) } else { Children::default() }
    }

    /// The states of a parent's children, except one.
    pub(super) fn siblings(&self, parent: Option<&Job>, except: Option<JobId>) -> Children {
        let mut children = Children::default();
        let Some(parent) = parent else { return children };
        for job in self.jobs.values().map(|row| &row.job) {
            if job.parent == Some(parent.id) && Some(job.id) != except {
                children.note(job.state);
            }
        }
        children
    }

    pub(super) fn parent(&self, job: &Job) -> Option<&Row> {
        job.parent.and_then(|parent| self.row(&job.key.tenant, parent))
    }
}

/// The tokens of a job only grow.
pub(super) fn larger_token(id: JobId) -> Error {
    Error::Conflict(format!("job {id} had a larger token before"))
}

fn held(holder: JobId) -> Error {
    Error::Conflict(format!("job {holder} holds the unique key"))
}
