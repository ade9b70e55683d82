//! Daemons take their numbers.

use crate::id::{JobId, Sysid};
use crate::job::Boot;
use crate::limit::SYSID_MAX;
use crate::store::{Error, SysidGrant, SysidRenew, SysidReserve};
use crate::time::Timestamp;

use super::State;

/// One number that is or was somebody's.
#[derive(Debug)]
pub(super) struct SysidRow {
    boot: Boot,
    /// `None` when it was given back.
    until: Option<Timestamp>,
    free_since: Timestamp,
    id_newest: Option<JobId>,
}

impl State {
    pub(super) fn sysid_reserve(&mut self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        let sysid = match reserve.wanted {
            Some(wanted) if self.is_free(wanted, reserve.now) => wanted,
            Some(wanted) => return Err(Error::Conflict(format!("sysid {wanted} is taken"))),
            None => self.freest(reserve.now).ok_or_else(|| {
                Error::Conflict(format!("all {SYSID_MAX} sysids of this store are taken"))
            })?,
        };
        self.boot_newest += 1;
        let boot = Boot(self.boot_newest);
        let id_newest = self.sysids.get(&sysid).and_then(|row| row.id_newest);
        let (until, free_since) = (Some(reserve.until), reserve.until);
        self.sysids.insert(sysid, SysidRow { boot, until, free_since, id_newest });
        Ok(SysidGrant { sysid, boot })
    }

    pub(super) fn sysid_renew(&mut self, renew: SysidRenew) -> Result<(), Error> {
        let SysidGrant { sysid, boot } = renew.grant;
        match self.sysids.get_mut(&sysid).filter(|row| row.boot == boot) {
            None => Err(Error::Conflict(format!("sysid {sysid} is another daemon's now"))),
            Some(row) => {
                row.until = Some(renew.until);
                row.free_since = renew.until;
                row.id_newest = row.id_newest.max(renew.id_newest);
                Ok(())
            }
        }
    }

    pub(super) fn sysid_release(&mut self, sysid: Sysid, boot: Boot) {
        let heard = self.heard;
        if let Some(row) = self.sysids.get_mut(&sysid).filter(|row| row.boot == boot) {
            row.until = None;
            row.free_since = row.free_since.min(heard);
        }
    }

    pub(super) fn sysid_list(&self, now: Timestamp) -> Vec<Sysid> {
        self.sysids.keys().copied().filter(|sysid| !self.is_free(*sysid, now)).collect()
    }

    pub(super) fn id_newest(&self) -> Option<JobId> {
        let noted = self.sysids.values().filter_map(|row| row.id_newest);
        self.jobs.keys().copied().chain(self.marks.values().copied()).chain(noted).max()
    }

    fn is_free(&self, sysid: Sysid, now: Timestamp) -> bool {
        self.sysids.get(&sysid).and_then(|row| row.until).is_none_or(|until| until <= now)
    }

    /// A number that was never used, or the one that has been free the longest.
    fn freest(&self, now: Timestamp) -> Option<Sysid> {
        let free = (1..=SYSID_MAX).filter_map(Sysid::new).filter(|sysid| self.is_free(*sysid, now));
        free.min_by_key(|sysid| self.sysids.get(sysid).map(|row| row.free_since))
    }
}
