//! Hands out due jobs by name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::edit::{Names, Take, TakeAnswer, TakeRoom, TakenJob};
use crate::glob;
use crate::id::JobId;
use crate::job::{Job, Payload};
use crate::limit::CHILDREN_SHOWN_MAX;
use crate::name::TypeKey;
use crate::state::State as JobState;
use crate::store::Error;

use super::edit::Changes;
use super::{Row, State};

/// How many more jobs of a type may be taken.
struct Left {
    /// By its `concurrency`.
    room: u64,
    /// By its `rate`.
    rate: u32,
}

impl State {
    pub(super) fn job_take(&mut self, take: &Take) -> Result<TakeAnswer, Error> {
        let (mut changes, mut answer) = (Changes::default(), TakeAnswer::default());
        let (wanted, asked, full) = self.wanted(take);
        let mut room = TakeRoom::of(take);
        for id in wanted {
            match self.take_one(id, take, &mut room, &mut changes, &mut answer) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.undo(changes);
                    return Err(error);
                }
            }
        }
        changes.moved.tidy();
        let found = !answer.given.is_empty() || answer.kept > 0;
        let asked = asked.into_iter().filter(|_| !found).map(|key| (key, 0));
        let mut started: BTreeMap<TypeKey, u32> = asked.collect();
        for taken in &answer.given {
            *started.entry(taken.before.job.key.clone()).or_default() += 1;
        }
        started.iter().for_each(|(key, jobs)| self.spend(key, *jobs));
        let rests = started.iter().filter_map(|(key, jobs)| self.rest(key, *jobs)).collect();
        let oversized = answer.oversized && !found;
        Ok(TakeAnswer { moved: changes.moved, oversized, full, rests, ..answer })
    }

    /// False if there is no room for it.
    fn take_one(
        &mut self,
        id: JobId,
        take: &Take,
        room: &mut TakeRoom,
        changes: &mut Changes,
        answer: &mut TakeAnswer,
    ) -> Result<bool, Error> {
        let before = self.full_job(&self.jobs[&id]);
        let now = self.now;
        let parent = self.parent(&before.job).map(|row| self.full_job(row));
        let mut bytes_left = take.payload_bytes_max;
        let mut ended = |state| self.ended_children(&before.job, state, &mut bytes_left);
        let (finished, cancelled) = (ended(JobState::Finished), ended(JobState::Cancelled));
        let jobs = [&before].into_iter().chain(&parent).map(|full| &full.payload);
        let children = finished.iter().chain(&cancelled).map(|(_, payload)| payload);
        if !room.has_place(jobs.chain(children)) {
            answer.oversized = true;
            return Ok(false);
        }
        let decision = take.decision(&before, now)?;
        let job = self.put(&decision.put, changes)?;
        let of_type = self.type_row(&before.job.key);
        of_type.claimed_at = of_type.claimed_at.max(Some(now));
        if !decision.give {
            answer.kept += 1;
            return Ok(true);
        }
        let payload = decision.put.payload;
        answer.given.push(TakenJob { before, job, payload, parent, finished, cancelled });
        Ok(true)
    }

    /// The requested jobs, in order, their types, and whether the limit of a type held some back.
    fn wanted(&self, take: &Take) -> (Vec<JobId>, BTreeSet<TypeKey>, bool) {
        let rows = self.jobs.values().filter(|row| self.is_wanted(row, take));
        let mut jobs: Vec<&Job> = rows.map(|row| &row.job).collect();
        jobs.sort_by_key(|job| (job.turn(), &job.key.name, job.id));
        let mut left: HashMap<&TypeKey, Left> = HashMap::new();
        let mut full = false;
        let wanted = jobs.into_iter().filter(|job| {
            let left = left.entry(&job.key).or_insert_with(|| self.left(&job.key));
            full |= left.room == 0;
            let may = left.room > 0 && left.rate > 0;
            if may {
                left.room -= 1;
                left.rate -= 1;
            }
            may
        });
        let ids = wanted.take(take.limit as usize).map(|job| job.id).collect();
        (ids, left.into_keys().cloned().collect(), full)
    }

    fn left(&self, key: &TypeKey) -> Left {
        Left { room: self.room(key), rate: self.starts_left(key) }
    }

    fn is_wanted(&self, row: &Row, take: &Take) -> bool {
        let job = &row.job;
        let named = match &take.names {
            Names::Glob(pattern) => glob::matches(pattern, job.key.name.as_str()),
            Names::AnyOf(names) => names.contains(&job.key.name),
        };
        named
            && job.key.tenant == take.tenant
            && row.may_start(self.now)
            && take.priority.is_none_or(|priority| job.priority == priority)
            && (take.hidden || !job.extra.hidden)
            && job.payload_bytes <= take.payload_bytes_max
            && self.types.get(&job.key).is_none_or(|of_type| !of_type.suspended)
    }

    /// Shows the payloads that fit into `bytes_left`.
    fn ended_children(
        &self,
        parent: &Job,
        state: JobState,
        bytes_left: &mut u64,
    ) -> Vec<(JobId, Payload)> {
        if !parent.children {
            return Vec::new();
        }
        let wanted = |row: &&Row| row.job.parent == Some(parent.id) && row.job.state == state;
        let rows = self.jobs.values().filter(wanted).take(CHILDREN_SHOWN_MAX);
        let shown = |row: &Row| {
            let bytes = row.job.payload_bytes;
            let fits = bytes <= *bytes_left;
            let payload = if fits { self.in_one(row) } else { Payload::Pieces { bytes } };
            *bytes_left = bytes_left.saturating_sub(payload.inline_len());
            (row.job.id, payload)
        };
        rows.map(shown).collect()
    }
}
