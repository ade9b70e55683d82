//! Which types have jobs to claim, in bounded pages.
//!
//! A type is **open** when a claim would get a job of it: it has jobs that may run now (due, not
//! leased, not hidden, not expired), it is not suspended, and fewer of its jobs run than its
//! `concurrency` allows. A store may count an expired job among these until a claim has skipped it
//! or it is given up. Each time a type opens, and each time the handler, the settings or the
//! suspension of an open type change, it gets a new **revision**, larger than all before it. So a
//! daemon asks only for changes since its last look, and other types cost nothing.

use async_trait::async_trait;

use super::Error;
use crate::handler::{HandlerId, TypeSettings};
use crate::name::{Tenant, TypeKey, TypeName};
use crate::time::Timestamp;

/// A store may report a type more often than necessary: a new revision means that something may
/// have changed.
#[async_trait]
pub trait Waits: Send + Sync {
    /// Open types whose revision is above `since`, by revision, at most `limit`: either those with
    /// a handler or those without. At most `each` types of a tenant are reported, so that a tenant
    /// with very many does not delay others; tenants with more are named in `cut`. Without `since`,
    /// no types: only the current revision and due time. A store looks at a bounded number of types
    /// in one call, whether it reports them or not. Due jobs become ready first. If very many jobs
    /// come due at once, a store may make them ready step by step, longest due first; then
    /// `next_due_at` has passed, and the caller looks again.
    async fn type_changed(&self, look: ChangedLook) -> Result<ChangedTypes, Error>;

    /// The first open types with a handler of each tenant after `after`: at most `each` of a
    /// tenant, tenants and types sorted by name, until there are `limit` or more. A page never ends
    /// in the middle of a tenant, so the next one begins after its last tenant; a page with fewer
    /// than `limit` is the last one. Unlike `type_changed`, this and `type_next` need not make due
    /// jobs ready first.
    async fn type_first(
        &self,
        after: Option<Tenant>,
        each: usize,
        limit: usize,
    ) -> Result<Vec<WaitingType>, Error>;

    /// The next open types with a handler of these tenants, each after a name: at most `each` of a
    /// tenant, sorted by name.
    async fn type_next(
        &self,
        of: Vec<(Tenant, Option<TypeName>)>,
        each: usize,
    ) -> Result<Vec<WaitingType>, Error>;

    /// Open types of one tenant by name, with or without a handler.
    async fn type_named(&self, look: NamedLook) -> Result<NamedTypes, Error>;

    /// Those of these types that have no handler, in the same order.
    async fn type_unhandled(&self, keys: Vec<TypeKey>) -> Result<Vec<TypeKey>, Error>;
}

/// The number of a change to waiting types.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

#[derive(Debug, Clone, Copy)]
pub struct ChangedLook {
    pub since: Option<Revision>,
    /// Types with a handler, or types without.
    pub handled: bool,
    /// Types of one tenant.
    pub each: usize,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChangedTypes {
    pub types: Vec<WaitingType>,
    /// Tenants that have more changed types up to `up_to` than were reported.
    pub cut: Vec<Tenant>,
    /// All other changes up to this one have been reported.
    pub up_to: Revision,
    /// The newest change of any type.
    pub newest: Revision,
    /// There are more changes after `up_to`.
    pub more: bool,
    /// When the next deferred job of any type comes due.
    pub next_due_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NamedLook {
    pub tenant: Tenant,
    /// Patterns as in `glob`. One without special characters is a name, found by lookup.
    pub names: Vec<String>,
    /// Types that match other patterns are searched after this name, in order of names.
    pub after: Option<TypeName>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NamedTypes {
    /// Types that were asked for by name come first.
    pub types: Vec<WaitingType>,
    /// The name after which the search continues: a store looks at a bounded number of types in one
    /// call, whether they match or not. `None` at the end.
    pub next: Option<TypeName>,
    /// A matching type has jobs that its `concurrency` holds back, or may have, because the tenant
    /// has very many types with a limit.
    pub full: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct WaitingType {
    pub key: TypeKey,
    /// How many jobs a claim would get.
    pub ready: u64,
    /// The handler version in force.
    pub handler: Option<HandlerId>,
    pub settings: TypeSettings,
    pub revision: Revision,
}
