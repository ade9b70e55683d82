//! Jobs come in, with their payloads, their keys and the position of the journal they come from.

use async_trait::async_trait;
use bytes::Bytes;

use super::{Durability, Error};
use crate::edit::MovedJobs;
use crate::family::Unfit;
use crate::id::{JobId, Sysid};
use crate::job::NewJob;
use crate::limit::IDEMPOTENCY_TTL;
use crate::name::Tenant;
use crate::time::Timestamp;

#[async_trait]
pub trait Inserts: Send + Sync {
    /// Adds jobs that have been accepted already, in order, with the idempotency keys and the
    /// journal mark that belong to them. Types come into being by themselves.
    ///
    /// A job whose id is there already is a `Duplicate` and changes nothing. A job whose `unique`
    /// key is held by one of its type that has not ended is `Held` and is not added.
    ///
    /// Where another add used an idempotency key first, the jobs of this one enter as cancelled
    /// (see `IdempotencyRecord::is_repeat_of`) and are `Repeated`; the first add's record stays.
    ///
    /// The mark is compared and swapped: where the journal's position is not `JournalMark::from`,
    /// nothing of the call happens, and the answer is `Behind` with the position.
    async fn job_insert(&self, insert: Insert) -> Result<Insertion, Error>;

    /// Adds jobs that only the store can decide about, all or none. Durable when it returns.
    /// - An add whose key is known adds nothing: `Known`.
    /// - A job with a parent begins as `family::begin` says; where that says no, nothing is added:
    ///   `Unfit`.
    /// - For a job whose `unique` key is held by one of its type that has not ended, the answer has
    ///   the holder's id. One whose id is there already changes nothing.
    /// - The key is remembered with the ids that are answered.
    ///
    /// Pieces of the payloads of jobs that do not enter are removed.
    async fn job_add(&self, add: Add) -> Result<Added, Error>;

    /// The last id of this journal that has been inserted.
    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error>;

    /// Keeps pieces of large payloads before their jobs are inserted; a repeated one replaces the
    /// earlier.
    async fn payload_put(&self, pieces: Vec<Piece>) -> Result<(), Error>;

    /// What an earlier add with this key was answered, unless it is older than its time.
    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, Error>;
}

#[derive(Debug, Clone)]
pub struct Add {
    /// Of all the jobs.
    pub tenant: Tenant,
    /// At most `BATCH_JOBS_MAX`.
    pub jobs: Vec<NewJob>,
    pub key: Option<IdempotencyKey>,
}

/// What became of an add.
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    New {
        /// One a job, in order: its own, or that of the job that holds its unique key.
        ids: Vec<JobId>,
        moved: Box<MovedJobs>,
    },
    /// Nothing was added: an earlier add had the same key.
    Known(IdempotencyRecord),
    /// Nothing was added: this job cannot have such a child.
    Unfit { parent: JobId, unfit: Unfit },
}

#[derive(Debug, Clone)]
pub struct Insert {
    /// At most `BATCH_JOBS_MAX`.
    pub jobs: Vec<NewJob>,
    pub keys: Vec<IdempotencyRecord>,
    pub mark: Option<JournalMark>,
    pub durability: Durability,
}

/// How far a journal has been inserted; kept in the same transaction as the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalMark {
    pub journal: JournalId,
    /// Where the caller thinks the store is: behind all that was inserted so far.
    pub from: Option<JobId>,
    /// Where it is afterwards; never before `from`.
    pub position: JobId,
}

/// Names one journal of all that a store ever sees: the data directory that it lies in, and the
/// daemon that wrote it. The sysid alone would not do: a dead daemon's number goes to another one,
/// perhaps on another machine, while its journal still waits to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JournalId(pub i64);

impl JournalId {
    /// `place` is a random number that belongs to the data directory.
    pub fn new(place: u64, sysid: Sysid) -> JournalId {
        const PLACE_BITS: u32 = 50;
        let place = (place & ((1 << PLACE_BITS) - 1)) as i64;
        JournalId((place << 12) | i64::from(sysid.get()))
    }
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Insertion {
    /// It happened; one answer a job, in order.
    Done(Vec<Inserted>),
    /// Nothing happened: this is how far the store has the journal. It forgot what it had not
    /// synced, or has done more than it could answer.
    Behind(Option<JobId>),
}

impl Insertion {
    /// The answers to the jobs of an insert without a mark, which always happens.
    pub fn done(self) -> Result<Vec<Inserted>, Error> {
        match self {
            Insertion::Done(answers) => Ok(answers),
            Insertion::Behind(position) => {
                let why = format!("the store has the journal up to {position:?}");
                Err(Error::Internal(why.into()))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    New,
    Duplicate,
    /// The id of the job that holds the unique key.
    Held(JobId),
    /// Entered as cancelled: another add had its idempotency key first.
    Repeated,
}

/// Makes an add repeatable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// Digest of everything that the add says: the same key with another one is a conflict.
    pub fingerprint: u64,
}

/// What an add with a key was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub tenant: Tenant,
    pub key: String,
    /// See `IdempotencyKey`.
    pub fingerprint: u64,
    pub ids: Vec<JobId>,
    pub expires_at: Timestamp,
}

impl IdempotencyRecord {
    /// Of an add that is answered with these ids.
    pub fn new(
        tenant: &Tenant,
        key: &IdempotencyKey,
        ids: Vec<JobId>,
        now: Timestamp,
    ) -> IdempotencyRecord {
        let IdempotencyKey { key, fingerprint } = key.clone();
        let expires_at = now + IDEMPOTENCY_TTL;
        IdempotencyRecord { tenant: tenant.clone(), key, fingerprint, ids, expires_at }
    }

    /// Whether an add that was accepted without a look at the store repeats one that the store
    /// knows under the same key: another one, in the time for which the key stands. Which of them
    /// came first does not matter any more.
    pub fn is_repeat_of(&self, known: &IdempotencyRecord) -> bool {
        let (early, late) =
            (self.expires_at.min(known.expires_at), self.expires_at.max(known.expires_at));
        self.ids != known.ids && late.since(early) < IDEMPOTENCY_TTL
    }
}

/// One piece of a large payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub id: JobId,
    pub index: u32,
    pub bytes: Bytes,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_add_repeats_another_one_while_their_key_stands() {
        let record = |id: i64, hours: u64| {
            let key = IdempotencyKey { key: "k".into(), fingerprint: 1 };
            let at = Timestamp(0) + Duration::from_secs(hours * 3600);
            let tenant = Tenant::new("acme").unwrap();
            IdempotencyRecord::new(&tenant, &key, vec![JobId::new(id).unwrap()], at)
        };
        let known = record(1, 100);
        for (hours, repeats) in [(76, false), (77, true), (100, true), (123, true), (124, false)] {
            assert_eq!(record(2, hours).is_repeat_of(&known), repeats, "{hours}");
        }
        assert!(!record(1, 100).is_repeat_of(&known), "it is the same add");
    }
}
