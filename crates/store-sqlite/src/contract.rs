//! The store's traits, area by area: the durability of each call, and roughly how much work it is.
//! Claims and takes are relaxed, and repeated until due jobs are ready (`write_when_ready`); for
//! inserts, settlements and decisions the caller says how durable they are.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::Connection;
use windlass_core::audit::AuditEntry;
use windlass_core::edit::{Ask, Decided, FullJob, Take, TakeAnswer};
use windlass_core::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use windlass_core::job::{Boot, Progress, Token};
use windlass_core::key::{Key, KeyId, NewKey};
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::name::{Tenant, TypeKey, TypeName};
use windlass_core::outcome::Json;
use windlass_core::store::{
    Add, Added, AttemptLog, AuditList, AuditPage, Audits, Capabilities, Changed, ChangedLook,
    ChangedTypes, Changes, Claim, ClaimAnswer, Claims, DaemonRecord, Daemons, Decides, Durability,
    EndRequest, Error, GiveUp, Handlers, IdempotencyRecord, Insert, Insertion, Inserts, JournalId,
    KeyRevision, KeyRotate, Keys, LeaseRef, List, NamedLook, NamedTypes, Page, Piece, Reads, Renew,
    Requeue, SettleAnswer, Settled, Settlement, Settles, SqlAnswer, SqlAsk, SqlStore, Store,
    SysidGrant, SysidRenew, SysidReserve, TypeStats, TypedJob, WaitingType, Waits,
};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Payload, Sysid};

use crate::tx::Tx;
use crate::{
    SqliteStore, audit, change, claim, daemon, edit, handler, housekeeping, insert, key, read,
    settle, sysid, take, type_row, waiting,
};

const SYNCED: Durability = Durability::Synced;
const RELAXED: Durability = Durability::Relaxed;

/// A piece of a payload counts as much work as this many jobs, which bounds the pieces in one
/// transaction.
const PIECE_WEIGHS_JOBS: usize = 500;

#[async_trait]
impl Daemons for SqliteStore {
    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        self.writer.write(SYNCED, 1, move |tx| sysid::reserve(tx, &reserve)).await
    }

    async fn sysid_renew(&self, renew: SysidRenew) -> Result<Timestamp, Error> {
        self.writer.write(RELAXED, 1, move |tx| sysid::renew(tx, &renew)).await
    }

    async fn boot_next(&self) -> Result<Boot, Error> {
        self.writer.write(SYNCED, 1, sysid::boot_next).await
    }

    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error> {
        self.writer.write(RELAXED, 1, move |tx| sysid::release(tx, sysid, boot)).await
    }

    async fn sysid_list(&self) -> Result<Vec<Sysid>, Error> {
        self.read_at(sysid::list).await
    }

    async fn daemon_list(
        &self,
        after: Option<JournalId>,
        limit: usize,
    ) -> Result<Vec<DaemonRecord>, Error> {
        self.read_at(move |conn, now| daemon::list(conn, now, after, limit)).await
    }

    async fn id_newest(&self) -> Result<Option<JobId>, Error> {
        self.readers.read(sysid::id_newest).await
    }
}

#[async_trait]
impl Inserts for SqliteStore {
    async fn job_insert(&self, insert: Insert) -> Result<Insertion, Error> {
        let (durability, jobs) = (insert.durability, insert.jobs.len());
        self.writer.write(durability, jobs, move |tx| insert::job_insert(tx, &insert)).await
    }

    async fn job_add(&self, add: Add) -> Result<Added, Error> {
        let jobs = add.jobs.len();
        self.writer.write(SYNCED, jobs, move |tx| insert::job_add(tx, &add)).await
    }

    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error> {
        self.readers.read(move |conn| insert::journal_position(conn, journal)).await
    }

    async fn payload_put(&self, pieces: Vec<Piece>) -> Result<(), Error> {
        let weight = PIECE_WEIGHS_JOBS * pieces.len();
        let put = move |tx: &mut Tx<'_>| {
            let mut last = None;
            for piece in &pieces {
                insert::payload_put(tx.conn, piece.id, piece.index, &piece.bytes)?;
                if last.replace(piece.id) != Some(piece.id) {
                    let now = tx.now;
                    insert::note_waiting_pieces(tx.conn, piece.id, now)?;
                }
            }
            Ok(())
        };
        self.writer.write(RELAXED, weight, put).await
    }

    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        let (tenant, key) = (tenant.clone(), key.to_owned());
        self.read_at(move |conn, now| insert::idempotency_get(conn, &tenant, &key, now)).await
    }
}

#[async_trait]
impl Waits for SqliteStore {
    async fn type_changed(&self, look: ChangedLook) -> Result<ChangedTypes, Error> {
        self.read_promoted(move |conn| waiting::changed(conn, &look)).await
    }

    async fn type_first(
        &self,
        after: Option<Tenant>,
        each: usize,
        limit: usize,
    ) -> Result<Vec<WaitingType>, Error> {
        let first = move |conn: &Connection| waiting::first(conn, after.as_ref(), each, limit);
        self.readers.read(first).await
    }

    async fn type_next(
        &self,
        of: Vec<(Tenant, Option<TypeName>)>,
        each: usize,
    ) -> Result<Vec<WaitingType>, Error> {
        self.readers.read(move |conn| waiting::next(conn, &of, each)).await
    }

    async fn type_named(&self, look: NamedLook) -> Result<NamedTypes, Error> {
        self.read_promoted(move |conn| waiting::named(conn, &look)).await
    }

    async fn type_unhandled(&self, keys: Vec<TypeKey>) -> Result<Vec<TypeKey>, Error> {
        self.readers.read(move |conn| waiting::unhandled(conn, &keys)).await
    }
}

#[async_trait]
impl Claims for SqliteStore {
    async fn job_claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        let jobs = claim.picks.iter().map(|pick| pick.limit as usize).sum();
        self.write_when_ready(jobs, move |tx| claim::job_claim(tx, &claim)).await
    }

    async fn job_renew(&self, renew: Renew) -> Result<Vec<LeaseRef>, Error> {
        let jobs = renew.leases.len();
        self.writer.write(RELAXED, jobs, move |tx| claim::job_renew(tx, &renew)).await
    }

    async fn lease_mine(
        &self,
        owner: Sysid,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error> {
        self.readers.read(move |conn| claim::mine(conn, owner, after, limit)).await
    }

    async fn lease_claimed(
        &self,
        tokens: Vec<Token>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error> {
        self.readers.read(move |conn| claim::claimed(conn, &tokens, limit)).await
    }

    async fn lease_expired(&self, limit: usize) -> Result<Vec<Job>, Error> {
        self.read_at(move |conn, now| read::lease_expired(conn, now, limit)).await
    }
}

#[async_trait]
impl Settles for SqliteStore {
    async fn job_settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error> {
        let entering = settlements.iter().map(|settlement| settlement.adds.len()).sum::<usize>();
        let jobs = settlements.len() + entering;
        self.writer.write(durability, jobs, move |tx| settle::job_settle(tx, &settlements)).await
    }

    async fn job_progress(
        &self,
        progress: Vec<(LeaseRef, Progress)>,
    ) -> Result<Vec<Settled>, Error> {
        let jobs = progress.len();
        let note = move |tx: &mut Tx<'_>| {
            let each = progress.iter();
            each.map(|(lease, progress)| settle::job_progress(tx, lease, progress)).collect()
        };
        self.writer.write(RELAXED, jobs, note).await
    }
}

#[async_trait]
impl Changes for SqliteStore {
    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error> {
        self.writer.write(SYNCED, 1, move |tx| change::job_cancel(tx, &end)).await
    }

    async fn job_rerun(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        let tenant = tenant.clone();
        self.writer.write(SYNCED, 1, move |tx| change::job_rerun(tx, &tenant, id)).await
    }

    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error> {
        let jobs = requeue.limit;
        self.writer.write(SYNCED, jobs, move |tx| change::job_requeue(tx, &requeue)).await
    }

    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        let tenant = tenant.clone();
        self.writer.write(SYNCED, 1, move |tx| change::job_delete(tx, &tenant, id)).await
    }

    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error> {
        let jobs = give_up.limit;
        self.writer.write(RELAXED, jobs, move |tx| housekeeping::job_give_up(tx, &give_up)).await
    }

    async fn job_purge(&self, limit: usize) -> Result<u64, Error> {
        self.writer.write(RELAXED, limit, move |tx| housekeeping::job_purge(tx, limit)).await
    }
}

#[async_trait]
impl Decides for SqliteStore {
    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error> {
        let (durability, jobs) = (ask.durability, ask.targets.len());
        self.writer.write(durability, jobs, move |tx| edit::job_decide(tx, &ask)).await
    }

    async fn job_take(&self, take: Take) -> Result<TakeAnswer, Error> {
        let jobs = take.limit as usize;
        self.write_when_ready(jobs, move |tx| take::job_take(tx, &take)).await
    }
}

#[async_trait]
impl Reads for SqliteStore {
    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| read::job_get(conn, &tenant, id)).await
    }

    async fn job_typed(&self, tenant: &Tenant, id: JobId) -> Result<Option<TypedJob>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| read::job_typed(conn, &tenant, id)).await
    }

    async fn job_full(&self, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>, Error> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| edit::find_full(conn, &tenant, id)).await
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

    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error> {
        let tenant = tenant.cloned();
        let stats = move |conn: &Connection| type_row::stats(conn, tenant.as_ref());
        self.read_promoted(stats).await
    }
}

#[async_trait]
impl Handlers for SqliteStore {
    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
    ) -> Result<(), Error> {
        let key = key.clone();
        self.writer.write(SYNCED, 1, move |tx| handler::put(tx, id, &key, &spec)).await
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
}

#[async_trait]
impl Keys for SqliteStore {
    async fn key_put(&self, new: NewKey) -> Result<Key, Error> {
        self.writer.write(SYNCED, 1, move |tx| key::put(tx, &new)).await
    }

    async fn key_find(&self, id: KeyId) -> Result<Option<Key>, Error> {
        self.readers.read(move |conn| key::find(conn, id)).await
    }

    async fn key_list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<Key>, Error> {
        let tenant = tenant.cloned();
        self.readers.read(move |conn| key::list(conn, tenant.as_ref(), after, limit)).await
    }

    async fn key_revoke(&self, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>, Error> {
        let tenant = tenant.cloned();
        self.writer.write(SYNCED, 1, move |tx| key::revoke(tx, tenant.as_ref(), id)).await
    }

    async fn key_rotate(&self, rotate: KeyRotate) -> Result<Option<Key>, Error> {
        self.writer.write(SYNCED, 1, move |tx| key::rotate(tx, &rotate)).await
    }

    async fn key_touch(&self, ids: Vec<KeyId>) -> Result<(), Error> {
        self.writer.write(RELAXED, ids.len(), move |tx| key::touch(tx, &ids)).await
    }

    async fn key_changed(
        &self,
        since: KeyRevision,
        limit: usize,
    ) -> Result<Vec<(KeyRevision, Key)>, Error> {
        self.readers.read(move |conn| key::changed(conn, since, limit)).await
    }
}

#[async_trait]
impl Audits for SqliteStore {
    async fn audit_put(
        &self,
        entries: Vec<AuditEntry>,
        durability: Durability,
    ) -> Result<(), Error> {
        self.writer.write(durability, entries.len(), move |tx| audit::put(tx, &entries)).await
    }

    async fn audit_list(&self, list: AuditList) -> Result<AuditPage, Error> {
        self.readers.read(move |conn| audit::list(conn, &list)).await
    }

    async fn audit_purge(&self, keep: Duration, limit: usize) -> Result<u64, Error> {
        self.writer.write(RELAXED, limit, move |tx| audit::purge(tx, keep, limit)).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "sqlite",
            wakes: false,
            shared: true,
            forgets: false,
            payload_inline_bytes_max: PAYLOAD_INLINE_BYTES_MAX,
        }
    }

    /// A synced group that changes nothing still writes a row, which makes all earlier commits
    /// durable.
    async fn flush(&self) -> Result<(), Error> {
        self.writer.write(SYNCED, 0, |_| Ok(())).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.doubt.check()?;
        self.readers.read(|conn| Ok(conn.query_row("SELECT 1", [], |_| Ok(()))?)).await
    }

    async fn changed(&self) {
        std::future::pending().await
    }

    async fn close(&self) {
        // The writer's connection is closed last: that moves the log into the file.
        self.queries.stop().await;
        self.readers.stop().await;
        self.writer.stop().await;
    }

    fn sql(&self) -> Option<&dyn SqlStore> {
        Some(self)
    }
}

#[async_trait]
impl SqlStore for SqliteStore {
    async fn query(&self, ask: SqlAsk) -> Result<SqlAnswer, Error> {
        let answer = self.queries.ask(ask).await?;
        if let SqlAnswer::Wrote { .. } = &answer {
            self.flush().await?;
        }
        Ok(answer)
    }
}
