//! The engine as doors see it: a handle that is cheap to clone, with every operation on jobs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use windlass_core::audit::Act;
use windlass_core::edit::{Decide, Decided, FullJob, Take, TakeAnswer, Target};
use windlass_core::key::NewKey;
use windlass_core::secret::{SecretInfo, SecretName, SecretValue};
use windlass_core::store::sql::SqlAnswer;
use windlass_core::store::{
    AttemptLog, AuditList, AuditPage, Claimed, JournalId, KeyRotate, LeaseRef, List, Page,
    TypeStats,
};
use windlass_core::{
    Clock, Handler, HandlerId, HandlerSpec, Job, JobId, Key, KeyId, State, Tenant, TenantSettings,
    Timestamp, TypeKey, TypeSettings,
};
use windlass_journal::SpoolWriter;

use crate::accept;
use crate::api::{
    AddJob, Added, Caller, DaemonStatus, DaemonsPage, Ended, IdempotencyKey, JobView, KeyRefusal,
    LiveLog, PullClaim, PullFinish, Readiness, Refusal, Rekeyed, SecretStatus, SecretUse,
};
use crate::ask::change;
use crate::ask::decide;
use crate::ask::list;
use crate::ask::read::{self, PayloadReader};
use crate::audit;
use crate::claim::pull;
use crate::claim::take;
use crate::claim::untake::{self, PayloadBefore, Starts, Taken};
use crate::detach;
use crate::error::{Error, storage_error, store_error};
use crate::house::keep;
use crate::key;
use crate::metrics::Metrics;
use crate::options::{Options, Parts};
use crate::secret;
use crate::settle::worker;
use crate::shared::Shared;
use crate::start::{self, Running};
use crate::tenant;

#[derive(Clone)]
pub struct Engine {
    running: Arc<Running>,
}

impl Engine {
    /// Reserves a sysid, opens the journal, starts all services.
    pub async fn start(
        parts: Parts,
        options: Options,
        metrics: Arc<Metrics>,
    ) -> Result<Engine, Error> {
        let running = start::start(parts, options, metrics).await?;
        Ok(Engine { running: Arc::new(running) })
    }

    /// Stops picking, lets running jobs end or releases them, flushes, frees the sysid.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.running.stop().await
    }

    /// Returns when the engine cannot continue, with the reason.
    pub async fn failed(&self) -> String {
        let mut failure = self.shared().health.failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await.map(|why| why.clone());
        match failed {
            Ok(why) => why.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.running.shared
    }

    /// For changes: what follows one is not left out because the caller disconnected. `bytes` is
    /// the size of its data.
    async fn to_its_end<T, F>(
        &self,
        bytes: usize,
        change: impl FnOnce(Arc<Shared>) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let room = self.shared().rooms.change.take(bytes).await;
        let change = change(self.shared().clone());
        detach::to_its_end(async move {
            let _room = room;
            change.await
        })
        .await
    }

    // ---- jobs ------------------------------------------------------------------------------

    /// Accepts jobs of one type, all or none. They are durable when this returns. If the caller
    /// disconnects, a plain add takes effect once it has reached the journal. Any other add is
    /// carried to its end.
    pub async fn add(
        &self,
        key: &TypeKey,
        jobs: Vec<AddJob>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Added, Error> {
        accept::add(self.shared(), key, jobs, idempotency).await
    }

    /// For a payload above `PAYLOAD_INLINE_BYTES_MAX`: write it here, finish, then add the job.
    pub async fn spool(&self) -> Result<SpoolWriter, Error> {
        self.shared().journal.spool().await.map_err(storage_error)
    }

    pub async fn job(&self, tenant: &Tenant, id: JobId) -> Result<JobView, Error> {
        read::job(self.shared(), tenant, id).await
    }

    /// Returns when the job has ended, or after `wait` with the job as it is.
    pub async fn job_wait(
        &self,
        tenant: &Tenant,
        id: JobId,
        wait: Duration,
    ) -> Result<JobView, Error> {
        read::job_wait(self.shared(), tenant, id, wait).await
    }

    pub async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<PayloadReader, Error> {
        read::job_payload(self.shared().clone(), tenant, id).await
    }

    pub async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Vec<AttemptLog>, Error> {
        read::job_log(self.shared(), tenant, id).await
    }

    /// What the attempt that runs in this daemon has written so far, if there is one.
    pub fn job_live(&self, tenant: &Tenant, id: JobId) -> Option<LiveLog> {
        let mut attempts = self.shared().running.of_job(id);
        attempts.retain(|running| running.job.key.tenant == *tenant);
        let running = attempts.into_iter().max_by_key(|running| (!running.lost, running.token))?;
        let Job { attempt, started_at, .. } = *running.job;
        Some(LiveLog { attempt, started_at, newest: running.live.look() })
    }

    pub async fn job_list(&self, wish: List) -> Result<Page, Error> {
        list::job_list(self.shared(), wish).await
    }

    /// If the job runs in this daemon, it is stopped with all its processes before this returns.
    pub async fn job_cancel(&self, tenant: &Tenant, id: JobId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.to_its_end(0, move |shared| async move { change::cancel(&shared, &tenant, id).await })
            .await
    }

    pub async fn job_retry(&self, tenant: &Tenant, id: JobId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.to_its_end(0, move |shared| async move { change::retry(&shared, &tenant, id).await })
            .await
    }

    pub async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.to_its_end(0, move |shared| async move { change::delete(&shared, &tenant, id).await })
            .await
    }

    pub async fn job_requeue(
        &self,
        key: &TypeKey,
        state: State,
        limit: usize,
    ) -> Result<u64, Error> {
        let key = key.clone();
        self.to_its_end(0, move |shared| async move {
            change::requeue(&shared, &key, state, limit).await
        })
        .await
    }

    // ---- handlers and types ------------------------------------------------------------------

    pub async fn handler_set(&self, key: &TypeKey, spec: HandlerSpec) -> Result<HandlerId, Error> {
        let key = key.clone();
        let HandlerSpec { body, before, before_each, after_each, .. } = &spec;
        let scripts = [before, before_each, after_each].into_iter().flatten().chain([body]);
        let bytes = scripts.map(String::len).sum();
        self.to_its_end(bytes, move |shared| async move {
            change::handler_set(&shared, &key, spec).await
        })
        .await
    }

    pub async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Handler, Error> {
        let found = self.shared().store.handler_get(key, version).await.map_err(store_error)?;
        found.ok_or(Error::NotFound("handler"))
    }

    pub async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error> {
        self.shared().store.handler_list(tenant).await.map_err(store_error)
    }

    /// Running jobs continue; queued ones wait for a new handler.
    pub async fn handler_delete(&self, key: &TypeKey) -> Result<(), Error> {
        let key = key.clone();
        self.to_its_end(0, move |shared| async move { change::handler_delete(&shared, &key).await })
            .await
    }

    pub async fn types(&self, tenant: &Tenant) -> Result<Vec<TypeStats>, Error> {
        read::types(self.shared(), tenant).await
    }

    pub async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error> {
        let key = key.clone();
        self.to_its_end(
            0,
            move |shared| async move { change::suspend(&shared, &key, suspended).await },
        )
        .await
    }

    pub async fn type_settings_put(
        &self,
        key: &TypeKey,
        settings: TypeSettings,
    ) -> Result<(), Error> {
        let key = key.clone();
        self.to_its_end(0, move |shared| async move {
            change::settings_put(&shared, &key, settings).await
        })
        .await
    }

    pub async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error> {
        self.shared().store.type_settings_get(key).await.map_err(store_error)
    }

    pub async fn tenant_settings_put(
        &self,
        tenant: Tenant,
        settings: TenantSettings,
    ) -> Result<(), Error> {
        self.to_its_end(0, move |shared| tenant::put(shared, tenant, settings)).await
    }

    pub async fn tenant_settings_get(&self, tenant: &Tenant) -> Result<TenantSettings, Error> {
        self.shared().store.tenant_settings_get(tenant).await.map_err(store_error)
    }

    // ---- pulling workers ---------------------------------------------------------------------

    /// Claims jobs for a worker. If the caller stops waiting, the jobs are released.
    pub async fn claim(&self, wish: PullClaim) -> Result<Vec<Claimed>, Error> {
        pull::claim(self.shared().clone(), wish).await
    }

    pub async fn renew(&self, lease: LeaseRef, by: Duration) -> Result<(), Error> {
        worker::renew(self.shared(), lease, by).await
    }

    /// Renews many leases; those that are lost by now stay lost.
    pub async fn renew_all(&self, leases: Vec<LeaseRef>, by: Duration) -> Result<(), Error> {
        worker::renew_all(self.shared(), leases, by).await
    }

    pub async fn finish(&self, finish: PullFinish) -> Result<(), Error> {
        let bytes = finish.data.as_ref().map_or(0, |data| data.as_str().len());
        self.to_its_end(bytes, move |shared| async move { worker::finish(&shared, finish).await })
            .await
    }

    pub async fn release(&self, lease: LeaseRef, delay: Duration) -> Result<(), Error> {
        self.to_its_end(
            0,
            move |shared| async move { worker::release(&shared, lease, delay).await },
        )
        .await
    }

    pub async fn progress(
        &self,
        lease: LeaseRef,
        percent: f64,
        message: String,
    ) -> Result<(), Error> {
        worker::progress(self.shared(), lease, percent, message).await
    }

    // ---- decisions of doors --------------------------------------------------------------------

    /// Shows jobs to a pure decision and carries out its edits, all or nothing; durable when this
    /// returns. `Error::Refused` has the decision's reason. It is done even if the caller stops
    /// waiting.
    pub async fn decide(
        &self,
        tenant: &Tenant,
        targets: Vec<Target>,
        decide: Decide,
    ) -> Result<Decided, Error> {
        decide::decide(self.shared(), tenant, targets, decide).await
    }

    /// Takes due jobs by name; waits when there are none. If the caller stops waiting, the jobs
    /// are released unchanged.
    pub async fn take(&self, take: Take, wait: Duration) -> Result<TakeAnswer, Error> {
        take::take(self.shared().clone(), take, wait).await
    }

    /// Undoes takes whose jobs did not reach their worker; what others have changed since stays. It
    /// is done even if the caller stops waiting. After an error, the jobs come back later.
    pub async fn untake(&self, taken: Vec<Taken>, payload: PayloadBefore) -> Result<(), Error> {
        self.to_its_end(0, move |shared| async move {
            untake::untake(&shared, taken, payload, Starts::Logged).await
        })
        .await
    }

    /// Queues leases of a take to be made permanent: their workers never renew them.
    pub async fn keep(&self, leases: Vec<LeaseRef>) {
        keep::keep(self.shared(), leases).await;
    }

    /// A job with its payload; visible as soon as its add is answered.
    pub async fn full_job(&self, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>, Error> {
        decide::full_job(self.shared(), tenant, id).await
    }

    /// Runs SQL on the store, if it supports that; sees everything added before.
    pub async fn query(
        &self,
        tenant: &Tenant,
        text: String,
        without_where: bool,
        patience: Duration,
    ) -> Result<SqlAnswer, Error> {
        decide::query(self.shared(), tenant, text, without_where, patience).await
    }

    /// A new id for a job that a decision adds.
    pub fn make_id(&self) -> Result<JobId, Error> {
        self.shared().journal.make_id().map_err(storage_error)
    }

    pub fn now(&self) -> Timestamp {
        self.shared().now()
    }

    /// Longest lease that a worker may ask for.
    pub fn lease_max(&self) -> Duration {
        self.shared().options.maxima.lease
    }

    /// How long ended jobs are kept unless their type sets another time.
    pub fn retention(&self) -> Duration {
        self.shared().options.retention
    }

    // ---- API keys ------------------------------------------------------------------------------

    /// Whose key this is. Reads memory only.
    pub fn key_check(&self, text: &str) -> Result<Caller, KeyRefusal> {
        self.shared().keys.check(text, self.now())
    }

    /// Returns when a key is no longer in force: for requests that wait.
    pub async fn key_ended(&self, id: KeyId) {
        self.shared().keys.ended(id, || self.now()).await;
    }

    /// Stores a key, which is in force here when this returns.
    pub async fn key_create(&self, new: NewKey) -> Result<Key, Error> {
        self.to_its_end(0, move |shared| key::create(shared, new)).await
    }

    pub async fn key_find(&self, id: KeyId) -> Result<Option<Key>, Error> {
        self.shared().store.key_find(id).await.map_err(store_error)
    }

    /// By id, behind `after`; without a tenant, the keys of all.
    pub async fn key_list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<Key>, Error> {
        self.shared().store.key_list(tenant, after, limit).await.map_err(store_error)
    }

    /// Ends a key: here when this returns, on other daemons within a second. With a tenant, only a
    /// key of it.
    pub async fn key_revoke(&self, tenant: Option<&Tenant>, id: KeyId) -> Result<Key, Error> {
        let tenant = tenant.cloned();
        self.to_its_end(0, move |shared| key::revoke(shared, tenant, id)).await
    }

    /// Replaces a key; the old one stays in force for the overlap.
    pub async fn key_rotate(&self, rotate: KeyRotate) -> Result<Key, Error> {
        self.to_its_end(0, move |shared| key::rotate(shared, rotate)).await
    }

    // ---- audit ---------------------------------------------------------------------------------

    /// Makes a change that has an entry in the audit before it begins, with its outcome before this
    /// returns (later, if the store fails in between). If the caller stops waiting, both happen all
    /// the same. While the store is away, the change does not begin.
    pub async fn audited<T: Send + 'static>(
        &self,
        act: Act,
        change: impl Future<Output = (T, Ended)> + Send + 'static,
    ) -> Result<T, Error> {
        let room = self.shared().audit.room.take(0).await;
        let shared = self.shared().clone();
        detach::to_its_end(async move {
            let _room = room;
            audit::audited(shared, act, change).await
        })
        .await
    }

    /// Enters an act of this daemon in the audit; durable when this returns.
    pub async fn audit_note(&self, act: Act) -> Result<(), Error> {
        audit::note(self.shared(), act).await
    }

    /// Counts a refusal for the audit, which has it within about a second. Waits for nothing.
    pub fn audit_refused(&self, refusal: Refusal) {
        audit::refused(self.shared(), refusal);
    }

    pub async fn audit_list(&self, list: AuditList) -> Result<AuditPage, Error> {
        self.shared().store.audit_list(list).await.map_err(store_error)
    }

    // ---- secrets -------------------------------------------------------------------------------

    /// In force with the next batch of every handler that names it.
    pub async fn secret_set(
        &self,
        tenant: &Tenant,
        name: SecretName,
        value: SecretValue,
    ) -> Result<SecretInfo, Error> {
        let tenant = tenant.clone();
        self.to_its_end(0, move |shared| secret::set(shared, tenant, name, value)).await
    }

    pub async fn secret_list(&self, tenant: &Tenant) -> Result<Vec<SecretUse>, Error> {
        secret::list(self.shared(), tenant).await
    }

    /// Those of these names for which no secret is set.
    pub async fn secret_missing(
        &self,
        tenant: &Tenant,
        names: &[SecretName],
    ) -> Result<Vec<SecretName>, Error> {
        secret::missing(self.shared(), tenant, names).await
    }

    pub async fn secret_delete(&self, tenant: &Tenant, name: SecretName) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.to_its_end(0, move |shared| secret::delete(shared, tenant, name)).await
    }

    /// Seals the secrets of all tenants under a new key.
    pub async fn secret_rekey(&self) -> Result<Rekeyed, Error> {
        self.to_its_end(0, secret::rekey).await
    }

    /// Makes the first key of secrets, if there is none.
    pub async fn secret_prepare(&self) -> Result<SecretStatus, Error> {
        secret::prepare(self.shared()).await
    }

    // ---- operating -----------------------------------------------------------------------------

    /// The engine's clock, which follows the store's.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.shared().clock.clone()
    }

    pub async fn status(&self) -> DaemonStatus {
        read::status(self.shared()).await
    }

    /// All daemons of the queue, by number, behind `after`: at most `limit` of them.
    pub async fn daemons(
        &self,
        after: Option<JournalId>,
        limit: usize,
    ) -> Result<DaemonsPage, Error> {
        read::daemons(self.shared(), after, limit).await
    }

    pub async fn readiness(&self) -> Readiness {
        read::readiness(self.shared()).await
    }

    /// The metrics as Prometheus text, with the current depth of the queue.
    pub async fn metrics_text(&self) -> String {
        read::metrics_text(self.shared()).await
    }

    /// Stops or restarts picking; adds and claims of workers continue.
    pub fn set_picking(&self, picking: bool) {
        self.shared().picking.store(picking, Ordering::SeqCst);
        // Other daemons show it.
        self.shared().daemon.contact.beat_wanted.notify_one();
        self.shared().ready.look();
    }
}
