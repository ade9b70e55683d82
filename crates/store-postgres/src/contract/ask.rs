//! What clients ask for: changes of jobs, decisions, and reads. Changes by clients are synced; for
//! a decision the caller says how durable it is. Takes and housekeeping are relaxed.

use async_trait::async_trait;
use bytes::Bytes;
use windlass_core::edit::{Ask, Decided, FullJob, Take, TakeAnswer};
use windlass_core::name::Tenant;
use windlass_core::outcome::Json;
use windlass_core::store::{
    AttemptLog, Changed, Changes, Decides, EndRequest, Error, GiveUp, List, Page, Reads, Requeue,
    TypeStats, TypedJob,
};
use windlass_core::{Job, JobId, Payload};

use super::{RELAXED, SYNCED};
use crate::{PostgresStore, change, edit, housekeeping, read, stats, take};

#[async_trait]
impl Changes for PostgresStore {
    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(change::job_cancel(tx, &end))).await
    }

    async fn job_rerun(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(change::job_rerun(tx, tenant, id))).await
    }

    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(change::job_requeue(tx, &requeue))).await
    }

    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(change::job_delete(tx, tenant, id))).await
    }

    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error> {
        self.inner.write(RELAXED, |tx| Box::pin(housekeeping::job_give_up(tx, &give_up))).await
    }

    async fn job_purge(&self, limit: usize) -> Result<u64, Error> {
        self.inner.write(RELAXED, |tx| Box::pin(housekeeping::job_purge(tx, limit))).await
    }
}

#[async_trait]
impl Decides for PostgresStore {
    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error> {
        self.inner.write(ask.durability, |tx| Box::pin(edit::job_decide(tx, &ask))).await
    }

    async fn job_take(&self, take: Take) -> Result<TakeAnswer, Error> {
        self.inner.write_when_ready(|tx| Box::pin(take::job_take(tx, &take))).await
    }
}

#[async_trait]
impl Reads for PostgresStore {
    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error> {
        self.inner.read(|tx| Box::pin(read::job_get(tx, tenant, id))).await
    }

    async fn job_typed(&self, tenant: &Tenant, id: JobId) -> Result<Option<TypedJob>, Error> {
        self.inner.read(|tx| Box::pin(read::job_typed(tx, tenant, id))).await
    }

    async fn job_full(&self, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>, Error> {
        self.inner.read(|tx| Box::pin(edit::find_full(tx, tenant, id))).await
    }

    async fn job_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Json>, Error> {
        self.inner.read(|tx| Box::pin(read::job_result(tx, tenant, id))).await
    }

    async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Option<Vec<AttemptLog>>, Error> {
        self.inner.read(|tx| Box::pin(read::job_log(tx, tenant, id))).await
    }

    async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<Option<Payload>, Error> {
        self.inner.read(|tx| Box::pin(read::job_payload(tx, tenant, id))).await
    }

    async fn payload_piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, Error> {
        self.inner.read(|tx| Box::pin(read::payload_piece(tx, id, index))).await
    }

    async fn job_list(&self, list: List) -> Result<Page, Error> {
        self.inner.read(|tx| Box::pin(read::job_list(tx, &list))).await
    }

    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error> {
        self.inner.read(|tx| Box::pin(stats::stats(tx, tenant))).await
    }
}
