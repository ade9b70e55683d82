//! The interface to the shared repository of jobs: verbs of the domain, in batches. Every call is
//! one atomic change or one consistent read.
//!
//! A store decides nothing: verdicts and delays come from the caller, and `state::next` defines
//! which changes are allowed. A call that a job's state does not allow changes nothing and says so
//! in its answer. A store declares what it can do beyond the contract in `Capabilities`.
//!
//! **Time is the store's.** Whether a job is due or a lease or a key has expired is judged by the
//! store's own clock; no call passes the current time. Leases and retentions are durations. A time
//! in a call is data: when a job was created, and when it is due.
//!
//! The store's clock follows the wall clock. If that is set, forward or back (`Moment::step`),
//! leases and delays of retries keep their remaining time, and a ready job stays ready. A job that
//! was created ahead of the store's clock without a delay is ready at once.
//!
//! **Durability.** `job_insert`, `job_settle`, `job_decide` and `audit_put` take a `Durability`.
//! Other changes on behalf of clients, numbers of daemons and boot numbers are durable when the
//! call returns. Claims, takes, renewals, beats, released numbers, progress, pieces of payloads,
//! give-ups, purges and the times of use of keys are relaxed: a store may forget them until its
//! next synced change, and each can be done again.
//!
//! **Damage.** A job that cannot be read is `Error::Corrupt` for calls about that job or its
//! family, and does not affect calls about others.
//!
//! Tenants are separate: for a call that names a tenant, jobs of others do not exist.
//!
//! | trait | verbs |
//! |---|---|
//! | `Daemons` | reserve a number, keep it, give it back; what daemons say of themselves |
//! | `Inserts` | insert jobs, payloads and keys |
//! | `Waits` | which types have jobs that may run |
//! | `Claims` | claim those jobs, renew leases |
//! | `Settles` | settle attempts, record progress |
//! | `Changes` | cancel, rerun, delete, give up, purge |
//! | `Decides` | change jobs by a pure decision |
//! | `Reads` | read jobs, logs, results, counts |
//! | `Handlers` | handlers and settings of types |
//! | `Keys` | API keys |
//! | `Audits` | the audit |
//! | `Secrets` | sealed secrets of handlers |
//! | `Tenants` | settings of tenants |
//! | `SqlStore` | optional: SQL queries |

mod audit;
mod change;
mod claim;
mod daemon;
mod decide;
mod error;
mod handler;
mod insert;
mod key;
mod read;
mod secret;
mod settle;
pub mod sql;
mod tenant;
mod waiting;

use async_trait::async_trait;

pub use audit::{AuditList, AuditPage, Audits};
pub use change::{Changed, Changes, EndRequest, GiveUp, Overdue, Requeue};
pub use claim::{Claim, ClaimAnswer, Claimed, Claims, Hold, LeaseRef, Pick, Renew, Rest};
pub use daemon::{
    Backlog, DaemonRecord, DaemonReport, Daemons, SysidGrant, SysidRenew, SysidReserve,
};
pub use decide::Decides;
pub use error::{Cause, Error};
pub use handler::Handlers;
pub use insert::{
    Add, Added, IdempotencyKey, IdempotencyRecord, Insert, Inserted, Insertion, Inserts, JournalId,
    JournalMark, Piece,
};
pub use key::{KeyReplacement, KeyRevision, KeyRotate, Keys};
pub use read::{AttemptLog, List, Page, Reads, TypeStats, TypedJob};
pub use secret::Secrets;
pub use settle::{SettleAnswer, Settled, Settlement, Settles};
pub use sql::{SqlAnswer, SqlAsk, SqlStore};
pub use tenant::{TenantRevision, Tenants};
pub use waiting::{ChangedLook, ChangedTypes, NamedLook, NamedTypes, Revision, WaitingType, Waits};

/// All traits, for callers that use a store by its concrete type instead of as `dyn Store`.
pub mod prelude {
    pub use super::{
        Audits, Changes, Claims, Daemons, Decides, Handlers, Inserts, Keys, Reads, Secrets,
        Settles, SqlStore, Store, Tenants, Waits,
    };
}

/// The whole contract. A caller holds a `dyn Store`; a store implements the traits by area.
#[async_trait]
pub trait Store:
    'static
    + Daemons
    + Inserts
    + Waits
    + Claims
    + Settles
    + Changes
    + Decides
    + Reads
    + Handlers
    + Keys
    + Audits
    + Secrets
    + Tenants
{
    fn capabilities(&self) -> Capabilities;

    /// Makes everything that was answered before durable.
    async fn flush(&self) -> Result<(), Error>;

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), Error>;

    /// Returns when another daemon may have changed waiting jobs. Never returns without
    /// `Capabilities::wakes`.
    async fn changed(&self);

    /// Finishes the calls under way and closes the store. Later calls are `Unavailable`.
    async fn close(&self);

    /// The store's SQL interface, if it has one.
    fn sql(&self) -> Option<&dyn SqlStore> {
        None
    }
}

/// What a store can do beyond the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// For people and logs, such as `sqlite`.
    pub name: &'static str,
    /// `changed` reports other daemons' work, so no polling is needed.
    pub wakes: bool,
    /// Several daemons may use it at once.
    pub shared: bool,
    /// It may undo relaxed changes while its daemons live on, like a server that crashes or fails
    /// over. An embedded store does so only in a power cut, which ends its daemons too.
    pub forgets: bool,
    /// The largest inline payload.
    pub payload_inline_bytes_max: usize,
}

/// What the answer of a change promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk when the call returns.
    Synced,
    /// Survives the end of the process; survives a power cut only after the next synced change. See
    /// also `Capabilities::forgets`.
    Relaxed,
}
