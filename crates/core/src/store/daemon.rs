//! Daemons and their numbers: who is alive, and which ids have been made.

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::id::{JobId, Sysid};
use crate::job::Boot;
use crate::time::Timestamp;

#[async_trait]
pub trait Daemons: Send + Sync {
    /// Takes the wanted sysid, or a free one, for one lease. Every success returns a boot number
    /// by `Boot::after`, larger than all before it, and is durable. Taken or none free:
    /// `Error::Conflict`. Prefers numbers that were never used or that have been free the longest.
    /// Leases that were on the beat of the number's last owner do not move with the new one's.
    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error>;

    /// The beat: prolongs the number by one lease, also one that has run out if it was not given
    /// to another daemon, with all leases that last as long as it (`Hold::Beat`), and notes the
    /// newest id that the daemon has made. `Error::Conflict` when the number is another's now.
    /// Answers with the store's time, so that a daemon whose clock is not right can correct for it.
    async fn sysid_renew(&self, renew: SysidRenew) -> Result<Timestamp, Error>;

    /// Frees the number at once; leases on its beat have run out then. Harmless when it is
    /// another's by now.
    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error>;

    /// A further boot number, by `Boot::after`, for the tokens of a daemon's next claims. Durable.
    async fn boot_next(&self) -> Result<Boot, Error>;

    /// Every sysid whose lease has not run out.
    async fn sysid_list(&self) -> Result<Vec<Sysid>, Error>;

    /// The newest job id that this store knows of, from any daemon, including ended and purged
    /// jobs as far as their daemon noted them.
    async fn id_newest(&self) -> Result<Option<JobId>, Error>;
}

#[derive(Debug, Clone)]
pub struct SysidReserve {
    pub wanted: Option<Sysid>,
    pub lease: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SysidGrant {
    pub sysid: Sysid,
    pub boot: Boot,
}

#[derive(Debug, Clone)]
pub struct SysidRenew {
    pub grant: SysidGrant,
    pub lease: Duration,
    pub id_newest: Option<JobId>,
}
