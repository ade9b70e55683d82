//! Inserts of jobs, with their payloads, their keys and the position in their journal.

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
    /// Adds jobs that have already been accepted, in order, with their idempotency keys and journal
    /// mark. Types are created as needed.
    ///
    /// A job whose id exists is a `Duplicate` and changes nothing. A job whose `unique` key is held
    /// by a job of its type that has not ended is `Held` and is not added.
    ///
    /// If another add used an idempotency key first, the jobs of this one enter as cancelled (see
    /// `IdempotencyRecord::is_repeat_of`) and are `Repeated`; the first add's record stays.
    ///
    /// The mark is compared and swapped: if the journal's position is not `JournalMark::from`,
    /// nothing changes, and the answer is `Behind` with the position.
    ///
    /// If a job enters without all pieces of its payload (`NewJob::pieces_needed`), nothing changes
    /// either: `Error::Unavailable`. The store has forgotten them, and they must be put again.
    async fn job_insert(&self, insert: Insert) -> Result<Insertion, Error>;

    /// Adds jobs that only the store can decide, all or none. Durable when it returns.
    /// - An add whose key is known adds nothing: `Known`.
    /// - A job with a parent begins as `family::begin` says; if that refuses, nothing is added:
    ///   `Unfit`.
    /// - For a job whose `unique` key is held by a job of its type that has not ended, the answer
    ///   has the holder's id. A job whose id exists changes nothing.
    /// - The key is stored with the ids of the answer.
    ///
    /// Payload pieces of jobs that do not enter are removed. Missing pieces of one that enters are
    /// an error, as for `job_insert`.
    async fn job_add(&self, add: Add) -> Result<Added, Error>;

    /// The last id of this journal that has been inserted.
    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error>;

    /// Stores pieces of large payloads before their jobs are inserted; a repeated piece replaces
    /// the earlier one. They last as long as the job once that is durable; before, the store may
    /// forget them.
    async fn payload_put(&self, pieces: Vec<Piece>) -> Result<(), Error>;

    /// The answer of an earlier add with this key, unless it has expired.
    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, Error>;
}

#[derive(Debug, Clone)]
pub struct Add {
    /// The tenant of all jobs.
    pub tenant: Tenant,
    /// At most `BATCH_JOBS_MAX`.
    pub jobs: Vec<NewJob>,
    pub key: Option<IdempotencyKey>,
}

/// The answer to an add.
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    New {
        /// One per job, in order: its own, or that of the job that holds its unique key.
        ids: Vec<JobId>,
        moved: Box<MovedJobs>,
    },
    /// Nothing was added: an earlier add used the same key.
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

/// The position up to which a journal has been inserted; stored in the same transaction as the
/// jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalMark {
    pub journal: JournalId,
    /// The store's position as the caller knows it: after everything inserted so far.
    pub from: Option<JobId>,
    /// The new position; never before `from`.
    pub position: JobId,
}

/// Identifies a journal in a store: by its data directory and the daemon that wrote it. The sysid
/// alone is not enough: a dead daemon's number may be reused on another machine while its journal
/// still waits to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JournalId(pub i64);

const SYSID_BITS: u32 = 12;

impl JournalId {
    /// `place` is a random number that identifies the data directory.
    pub fn new(place: u64, sysid: Sysid) -> JournalId {
        const PLACE_BITS: u32 = 50;
        let place = (place & ((1 << PLACE_BITS) - 1)) as i64;
        JournalId((place << SYSID_BITS) | i64::from(sysid.get()))
    }

    /// The number of the daemon that writes or wrote it.
    pub fn number(self) -> u16 {
        (self.0 & ((1 << SYSID_BITS) - 1)) as u16
    }
}

/// The answer to an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Insertion {
    /// Done; one answer per job, in order.
    Done(Vec<Inserted>),
    /// Nothing changed: the store is at this position of the journal. It forgot what it had not
    /// synced, or an earlier answer was lost.
    Behind(Option<JobId>),
}

impl Insertion {
    /// The answers to an insert without a mark, which is never `Behind`.
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
    /// Entered as cancelled: another add used its idempotency key first.
    Repeated,
}

/// Makes an add repeatable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// Digest of the whole add: the same key with another digest is a conflict.
    pub fingerprint: u64,
}

/// The answer of an add with a key.
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
    /// The record of an add that is answered with these ids.
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

    /// Whether an add that was accepted without asking the store repeats a known one with the same
    /// key: it is a different add within the lifetime of the key. Which of them came first no
    /// longer matters.
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
