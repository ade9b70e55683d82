//! The seam to the shared repository of jobs. Verbs of the domain, batches in and batches out;
//! every call is one atomic change or one consistent read.
//!
//! A store decides nothing: verdicts and delays come from the caller, and `state::next` says which
//! changes are allowed. A call that a job's state does not allow changes nothing and says so in its
//! answer. What a store can do beyond the contract it declares in `Capabilities`.
//!
//! **Time is the store's.** Whether a job is due, a lease ran out or a key is outdated is judged
//! by the store's own clock; no call names what time it is. Leases and retentions are durations. A
//! time in a call is data: when a job was created, and when it is to run.
//!
//! The store's clock follows the wall clock. Where that is set, forward or back (`Moment::step`),
//! leases keep what was left of them, jobs that wait for another attempt wait for what was left of
//! that, and a job that is ready stays so. A job that was created ahead of the store's clock and
//! asked for no delay is ready at once.
//!
//! Tenants are separate: where a call names a tenant, jobs of others do not exist for it.
//!
//! | trait | verbs |
//! |---|---|
//! | `Daemons` | reserve a number, keep it, give it back |
//! | `Inserts` | jobs, payloads and keys come in |
//! | `Waits` | which types have jobs that may run |
//! | `Claims` | those jobs are taken under leases |
//! | `Settles` | attempts report |
//! | `Changes` | cancel, rerun, delete, give up, purge |
//! | `Decides` | changes by a pure decision on what is there |
//! | `Reads` | jobs, logs, results, numbers |
//! | `Handlers` | handlers and settings of types |
//! | `SqlStore` | optional: questions in SQL |

mod change;
mod claim;
mod daemon;
mod decide;
mod error;
mod handler;
mod insert;
mod read;
mod settle;
pub mod sql;
mod waiting;

use async_trait::async_trait;

pub use change::{Changed, Changes, EndRequest, GiveUp, Overdue, Requeue};
pub use claim::{Claim, Claimed, Claims, Hold, LeaseRef, Pick, Renew};
pub use daemon::{Daemons, SysidGrant, SysidRenew, SysidReserve};
pub use decide::Decides;
pub use error::{Cause, Error};
pub use handler::Handlers;
pub use insert::{
    Add, Added, IdempotencyKey, IdempotencyRecord, Insert, Inserted, Insertion, Inserts, JournalId,
    JournalMark, Piece,
};
pub use read::{AttemptLog, List, Page, Reads, TypeStats};
pub use settle::{SettleAnswer, Settled, Settlement, Settles};
pub use sql::{SqlAnswer, SqlAsk, SqlStore};
pub use waiting::{ChangedLook, ChangedTypes, NamedLook, NamedTypes, Revision, WaitingType, Waits};

/// Every trait at once, for those who call a store by its own type instead of as `dyn Store`.
pub mod prelude {
    pub use super::{
        Changes, Claims, Daemons, Decides, Handlers, Inserts, Reads, Settles, SqlStore, Store,
        Waits,
    };
}

/// All of it. A caller holds a `dyn Store`; a store implements the traits by area.
#[async_trait]
pub trait Store:
    Daemons + Inserts + Waits + Claims + Settles + Changes + Decides + Reads + Handlers + 'static
{
    fn capabilities(&self) -> Capabilities;

    /// Everything that was answered before is durable when this returns.
    async fn flush(&self) -> Result<(), Error>;

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), Error>;

    /// Returns when another daemon may have changed what waits. Only with `Capabilities::wakes`;
    /// without it, this never returns.
    async fn changed(&self);

    /// Finishes what is under way and lets go of the store. Later calls are `Unavailable`.
    async fn close(&self);

    /// The store's answers to questions in SQL, if it has any.
    fn sql(&self) -> Option<&dyn SqlStore> {
        None
    }
}

/// What a store can do beyond the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// For people and logs, such as `sqlite`.
    pub name: &'static str,
    /// `changed` tells of other daemons' work, so that nobody needs to poll.
    pub wakes: bool,
    /// Several daemons may use it at once.
    pub shared: bool,
    /// It may undo relaxed changes while its daemons live on, as a server does that crashes or
    /// fails over. An embedded store does so only in a power cut, which ends them all.
    pub forgets: bool,
    /// The largest payload that it takes inline.
    pub payload_inline_bytes_max: usize,
}

/// What an answer promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk when the call returns.
    Synced,
    /// Survives the end of the process, and a power cut only after the next synced change. See
    /// also `Capabilities::forgets`.
    Relaxed,
}
