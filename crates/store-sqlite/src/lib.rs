//! The embedded store: Windlass's `Store` on one SQLite file, with nothing to install.
//!
//! ```text
//!   callers ──► writer (one thread) ──► one transaction for all that wait ──► answers
//!           └─► readers (a few connections) ──► one consistent state each
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `open`, `migration` | whose file it is, its layout, how connections are set up |
//! | `writer`, `tx` | the thread that writes, group commit, what is durable when |
//! | `reader` | the connections that read |
//! | `query` | questions in SQL, each on a connection of its own |
//! | `queue` | what waits: ready, deferred, and the way from one to the other |
//! | `insert`, `claim`, `settle`, `change`, `housekeeping` | the verbs that change jobs |
//! | `edit`, `put` | decisions: what they see, and how their edits are carried out |
//! | `take`, `search` | due jobs by name: which ones, and what becomes of them |
//! | `family`, `extra`, `aside` | parents and children, and what else only few jobs have |
//! | `read`, `row` | the verbs that show them, and their rows |
//! | `type_row`, `handler`, `sysid` | types, handlers, daemons |
//! | `error` | SQLite's codes, translated |
//!
//! Several daemons of one machine may open the same file: every write takes the file's lock first
//! and reads what it depends on under it, and nothing is cached that another process could change.

mod aside;
mod change;
mod claim;
mod edit;
mod error;
mod extra;
mod family;
mod handler;
mod housekeeping;
mod insert;
mod migration;
mod open;
#[cfg(test)]
mod plan;
mod put;
mod query;
mod queue;
mod read;
mod reader;
mod row;
mod search;
mod settle;
mod sysid;
mod take;
mod tx;
mod type_row;
mod writer;

use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::Connection;
use windlass_core::edit::{Ask, Decided, Take, Took};
use windlass_core::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use windlass_core::job::{Boot, Progress};
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::outcome::Json;
use windlass_core::sql::{SqlAnswer, SqlAsk};
use windlass_core::store::{
    AttemptLog, Capabilities, Changed, Claim, Claimed, Durability, EndRequest, Error, GiveUp,
    IdempotencyRecord, Insert, Inserted, JournalId, LeaseRef, List, Page, Requeue, Settled,
    Settlement, Store, SysidGrant, SysidRenew, SysidReserve, TypeStats, Waiting,
};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Payload, Sysid};

pub use crate::open::{OnCommit, Options};

use crate::query::Questions;
use crate::queue::PROMOTE_JOBS_MAX;
use crate::reader::Readers;
use crate::tx::Tx;
use crate::writer::Writer;

/// The store. Its calls need a Tokio runtime; dropping it without `close` loses nothing.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    questions: Questions,
    /// The newest time that a caller has named: about now, without reading a clock.
    heard: AtomicI64,
}

impl SqliteStore {
    /// Opens the file, creates it if it is absent, and brings its layout up to date. The directory
    /// must be there. A file of a newer Windlass or of another program is a `Conflict`, one that is
    /// no database or damaged is `Corrupt`; both stay as they are.
    pub fn open(options: Options) -> Result<SqliteStore, Error> {
        let translated = |failure: error::Failure| failure.translate(&options.path);
        let conn = open::writer(&options).map_err(translated)?;
        let writer = Writer::start(conn, options.path.clone(), options.on_commit.clone());
        let heard = AtomicI64::new(i64::MIN);
        let questions = Questions::new(options.clone());
        Ok(SqliteStore { writer, readers: Readers::new(options), questions, heard })
    }

    fn hear(&self, now: Timestamp) {
        self.heard.fetch_max(now.ms(), Ordering::Relaxed);
    }

    fn heard(&self) -> Timestamp {
        Timestamp(self.heard.load(Ordering::Relaxed))
    }

    /// Reads when every job that is due at `now` is ready. They become so in transactions of a
    /// bounded size; mostly there are none, and there is nothing to write.
    async fn read_promoted<T, F>(&self, now: Timestamp, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> error::Result<T> + Clone + Send + 'static,
    {
        let unless_due = read.clone();
        let answer = self.readers.read(move |conn| {
            let due = queue::next_due_at(conn)?.is_some_and(|at| at <= now);
            if due { Ok(None) } else { unless_due(conn).map(Some) }
        });
        if let Some(answer) = answer.await? {
            return Ok(answer);
        }
        let step = move |tx: &mut Tx<'_>| queue::promote(tx, now);
        // What was due at `now` is finite, and nobody adds to it as fast as it is moved.
        while self.writer.write(RELAXED, PROMOTE_JOBS_MAX, step).await? == PROMOTE_JOBS_MAX {}
        self.readers.read(read).await
    }
}

const SYNCED: Durability = Durability::Synced;
const RELAXED: Durability = Durability::Relaxed;

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "sqlite",
            wakes: false,
            shared: true,
            sql: true,
            payload_inline_bytes_max: PAYLOAD_INLINE_BYTES_MAX,
        }
    }

    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        self.hear(reserve.now);
        self.writer.write(SYNCED, 1, move |tx| sysid::reserve(tx, &reserve)).await
    }

    async fn sysid_renew(&self, renew: SysidRenew) -> Result<(), Error> {
        self.writer.write(RELAXED, 1, move |tx| sysid::renew(tx, &renew)).await
    }

    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error> {
        let heard = self.heard();
        self.writer.write(RELAXED, 1, move |tx| sysid::release(tx, sysid, boot, heard)).await
    }

    async fn sysid_list(&self, now: Timestamp) -> Result<Vec<Sysid>, Error> {
        self.readers.read(move |conn| sysid::list(conn, now)).await
    }

    async fn id_newest(&self) -> Result<Option<JobId>, Error> {
        self.readers.read(sysid::id_newest).await
    }

    async fn job_insert(&self, insert: Insert) -> Result<Vec<Inserted>, Error> {
        if let Some(newest) = insert.jobs.iter().map(|job| job.created_at).max() {
            self.hear(newest);
        }
        let (durability, jobs) = (insert.durability, insert.jobs.len());
        self.writer.write(durability, jobs, move |tx| insert::job_insert(tx, &insert)).await
    }

    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error> {
        self.readers.read(move |conn| insert::journal_position(conn, journal)).await
    }

    async fn payload_put(&self, id: JobId, index: u32, piece: Bytes) -> Result<(), Error> {
        let put = move |tx: &mut Tx<'_>| insert::payload_put(tx.conn, id, index, &piece);
        self.writer.write(RELAXED, PIECE_WEIGHS_JOBS, put).await
    }

    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.readers.read(move |conn| insert::idempotency_get(conn, &tenant, &key, now)).await
    }

    async fn type_waiting(&self, now: Timestamp) -> Result<Waiting, Error> {
        self.hear(now);
        self.read_promoted(now, type_row::waiting).await
    }

    async fn job_claim(&self, claim: Claim) -> Result<Vec<Claimed>, Error> {
        self.hear(claim.now);
        let jobs = claim.picks.iter().map(|pick| pick.limit as usize).sum();
        self.writer.write(RELAXED, jobs, move |tx| claim::job_claim(tx, &claim)).await
    }

    async fn job_renew(
        &self,
        leases: Vec<LeaseRef>,
        until: Timestamp,
    ) -> Result<Vec<LeaseRef>, Error> {
        let jobs = leases.len();
        self.writer.write(RELAXED, jobs, move |tx| claim::job_renew(tx, &leases, until)).await
    }

    async fn job_settle(
        &self,
        settlements: Vec<Settlement>,
        durability: Durability,
    ) -> Result<Vec<Settled>, Error> {
        if let Some(newest) = settlements.iter().map(|settlement| settlement.now).max() {
            self.hear(newest);
        }
        let jobs = settlements.len();
        self.writer.write(durability, jobs, move |tx| settle::job_settle(tx, &settlements)).await
    }

    async fn job_progress(&self, lease: LeaseRef, progress: Progress) -> Result<Settled, Error> {
        self.writer.write(RELAXED, 1, move |tx| settle::job_progress(tx, &lease, &progress)).await
    }

    async fn lease_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<Job>, Error> {
        self.hear(now);
        self.readers.read(move |conn| read::lease_expired(conn, now, limit)).await
    }

    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error> {
        self.hear(end.now);
        self.writer.write(SYNCED, 1, move |tx| change::job_cancel(tx, &end)).await
    }

    async fn job_rerun(
        &self,
        tenant: &Tenant,
        id: JobId,
        now: Timestamp,
    ) -> Result<Changed, Error> {
        self.hear(now);
        let tenant = tenant.clone();
        self.writer.write(SYNCED, 1, move |tx| change::job_rerun(tx, &tenant, id, now)).await
    }

    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error> {
        self.hear(requeue.now);
        let jobs = requeue.limit;
        self.writer.write(SYNCED, jobs, move |tx| change::job_requeue(tx, &requeue)).await
    }

    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        let (tenant, now) = (tenant.clone(), self.heard());
        self.writer.write(SYNCED, 1, move |tx| change::job_delete(tx, &tenant, id, now)).await
    }

    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error> {
        self.hear(ask.now);
        let (durability, jobs) = (ask.durability, ask.which.len());
        self.writer.write(durability, jobs, move |tx| edit::job_decide(tx, &ask)).await
    }

    async fn job_take(&self, take: Take) -> Result<Took, Error> {
        self.hear(take.now);
        let jobs = take.limit as usize;
        self.writer.write(RELAXED, jobs, move |tx| take::job_take(tx, &take)).await
    }

    async fn query(&self, ask: SqlAsk) -> Result<SqlAnswer, Error> {
        self.hear(ask.now);
        self.questions.ask(ask).await
    }

    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error> {
        self.hear(give_up.now);
        let jobs = give_up.limit;
        self.writer.write(RELAXED, jobs, move |tx| housekeeping::job_give_up(tx, &give_up)).await
    }

    async fn job_purge(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        self.hear(now);
        self.writer.write(RELAXED, limit, move |tx| housekeeping::job_purge(tx, now, limit)).await
    }

    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| read::job_get(conn, &tenant, id)).await
    }

    async fn job_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Json>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| read::job_result(conn, &tenant, id)).await
    }

    async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Option<Vec<AttemptLog>>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| read::job_log(conn, &tenant, id)).await
    }

    async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<Option<Payload>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| read::job_payload(conn, &tenant, id)).await
    }

    async fn payload_piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, Error> {
        self.readers.read(move |conn| read::payload_piece(conn, id, index)).await
    }

    async fn job_list(&self, list: List) -> Result<Page, Error> {
        self.readers.read(move |conn| read::job_list(conn, &list)).await
    }

    /// What is ready is judged by the newest time that any call has named.
    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error> {
        let tenant = tenant.cloned();
        let stats = move |conn: &Connection| type_row::stats(conn, tenant.as_ref());
        self.read_promoted(self.heard(), stats).await
    }

    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.hear(now);
        let key = key.clone();
        self.writer.write(SYNCED, 1, move |tx| handler::put(tx, id, &key, &spec, now)).await
    }

    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error> {
        let key = key.clone();
        self.readers.read(move |conn| handler::get(conn, &key, version)).await
    }

    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| handler::list(conn, &tenant)).await
    }

    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error> {
        let key = key.clone();
        self.writer.write(SYNCED, 1, move |tx| handler::delete(tx, &key)).await
    }

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error> {
        let key = key.clone();
        self.writer.write(SYNCED, 1, move |tx| type_row::suspend(tx, &key, suspended)).await
    }

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error> {
        let key = key.clone();
        self.writer.write(SYNCED, 1, move |tx| type_row::settings_put(tx, &key, &settings)).await
    }

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error> {
        let key = key.clone();
        self.readers.read(move |conn| type_row::settings_get(conn, &key)).await
    }

    /// A synced group that changes nothing writes a mark, and with it all that came before.
    async fn flush(&self) -> Result<(), Error> {
        self.writer.write(SYNCED, 0, |_| Ok(())).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.readers.read(|conn| Ok(conn.query_row("SELECT 1", [], |_| Ok(()))?)).await
    }

    async fn changed(&self) {
        std::future::pending().await
    }

    async fn close(&self) {
        // The writer's connection is the last one, so that closing it moves the log into the file.
        self.questions.stop().await;
        self.readers.stop().await;
        self.writer.stop().await;
    }
}

/// A piece of a payload is as much work as this many jobs, which bounds the pieces that one
/// transaction takes.
const PIECE_WEIGHS_JOBS: usize = 500;
