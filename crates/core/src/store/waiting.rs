//! Which types can give a job, asked for in bounded pages.
//!
//! A type is **open** when a claim would get a job of it: it has jobs that may run now (due, not
//! leased, not hidden), it is not suspended, and fewer of its jobs run than its `concurrency`
//! allows. Each time a type opens, and each time the handler, the settings or the suspension of an
//! open type change, it gets a new **revision**, larger than all before it. So a daemon asks only
//! for what changed since it last asked, and pays nothing for the types that did not.

use async_trait::async_trait;

use super::Error;
use crate::handler::{HandlerId, TypeSettings};
use crate::name::{Tenant, TypeKey, TypeName};
use crate::time::Timestamp;

/// A store may tell of a type more often than it must: a new revision says that something may
/// have changed, not what.
#[async_trait]
pub trait Waits: Send + Sync {
    /// Types that are open and whose revision is above `since`, by revision, at most `limit`: those
    /// with a handler or those without, which are two lists. Of each tenant it tells at most
    /// `each`, so that one that has very many does not delay others; tenants of which there are
    /// more are named in `cut`. Without `since`, no types: only where the revisions and the clock
    /// stand. A store looks at a bounded number of types in one call, whether it tells of them or
    /// not. Everything that is due is ready by then. Where very many jobs come due at once, a store
    /// may make them ready step by step, those that are due the longest first; then `next_due_at`
    /// has passed, and the caller looks again.
    async fn type_changed(&self, look: ChangedLook) -> Result<ChangedTypes, Error>;

    /// The first open types with a handler of each tenant behind `after`: at most `each` of a
    /// tenant, tenants and types in the order of their names, until there are `limit` or more. A page never ends in the middle of a tenant, so the next one begins behind its
    /// last; a page of fewer than `limit` is the last one.
    async fn type_first(
        &self,
        after: Option<Tenant>,
        each: usize,
        limit: usize,
    ) -> Result<Vec<WaitingType>, Error>;

    /// The next open types with a handler of these tenants: at most `each` of a tenant, in the
    /// order of their names, from behind a name on.
    async fn type_next(
        &self,
        of: Vec<(Tenant, Option<TypeName>)>,
        each: usize,
    ) -> Result<Vec<WaitingType>, Error>;

    /// Open types of one tenant by name, with or without a handler.
    async fn type_named(&self, look: NamedLook) -> Result<NamedTypes, Error>;
}

/// Numbers the changes of what waits.
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
    /// Tenants that have more changed types up to `up_to` than were told.
    pub cut: Vec<Tenant>,
    /// Every other change up to this one has been told.
    pub up_to: Revision,
    /// The newest change of any type.
    pub newest: Revision,
    /// There are more changes behind it.
    pub more: bool,
    /// When the next deferred job of any type comes due.
    pub next_due_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NamedLook {
    pub tenant: Tenant,
    /// Globs, as `glob` reads them. One without special characters is a name, found at once.
    pub names: Vec<String>,
    /// Types that match other globs are looked for behind this one, in the order of names.
    pub after: Option<TypeName>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NamedTypes {
    /// First those that were asked for by name.
    pub types: Vec<WaitingType>,
    /// Behind which name the search goes on: a store looks at a bounded number of types in one
    /// call, whether they match or not. `None` when it has come to the end.
    pub next: Option<TypeName>,
    /// A type that was asked for has jobs, and its `concurrency` keeps them; or that may be,
    /// because the tenant has very many types with a limit.
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
