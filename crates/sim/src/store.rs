//! The store, as one process sees it: the reference store with the faults of a server. A call takes
//! time before and after it is carried out; the store hangs, is cut off, and loses answers. The
//! call of a daemon that dies meanwhile may be carried out or not, and never returns.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_core::audit::AuditEntry;
use windlass_core::edit::{Ask, Decided, FullJob, Take, TakeAnswer};
use windlass_core::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use windlass_core::job::{Boot, Job, Payload, Progress, Token};
use windlass_core::key::{Key, KeyId, NewKey};
use windlass_core::memory::MemoryStore;
use windlass_core::secret::{SealedSecret, SecretInfo, SecretName};
use windlass_core::store::{
    Add, Added, AttemptLog, AuditList, AuditPage, Audits, Capabilities, Changed, ChangedLook,
    ChangedTypes, Changes, Claim, ClaimAnswer, Claims, DaemonRecord, Daemons, Decides, Durability,
    EndRequest, Error, GiveUp, Handlers, IdempotencyRecord, Insert, Insertion, Inserts, JournalId,
    KeyRevision, KeyRotate, Keys, LeaseRef, List, NamedLook, NamedTypes, Page, Piece, Reads, Renew,
    Requeue, Secrets, SettleAnswer, Settled, Settlement, Settles, Store, SysidGrant, SysidRenew,
    SysidReserve, TenantRevision, Tenants, TypeStats, TypedJob, WaitingType, Waits,
};
use windlass_core::{JobId, Json, Sysid, Tenant, TenantSettings, Timestamp, TypeKey, TypeName};

use crate::life::{Life, Step, Trouble};
use crate::world::World;

/// One of so many ways takes time.
const SLOW_WAYS: u64 = 4;

pub(crate) struct SimStore {
    pub(crate) world: Arc<World>,
    pub(crate) inner: Arc<MemoryStore>,
    pub(crate) life: Arc<Life>,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It never reached the store.
    Refused,
    /// It was carried out, and its answer was lost.
    Lost,
    /// As above, and its caller is dead.
    Unheard,
}

impl SimStore {
    pub(crate) async fn call<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let fate = self.arrive().await;
        if fate == Fate::Refused {
            return Err(Error::Unavailable("cut off".into()));
        }
        let answer = work.await;
        match fate {
            Fate::Unheard => pending().await,
            Fate::Lost => Err(Error::Unavailable("the answer was lost".into())),
            _ => {
                self.way().await;
                if self.life.is_over() {
                    return pending().await;
                }
                answer
            }
        }
    }

    /// The way to the store. Does not return if the call never gets there and its caller is dead.
    async fn arrive(&self) -> Fate {
        match self.life.step() {
            Step::Dead => pending().await,
            Step::Dies => return self.unheard().await,
            Step::Lives => {}
        }
        self.way().await;
        self.world.store_answers().await;
        if self.life.is_over() {
            return self.unheard().await;
        }
        match (self.life.condition.trouble(), self.world.draw(4)) {
            (Some(Trouble::Partition), 0) => Fate::Answered,
            (Some(Trouble::Partition), 1) => Fate::Lost,
            (Some(Trouble::Partition), _) => {
                // Nobody says that nobody answers.
                tokio::time::sleep(Duration::from_millis(self.world.draw(100))).await;
                Fate::Refused
            }
            _ => Fate::Answered,
        }
    }

    async fn unheard(&self) -> Fate {
        if self.world.draw(2) == 0 { Fate::Unheard } else { pending().await }
    }

    async fn way(&self) {
        if self.world.draw(SLOW_WAYS) == 0 {
            let ms = self.world.draw(self.world.pace.way_ms_max) + 1;
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }
}

/// Implements a trait by calls of the reference store.
macro_rules! passes_on {
    ($area:ident { $(fn $name:ident($($value:ident: $kind:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl $area for SimStore {
            $(async fn $name(&self, $($value: $kind),*) -> Result<$answer, Error> {
                self.call(self.inner.$name($($value),*)).await
            })*
        }
    };
}

passes_on!(Daemons {
    fn sysid_reserve(reserve: SysidReserve) -> SysidGrant;
    fn sysid_renew(renew: SysidRenew) -> Timestamp;
    fn sysid_release(sysid: Sysid, boot: Boot) -> ();
    fn boot_next() -> Boot;
    fn sysid_list() -> Vec<Sysid>;
    fn daemon_list(after: Option<JournalId>, limit: usize) -> Vec<DaemonRecord>;
    fn id_newest() -> Option<JobId>;
});

#[async_trait]
impl Inserts for SimStore {
    async fn job_insert(&self, insert: Insert) -> Result<Insertion, Error> {
        self.insert(insert).await
    }

    async fn job_add(&self, add: Add) -> Result<Added, Error> {
        self.call(self.inner.job_add(self.planted_add(add))).await
    }

    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error> {
        self.call(self.inner.journal_position(journal)).await
    }

    async fn payload_put(&self, pieces: Vec<Piece>) -> Result<(), Error> {
        self.call(self.inner.payload_put(pieces)).await
    }

    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, Error> {
        self.call(self.inner.idempotency_get(tenant, key)).await
    }
}

passes_on!(Waits {
    fn type_changed(look: ChangedLook) -> ChangedTypes;
    fn type_first(after: Option<Tenant>, each: usize, limit: usize) -> Vec<WaitingType>;
    fn type_next(of: Vec<(Tenant, Option<TypeName>)>, each: usize) -> Vec<WaitingType>;
    fn type_named(look: NamedLook) -> NamedTypes;
    fn type_unhandled(keys: Vec<TypeKey>) -> Vec<TypeKey>;
});

passes_on!(Claims {
    fn job_claim(claim: Claim) -> ClaimAnswer;
    fn job_renew(renew: Renew) -> Vec<LeaseRef>;
    fn lease_mine(owner: Sysid, after: Option<JobId>, limit: usize) -> Vec<LeaseRef>;
    fn lease_claimed(tokens: Vec<Token>, limit: usize) -> Vec<LeaseRef>;
    fn lease_expired(limit: usize) -> Vec<Job>;
});

#[async_trait]
impl Settles for SimStore {
    async fn job_settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error> {
        self.settle(settlements, durability).await
    }

    async fn job_progress(
        &self,
        progress: Vec<(LeaseRef, Progress)>,
    ) -> Result<Vec<Settled>, Error> {
        self.call(self.inner.job_progress(progress)).await
    }
}

passes_on!(Changes {
    fn job_cancel(end: EndRequest) -> Changed;
    fn job_rerun(tenant: &Tenant, id: JobId) -> Changed;
    fn job_requeue(requeue: Requeue) -> u64;
    fn job_delete(tenant: &Tenant, id: JobId) -> Changed;
    fn job_give_up(give_up: GiveUp) -> Vec<Job>;
    fn job_purge(limit: usize) -> u64;
});

passes_on!(Decides {
    fn job_decide(ask: Ask) -> Decided;
    fn job_take(take: Take) -> TakeAnswer;
});

passes_on!(Reads {
    fn job_get(tenant: &Tenant, id: JobId) -> Option<Job>;
    fn job_typed(tenant: &Tenant, id: JobId) -> Option<TypedJob>;
    fn job_full(tenant: &Tenant, id: JobId) -> Option<FullJob>;
    fn job_result(tenant: &Tenant, id: JobId) -> Option<Json>;
    fn job_log(tenant: &Tenant, id: JobId) -> Option<Vec<AttemptLog>>;
    fn job_payload(tenant: &Tenant, id: JobId) -> Option<Payload>;
    fn payload_piece(id: JobId, index: u32) -> Option<Bytes>;
    fn job_list(list: List) -> Page;
    fn type_stats(tenant: Option<&Tenant>) -> Vec<TypeStats>;
});

#[async_trait]
impl Handlers for SimStore {
    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
    ) -> Result<(), Error> {
        self.call(self.inner.handler_put(id, key, spec)).await
    }

    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error> {
        self.call(self.inner.handler_get(key, version)).await
    }

    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error> {
        self.call(self.inner.handler_list(tenant)).await
    }

    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error> {
        self.call(self.inner.handler_delete(key)).await
    }

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error> {
        self.call(self.inner.type_suspend(key, suspended)).await
    }

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error> {
        let settings = self.planted_settings(settings);
        self.call(self.inner.type_settings_put(key, settings)).await
    }

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error> {
        self.call(self.inner.type_settings_get(key)).await
    }
}

passes_on!(Keys {
    fn key_put(new: NewKey) -> Key;
    fn key_find(id: KeyId) -> Option<Key>;
    fn key_list(tenant: Option<&Tenant>, after: Option<KeyId>, limit: usize) -> Vec<Key>;
    fn key_revoke(tenant: Option<&Tenant>, id: KeyId) -> Option<Key>;
    fn key_rotate(rotate: KeyRotate) -> Option<Key>;
    fn key_touch(ids: Vec<KeyId>) -> ();
    fn key_changed(since: KeyRevision, limit: usize) -> Vec<(KeyRevision, Key)>;
});

passes_on!(Audits {
    fn audit_put(entries: Vec<AuditEntry>, durability: Durability) -> ();
    fn audit_list(list: AuditList) -> AuditPage;
    fn audit_purge(keep: Duration, limit: usize) -> u64;
});

passes_on!(Tenants {
    fn tenant_settings_put(tenant: &Tenant, settings: TenantSettings) -> ();
    fn tenant_settings_get(tenant: &Tenant) -> TenantSettings;
    fn tenant_settings_changed(
        since: TenantRevision,
        limit: usize
    ) -> Vec<(TenantRevision, Tenant, TenantSettings)>;
});

passes_on!(Secrets {
    fn secret_put(secret: SealedSecret) -> SecretInfo;
    fn secret_get(tenant: &Tenant, names: Vec<SecretName>) -> Vec<SealedSecret>;
    fn secret_list(tenant: &Tenant) -> Vec<SecretInfo>;
    fn secret_delete(tenant: &Tenant, name: &SecretName) -> bool;
    fn secret_all(after: Option<(Tenant, SecretName)>, limit: usize) -> Vec<SealedSecret>;
    fn secret_reseal(secrets: Vec<SealedSecret>) -> u64;
});

#[async_trait]
impl Store for SimStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn flush(&self) -> Result<(), Error> {
        self.call(self.inner.flush()).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.call(self.inner.ping()).await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }

    /// Others go on using it.
    async fn close(&self) {}
}
