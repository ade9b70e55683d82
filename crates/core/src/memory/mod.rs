//! The reference store: everything in one map behind one lock, gone when it is dropped. It is the
//! plainest reading of the contract, and every other store is compared with it, so it is written
//! to be obviously right and not to be fast. Tests of the engine run on it too.
//!
//! Where the contract leaves something open, this store does the following.
//! - `type_stats` is asked without a time: what is ready is judged by the newest time that any
//!   call has named.
//! - A release takes the attempt back and leaves `started_at` as it is.
//! - A rerun forgets `started_at` and how the last attempt ended; tokens go on growing.
//! - "Oldest" among ended jobs means the smallest id.
//! - A job that is removed without a time is removed at the newest time that any call has named.

mod change;
mod edit;
mod family;
mod handler;
mod insert;
mod read;
mod run;
mod sysid;
mod take;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use crate::edit::{Ask, Decided, Take, Took};
use crate::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use crate::id::{JobId, Sysid};
use crate::job::{Boot, Job, Payload, Progress, Token};
use crate::limit::PAYLOAD_INLINE_BYTES_MAX;
use crate::name::{Tenant, TypeKey};
use crate::outcome::Json;
use crate::sql::{SqlAnswer, SqlAsk};
use crate::store::{
    AttemptLog, Capabilities, Changed, Claim, Claimed, Durability, EndRequest, Error, GiveUp,
    IdempotencyRecord, Insert, Inserted, JournalId, LeaseRef, List, Page, Requeue, Settled,
    Settlement, Store, SysidGrant, SysidRenew, SysidReserve, TypeStats, Waiting,
};
use crate::time::Timestamp;

/// A store that lives as long as the process. Share it in an `Arc` to stand for several daemons.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// A test aid: while a store is not available, every call answers `Error::Unavailable`.
    pub fn set_available(&self, available: bool) {
        self.locked().away = !available;
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // A panic under the lock can only come from a failed test, whose report matters more.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for one call that names no time.
    fn open(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.locked();
        match (state.closed, state.away) {
            (true, _) => Err(Error::Unavailable("it is closed".into())),
            (_, true) => Err(Error::Unavailable("it is switched off".into())),
            _ => Ok(state),
        }
    }

    /// The state for one call that happens at `now`.
    fn open_at(&self, now: Timestamp) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.open()?;
        state.hear(now);
        Ok(state)
    }
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<JobId, Row>,
    types: BTreeMap<TypeKey, TypeRow>,
    pieces: BTreeMap<(JobId, u32), Bytes>,
    keys: BTreeMap<(Tenant, String), IdempotencyRecord>,
    marks: BTreeMap<JournalId, JobId>,
    sysids: BTreeMap<Sysid, sysid::SysidRow>,
    boot_newest: i64,
    /// The newest time that any call has named.
    heard: Timestamp,
    away: bool,
    closed: bool,
}

/// One job with all that belongs to it, except the pieces of its payload.
#[derive(Debug, Clone)]
struct Row {
    job: Job,
    payload: Payload,
    /// Of the newest attempt; `job.progress` itself is always empty here, as in a list.
    progress: Option<Progress>,
    /// Of the newest claim; stays when the lease goes.
    token_newest: Option<Token>,
    result: Option<Json>,
    logs: Vec<AttemptLog>,
    /// Only an ended job has it.
    purge_at: Option<Timestamp>,
}

/// One type, from the first time it is named by a write until for ever.
#[derive(Debug, Default)]
struct TypeRow {
    /// In the order in which they were put.
    versions: Vec<Handler>,
    in_force: Option<HandlerId>,
    settings: TypeSettings,
    suspended: bool,
    claimed_at: Option<Timestamp>,
}

impl State {
    fn hear(&mut self, now: Timestamp) {
        self.heard = self.heard.max(now);
    }

    fn type_row(&mut self, key: &TypeKey) -> &mut TypeRow {
        self.types.entry(key.clone()).or_default()
    }

    /// The job, if there is one and it is this tenant's.
    fn row(&self, tenant: &Tenant, id: JobId) -> Option<&Row> {
        self.jobs.get(&id).filter(|row| row.job.key.tenant == *tenant)
    }

    fn row_mut(&mut self, tenant: &Tenant, id: JobId) -> Option<&mut Row> {
        self.jobs.get_mut(&id).filter(|row| row.job.key.tenant == *tenant)
    }

    /// The job that has not ended and holds this unique key of this type.
    fn unique_holder(&self, key: &TypeKey, unique: &str) -> Option<JobId> {
        let holds = |job: &Job| {
            !job.state.is_ended() && job.key == *key && job.unique.as_deref() == Some(unique)
        };
        self.jobs.values().map(|row| &row.job).find(|job| holds(job)).map(|job| job.id)
    }

    fn remove(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.pieces.retain(|(owner, _), _| *owner != id);
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "memory",
            wakes: false,
            shared: true,
            sql: false,
            payload_inline_bytes_max: PAYLOAD_INLINE_BYTES_MAX,
        }
    }

    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        self.open_at(reserve.now)?.sysid_reserve(reserve)
    }

    async fn sysid_renew(&self, renew: SysidRenew) -> Result<(), Error> {
        self.open()?.sysid_renew(renew)
    }

    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error> {
        self.open()?.sysid_release(sysid, boot);
        Ok(())
    }

    async fn sysid_list(&self, now: Timestamp) -> Result<Vec<Sysid>, Error> {
        Ok(self.open_at(now)?.sysid_list(now))
    }

    async fn id_newest(&self) -> Result<Option<JobId>, Error> {
        Ok(self.open()?.id_newest())
    }

    async fn job_insert(&self, insert: Insert) -> Result<Vec<Inserted>, Error> {
        Ok(self.open()?.job_insert(insert))
    }

    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error> {
        Ok(self.open()?.marks.get(&journal).copied())
    }

    async fn payload_put(&self, id: JobId, index: u32, piece: Bytes) -> Result<(), Error> {
        self.open()?.pieces.insert((id, index), piece);
        Ok(())
    }

    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        Ok(self.open_at(now)?.idempotency_get(tenant, key, now))
    }

    async fn type_waiting(&self, now: Timestamp) -> Result<Waiting, Error> {
        Ok(self.open_at(now)?.type_waiting(now))
    }

    async fn job_claim(&self, claim: Claim) -> Result<Vec<Claimed>, Error> {
        Ok(self.open_at(claim.now)?.job_claim(&claim))
    }

    async fn job_renew(
        &self,
        leases: Vec<LeaseRef>,
        until: Timestamp,
    ) -> Result<Vec<LeaseRef>, Error> {
        Ok(self.open()?.job_renew(leases, until))
    }

    async fn job_settle(
        &self,
        settlements: Vec<Settlement>,
        _durability: Durability,
    ) -> Result<Vec<Settled>, Error> {
        let mut state = self.open()?;
        Ok(settlements.into_iter().map(|settlement| state.job_settle(settlement)).collect())
    }

    async fn job_progress(&self, lease: LeaseRef, progress: Progress) -> Result<Settled, Error> {
        Ok(self.open_at(progress.at)?.job_progress(&lease, progress))
    }

    async fn lease_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<Job>, Error> {
        Ok(self.open_at(now)?.lease_expired(now, limit))
    }

    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error> {
        Ok(self.open_at(end.now)?.job_cancel(&end))
    }

    async fn job_rerun(
        &self,
        tenant: &Tenant,
        id: JobId,
        now: Timestamp,
    ) -> Result<Changed, Error> {
        Ok(self.open_at(now)?.job_rerun(tenant, id, now))
    }

    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error> {
        Ok(self.open_at(requeue.now)?.job_requeue(&requeue))
    }

    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        Ok(self.open()?.job_delete(tenant, id))
    }

    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error> {
        self.open_at(ask.now)?.job_decide(&ask)
    }

    async fn job_take(&self, take: Take) -> Result<Took, Error> {
        self.open_at(take.now)?.job_take(&take)
    }

    async fn query(&self, _ask: SqlAsk) -> Result<SqlAnswer, Error> {
        Err(Error::Conflict("this store does not answer questions in SQL".into()))
    }

    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error> {
        Ok(self.open_at(give_up.now)?.job_give_up(&give_up))
    }

    async fn job_purge(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        Ok(self.open_at(now)?.job_purge(now, limit))
    }

    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error> {
        let state = self.open()?;
        let with_progress = |row: &Row| Job { progress: row.progress.clone(), ..row.job.clone() };
        Ok(state.row(tenant, id).map(with_progress))
    }

    async fn job_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Json>, Error> {
        Ok(self.open()?.row(tenant, id).and_then(|row| row.result.clone()))
    }

    async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Option<Vec<AttemptLog>>, Error> {
        Ok(self.open()?.row(tenant, id).map(|row| row.logs.clone()))
    }

    async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<Option<Payload>, Error> {
        Ok(self.open()?.row(tenant, id).map(|row| row.payload.clone()))
    }

    async fn payload_piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, Error> {
        Ok(self.open()?.pieces.get(&(id, index)).cloned())
    }

    async fn job_list(&self, list: List) -> Result<Page, Error> {
        Ok(self.open()?.job_list(&list))
    }

    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error> {
        Ok(self.open()?.type_stats(tenant))
    }

    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
        now: Timestamp,
    ) -> Result<(), Error> {
        let handler = Handler { id, key: key.clone(), created_at: now, spec };
        self.open_at(now)?.handler_put(handler);
        Ok(())
    }

    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error> {
        Ok(self.open()?.handler_get(key, version))
    }

    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error> {
        Ok(self.open()?.handler_list(tenant))
    }

    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error> {
        Ok(self.open()?.handler_delete(key))
    }

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error> {
        self.open()?.type_row(key).suspended = suspended;
        Ok(())
    }

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error> {
        self.open()?.type_row(key).settings = settings;
        Ok(())
    }

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error> {
        let state = self.open()?;
        Ok(state.types.get(key).map(|row| row.settings.clone()).unwrap_or_default())
    }

    async fn flush(&self) -> Result<(), Error> {
        self.open().map(drop)
    }

    async fn ping(&self) -> Result<(), Error> {
        self.open().map(drop)
    }

    async fn changed(&self) {
        std::future::pending().await
    }

    async fn close(&self) {
        self.locked().closed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// No call of this store ever waits, so one poll is enough.
    fn ready<T>(call: impl Future<Output = T>) -> T {
        match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("the call waits"),
        }
    }

    #[test]
    fn it_can_be_switched_off_and_on() {
        let store = MemoryStore::new();
        store.set_available(false);
        assert!(matches!(ready(store.ping()), Err(Error::Unavailable(_))));
        store.set_available(true);
        assert_eq!(ready(store.ping()), Ok(()));
    }

    #[test]
    fn a_closed_store_stays_closed() {
        let store = MemoryStore::new();
        ready(store.close());
        store.set_available(true);
        assert!(matches!(ready(store.ping()), Err(Error::Unavailable(_))));
    }
}
