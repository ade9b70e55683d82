//! A job's way through the store, and the daemons that take it along.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::job::{Boot, Progress, Token};
use windlass_core::name::{Tenant, TypeKey, TypeName};
use windlass_core::store::{
    Add, Added, ChangedLook, ChangedTypes, Claim, ClaimAnswer, Claims, DaemonRecord, Daemons,
    Durability, Error, IdempotencyRecord, Insert, Insertion, Inserts, JournalId, LeaseRef,
    NamedLook, NamedTypes, Piece, Renew, SettleAnswer, Settled, Settlement, Settles, SysidGrant,
    SysidRenew, SysidReserve, WaitingType, Waits,
};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Sysid};

use super::{RELAXED, SYNCED};
use crate::{PostgresStore, claim, daemon, insert, lease, queue, settle, sysid, waiting};

#[async_trait]
impl Daemons for PostgresStore {
    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(sysid::reserve(tx, &reserve))).await
    }

    async fn sysid_renew(&self, renew: SysidRenew) -> Result<Timestamp, Error> {
        self.beat.write(RELAXED, |tx| Box::pin(sysid::renew(tx, &renew))).await
    }

    async fn boot_next(&self) -> Result<Boot, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(sysid::boot_next(tx))).await
    }

    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error> {
        self.inner.write(RELAXED, |tx| Box::pin(sysid::release(tx, sysid, boot))).await
    }

    async fn sysid_list(&self) -> Result<Vec<Sysid>, Error> {
        self.inner.read(|tx| Box::pin(sysid::list(tx))).await
    }

    async fn daemon_list(
        &self,
        after: Option<JournalId>,
        limit: usize,
    ) -> Result<Vec<DaemonRecord>, Error> {
        self.inner.read(|tx| Box::pin(daemon::list(tx, after, limit))).await
    }

    async fn id_newest(&self) -> Result<Option<JobId>, Error> {
        self.inner.read(|tx| Box::pin(sysid::id_newest(tx))).await
    }
}

#[async_trait]
impl Inserts for PostgresStore {
    async fn job_insert(&self, insert: Insert) -> Result<Insertion, Error> {
        self.inner.write(insert.durability, |tx| Box::pin(insert::job_insert(tx, &insert))).await
    }

    async fn job_add(&self, add: Add) -> Result<Added, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(insert::job_add(tx, &add))).await
    }

    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error> {
        self.inner.read(|tx| Box::pin(insert::journal_position(tx, journal))).await
    }

    async fn payload_put(&self, pieces: Vec<Piece>) -> Result<(), Error> {
        self.inner.write(RELAXED, |tx| Box::pin(insert::payload_put(tx, &pieces))).await
    }

    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        self.inner.read(|tx| Box::pin(insert::idempotency_get(tx, tenant, key))).await
    }
}

#[async_trait]
impl Waits for PostgresStore {
    async fn type_changed(&self, look: ChangedLook) -> Result<ChangedTypes, Error> {
        self.promote().await?;
        let settled =
            self.inner.write(RELAXED, |tx| Box::pin(waiting::settled_revision(tx))).await?;
        let (changed, empty) =
            self.inner.read(|tx| Box::pin(waiting::changed(tx, &look, settled))).await?;
        if !empty.is_empty() {
            self.inner.write(RELAXED, |tx| Box::pin(waiting::close_empty(tx, &empty))).await?;
        }
        Ok(changed)
    }

    async fn type_first(
        &self,
        after: Option<Tenant>,
        each: usize,
        limit: usize,
    ) -> Result<Vec<WaitingType>, Error> {
        self.inner.read(|tx| Box::pin(waiting::first(tx, after.as_ref(), each, limit))).await
    }

    async fn type_next(
        &self,
        of: Vec<(Tenant, Option<TypeName>)>,
        each: usize,
    ) -> Result<Vec<WaitingType>, Error> {
        self.inner.read(|tx| Box::pin(waiting::next(tx, &of, each))).await
    }

    async fn type_named(&self, look: NamedLook) -> Result<NamedTypes, Error> {
        self.promote().await?;
        self.inner.read(|tx| Box::pin(waiting::named(tx, &look))).await
    }

    async fn type_unhandled(&self, keys: Vec<TypeKey>) -> Result<Vec<TypeKey>, Error> {
        self.inner.read(|tx| Box::pin(waiting::unhandled(tx, &keys))).await
    }
}

#[async_trait]
impl Claims for PostgresStore {
    async fn job_claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        self.inner.write_when_ready(|tx| Box::pin(claim::job_claim(tx, &claim))).await
    }

    async fn job_renew(&self, renew: Renew) -> Result<Vec<LeaseRef>, Error> {
        self.inner.write(RELAXED, |tx| Box::pin(lease::renew(tx, &renew))).await
    }

    async fn lease_mine(
        &self,
        owner: Sysid,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error> {
        self.beat.read(|tx| Box::pin(lease::mine(tx, owner, after, limit))).await
    }

    async fn lease_claimed(
        &self,
        tokens: Vec<Token>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error> {
        self.inner.read(|tx| Box::pin(lease::claimed(tx, &tokens, limit))).await
    }

    async fn lease_expired(&self, limit: usize) -> Result<Vec<Job>, Error> {
        self.inner.read(|tx| Box::pin(lease::expired(tx, limit))).await
    }
}

#[async_trait]
impl Settles for PostgresStore {
    async fn job_settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error> {
        self.inner.write(durability, |tx| Box::pin(settle::job_settle(tx, &settlements))).await
    }

    async fn job_progress(
        &self,
        progress: Vec<(LeaseRef, Progress)>,
    ) -> Result<Vec<Settled>, Error> {
        self.inner.write(RELAXED, |tx| Box::pin(settle::job_progress(tx, &progress))).await
    }
}

impl PostgresStore {
    /// Makes due jobs ready, or the first of them if there are very many.
    pub(super) async fn promote(&self) -> Result<(), Error> {
        self.inner.write(RELAXED, |tx| Box::pin(queue::promote_if_due(tx))).await.map(drop)
    }
}
