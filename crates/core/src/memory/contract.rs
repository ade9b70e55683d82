//! The contract, area by area: each call takes the lock once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::audit::AuditEntry;
use crate::edit::{Ask, Decided, FullJob, Take, TakeAnswer};
use crate::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use crate::id::{JobId, Sysid};
use crate::job::{Boot, Job, Payload, Progress, Token};
use crate::key::{Key, KeyId, NewKey};
use crate::limit::PAYLOAD_INLINE_BYTES_MAX;
use crate::name::{Tenant, TypeKey, TypeName};
use crate::outcome::Json;
use crate::store::{
    Add, Added, AttemptLog, AuditList, AuditPage, Audits, Capabilities, Changed, ChangedLook,
    ChangedTypes, Changes, Claim, ClaimAnswer, Claims, DaemonRecord, Daemons, Decides, Durability,
    EndRequest, Error, GiveUp, Handlers, IdempotencyRecord, Insert, Insertion, Inserts, JournalId,
    KeyRevision, KeyRotate, Keys, LeaseRef, List, NamedLook, NamedTypes, Page, Piece, Reads, Renew,
    Requeue, SettleAnswer, Settled, Settlement, Settles, Store, SysidGrant, SysidRenew,
    SysidReserve, TypeStats, TypedJob, WaitingType, Waits,
};
use crate::time::Timestamp;

use super::{MemoryStore, Row};

#[async_trait]
impl Daemons for MemoryStore {
    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        self.open()?.synced().sysid_reserve(reserve)
    }

    async fn sysid_renew(&self, renew: SysidRenew) -> Result<Timestamp, Error> {
        self.before("sysid_renew").await;
        self.released(|state| state.beats_held).await;
        self.undamaged_beat()?;
        self.open()?.sysid_renew(renew)
    }

    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error> {
        self.open()?.sysid_release(sysid, boot);
        Ok(())
    }

    async fn boot_next(&self) -> Result<Boot, Error> {
        self.before("boot_next").await;
        Ok(self.open()?.synced().boot_next())
    }

    async fn sysid_list(&self) -> Result<Vec<Sysid>, Error> {
        Ok(self.open()?.sysid_list())
    }

    async fn daemon_list(
        &self,
        after: Option<JournalId>,
        limit: usize,
    ) -> Result<Vec<DaemonRecord>, Error> {
        Ok(self.open()?.daemon_list(after, limit))
    }

    async fn id_newest(&self) -> Result<Option<JobId>, Error> {
        Ok(self.open()?.id_newest())
    }
}

#[async_trait]
impl Inserts for MemoryStore {
    async fn job_insert(&self, insert: Insert) -> Result<Insertion, Error> {
        self.insert_permitted().await;
        let mut state = self.open()?;
        if state.panics > 0 {
            state.panics -= 1;
            panic!("as the store was told");
        }
        let inserted = state.change(insert.durability, |state| state.job_insert(insert))?;
        self.answered(inserted)
    }

    async fn job_add(&self, add: Add) -> Result<Added, Error> {
        let added = self.open()?.change(Durability::Synced, |state| state.job_add(add));
        self.released(|state| state.add_answers_held).await;
        added
    }

    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error> {
        Ok(self.open()?.marks.get(&journal).copied())
    }

    async fn payload_put(&self, pieces: Vec<Piece>) -> Result<(), Error> {
        self.before("payload_put").await;
        let mut state = self.open()?;
        for Piece { id, index, bytes } in pieces {
            let now = state.now;
            state.pieces_waiting.insert(id, now);
            state.pieces.insert((id, index), bytes);
        }
        Ok(())
    }

    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        self.before("idempotency_get").await;
        Ok(self.open()?.idempotency_get(tenant, key))
    }
}

#[async_trait]
impl Waits for MemoryStore {
    async fn type_changed(&self, look: ChangedLook) -> Result<ChangedTypes, Error> {
        self.released(|state| state.looks_held).await;
        Ok(self.open()?.type_changed(&look))
    }

    async fn type_first(
        &self,
        after: Option<Tenant>,
        each: usize,
        limit: usize,
    ) -> Result<Vec<WaitingType>, Error> {
        Ok(self.open()?.type_first(after.as_ref(), each, limit))
    }

    async fn type_next(
        &self,
        of: Vec<(Tenant, Option<TypeName>)>,
        each: usize,
    ) -> Result<Vec<WaitingType>, Error> {
        Ok(self.open()?.type_next(&of, each))
    }

    async fn type_named(&self, look: NamedLook) -> Result<NamedTypes, Error> {
        self.before("type_named").await;
        Ok(self.open()?.type_named(&look))
    }

    async fn type_unhandled(&self, keys: Vec<TypeKey>) -> Result<Vec<TypeKey>, Error> {
        Ok(self.open()?.type_unhandled(keys))
    }
}

#[async_trait]
impl Claims for MemoryStore {
    async fn job_claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        self.before("job_claim").await;
        let claimed = self.open()?.job_claim(&claim);
        self.answer_permitted().await;
        self.claim_answered(claimed)
    }

    async fn job_renew(&self, renew: Renew) -> Result<Vec<LeaseRef>, Error> {
        Ok(self.open()?.job_renew(renew))
    }

    async fn lease_mine(
        &self,
        owner: Sysid,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error> {
        Ok(self.open()?.lease_mine(owner, after, limit))
    }

    async fn lease_claimed(
        &self,
        tokens: Vec<Token>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error> {
        Ok(self.open()?.lease_claimed(&tokens, limit))
    }

    async fn lease_expired(&self, limit: usize) -> Result<Vec<Job>, Error> {
        Ok(self.open()?.lease_expired(limit))
    }
}

#[async_trait]
impl Settles for MemoryStore {
    async fn job_settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error> {
        self.before("job_settle").await;
        self.undamaged(&settlements)?;
        Ok(self.open()?.durable(durability).job_settle(&settlements))
    }

    async fn job_progress(
        &self,
        progress: Vec<(LeaseRef, Progress)>,
    ) -> Result<Vec<Settled>, Error> {
        let mut state = self.open()?;
        let note = |(lease, progress)| state.job_progress(&lease, progress);
        Ok(progress.into_iter().map(note).collect())
    }
}

#[async_trait]
impl Changes for MemoryStore {
    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error> {
        Ok(self.open()?.synced().job_cancel(&end))
    }

    async fn job_rerun(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        Ok(self.open()?.synced().job_rerun(tenant, id))
    }

    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error> {
        Ok(self.open()?.synced().job_requeue(&requeue))
    }

    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        Ok(self.open()?.synced().job_delete(tenant, id))
    }

    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error> {
        Ok(self.open()?.job_give_up(&give_up))
    }

    async fn job_purge(&self, limit: usize) -> Result<u64, Error> {
        Ok(self.open()?.job_purge(limit))
    }
}

#[async_trait]
impl Decides for MemoryStore {
    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error> {
        self.open()?.durable(ask.durability).job_decide(&ask)
    }

    async fn job_take(&self, take: Take) -> Result<TakeAnswer, Error> {
        self.before("job_take").await;
        let taken = self.open()?.job_take(&take);
        self.answer_permitted().await;
        self.claim_answered(taken)
    }
}

#[async_trait]
impl Reads for MemoryStore {
    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error> {
        self.before("job_get").await;
        let state = self.open()?;
        let with_progress = |row: &Row| Job { progress: row.progress.clone(), ..row.job.clone() };
        Ok(state.row(tenant, id).map(with_progress))
    }

    async fn job_typed(&self, tenant: &Tenant, id: JobId) -> Result<Option<TypedJob>, Error> {
        self.before("job_typed").await;
        self.undamaged_job(id)?;
        let state = self.open()?;
        let Some(row) = state.row(tenant, id) else { return Ok(None) };
        let of_type = &state.types[&row.job.key];
        let (settings, handler) = (of_type.settings.clone(), of_type.in_force);
        Ok(Some(TypedJob { job: row.job.clone(), settings, handler }))
    }

    async fn job_full(&self, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>, Error> {
        self.before("job_full").await;
        let state = self.open()?;
        Ok(state.row(tenant, id).map(|row| state.full_job(row)))
    }

    async fn job_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Json>, Error> {
        self.before("job_result").await;
        Ok(self.open()?.row(tenant, id).and_then(|row| row.result.clone()))
    }

    async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Option<Vec<AttemptLog>>, Error> {
        self.before("job_log").await;
        Ok(self.open()?.row(tenant, id).map(|row| row.logs.clone()))
    }

    async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<Option<Payload>, Error> {
        self.before("job_payload").await;
        Ok(self.open()?.row(tenant, id).map(|row| row.payload.clone()))
    }

    async fn payload_piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, Error> {
        Ok(self.open()?.pieces.get(&(id, index)).cloned())
    }

    async fn job_list(&self, list: List) -> Result<Page, Error> {
        Ok(self.open()?.job_list(&list))
    }

    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error> {
        if tenant.is_none() {
            self.released(|state| state.stats_held).await;
        }
        Ok(self.open()?.type_stats(tenant))
    }
}

#[async_trait]
impl Handlers for MemoryStore {
    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
    ) -> Result<(), Error> {
        let mut state = self.open()?.synced();
        let handler = Handler { id, key: key.clone(), created_at: state.now, spec };
        state.handler_put(handler);
        Ok(())
    }

    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error> {
        self.before("handler_get").await;
        Ok(self.open()?.handler_get(key, version))
    }

    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error> {
        Ok(self.open()?.handler_list(tenant))
    }

    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error> {
        Ok(self.open()?.synced().handler_delete(key))
    }

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error> {
        let mut state = self.open()?.synced();
        state.touch(key);
        state.type_row(key).suspended = suspended;
        Ok(())
    }

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error> {
        let mut state = self.open()?.synced();
        state.touch(key);
        let now = state.now;
        let (row, settings) = (state.type_row(key), settings.clamped());
        row.spent = row.spent.follow(row.settings.rate, settings.rate, now);
        (row.settings, row.has_settings) = (settings, true);
        Ok(())
    }

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error> {
        let state = self.open()?;
        Ok(state.types.get(key).map(|row| row.settings.clone()).unwrap_or_default())
    }
}

#[async_trait]
impl Keys for MemoryStore {
    async fn key_put(&self, new: NewKey) -> Result<Key, Error> {
        self.open()?.synced().key_put(new)
    }

    async fn key_find(&self, id: KeyId) -> Result<Option<Key>, Error> {
        Ok(self.open()?.key_find(id))
    }

    async fn key_list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<Key>, Error> {
        Ok(self.open()?.key_list(tenant, after, limit))
    }

    async fn key_revoke(&self, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>, Error> {
        Ok(self.open()?.synced().key_revoke(tenant, id))
    }

    async fn key_rotate(&self, rotate: KeyRotate) -> Result<Option<Key>, Error> {
        self.open()?.synced().key_rotate(rotate)
    }

    async fn key_touch(&self, ids: Vec<KeyId>) -> Result<(), Error> {
        self.open()?.key_touch(&ids);
        Ok(())
    }

    async fn key_changed(
        &self,
        since: KeyRevision,
        limit: usize,
    ) -> Result<Vec<(KeyRevision, Key)>, Error> {
        Ok(self.open()?.key_changed(since, limit))
    }
}

#[async_trait]
impl Audits for MemoryStore {
    async fn audit_put(
        &self,
        entries: Vec<AuditEntry>,
        durability: Durability,
    ) -> Result<(), Error> {
        self.open()?.durable(durability).audit_put(entries);
        Ok(())
    }

    async fn audit_list(&self, list: AuditList) -> Result<AuditPage, Error> {
        Ok(self.open()?.audit_list(&list))
    }

    async fn audit_purge(&self, keep: Duration, limit: usize) -> Result<u64, Error> {
        Ok(self.open()?.audit_purge(keep, limit))
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "memory",
            wakes: false,
            shared: true,
            forgets: self.locked().forgets,
            payload_inline_bytes_max: PAYLOAD_INLINE_BYTES_MAX,
        }
    }

    async fn flush(&self) -> Result<(), Error> {
        self.before("flush").await;
        self.open().map(|state| drop(state.synced()))
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
