//! Daemons and their numbers: which are alive, and which ids have been made.

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::id::{JobId, Sysid};
use crate::job::Boot;
use crate::time::Timestamp;

#[async_trait]
pub trait Daemons: Send + Sync {
    /// Reserves the wanted sysid, or a free one, for one lease. Returns a boot number by
    /// `Boot::after`, larger than all before it; durable. `Error::Conflict` if the number is taken
    /// or none is free. Prefers numbers that were never used or have been free the longest. Leases
    /// on the beat of the number's last owner are not renewed by the new owner's beats.
    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error>;

    /// The beat: renews the number for one lease, even an expired one if no other daemon has it,
    /// together with all leases on its beat (`Hold::Beat`), and records the newest id that the
    /// daemon has made. `Error::Conflict` if the number now belongs to another daemon. Returns the
    /// store's time, so that the daemon can correct its clock.
    async fn sysid_renew(&self, renew: SysidRenew) -> Result<Timestamp, Error>;

    /// Frees the number at once; leases on its beat expire with it. Does nothing if it belongs to
    /// another daemon.
    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error>;

    /// A further boot number, by `Boot::after`, for the tokens of a daemon's next claims. Durable.
    async fn boot_next(&self) -> Result<Boot, Error>;

    /// Every sysid whose lease has not expired.
    async fn sysid_list(&self) -> Result<Vec<Sysid>, Error>;

    /// The newest job id that this store knows, from any daemon, including ended and purged jobs as
    /// far as their daemon recorded them.
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
