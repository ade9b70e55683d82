//! The numbers of daemons.

use crate::id::{JobId, Sysid};
use crate::job::{Boot, Lease};
use crate::limit::SYSID_MAX;
use crate::store::{Error, SysidGrant, SysidRenew, SysidReserve};
use crate::time::Timestamp;

use super::State;

/// A number that is or was reserved.
#[derive(Debug, Clone)]
pub(super) struct SysidRow {
    boot: Boot,
    /// `None` when it was released.
    until: Option<Timestamp>,
    free_since: Timestamp,
    id_newest: Option<JobId>,
}

impl SysidRow {
    /// Shifts its times after the clock was set.
    pub(super) fn shift(&mut self, step: i64) {
        self.until = self.until.map(|until| until.shifted(step));
        self.free_since = self.free_since.shifted(step);
    }
}

impl State {
    pub(super) fn sysid_reserve(&mut self, reserve: SysidReserve) -> Result<SysidGrant, Error> {
        let sysid = match reserve.wanted {
            Some(wanted) if self.is_free(wanted) => wanted,
            Some(wanted) => return Err(Error::Conflict(format!("sysid {wanted} is taken"))),
            None => self.freest().ok_or_else(|| {
                Error::Conflict(format!("all {SYSID_MAX} sysids of this store are taken"))
            })?,
        };
        let boot = self.boot_next();
        // The last owner's leases have expired with it, and stay expired.
        self.on_beat_of(sysid).for_each(|lease| lease.on_beat = false);
        let id_newest = self.sysids.get(&sysid).and_then(|row| row.id_newest);
        let until = self.now + reserve.lease;
        let row = SysidRow { boot, until: Some(until), free_since: until, id_newest };
        self.sysids.insert(sysid, row);
        self.daemons_forget();
        Ok(SysidGrant { sysid, boot })
    }

    pub(super) fn boot_next(&mut self) -> Boot {
        self.boot_newest = Boot::after(self.boot_newest, self.now);
        self.boot_newest
    }

    pub(super) fn sysid_renew(&mut self, renew: SysidRenew) -> Result<Timestamp, Error> {
        let SysidGrant { sysid, boot } = renew.grant;
        let until = self.now + renew.lease;
        let row = self.sysids.get_mut(&sysid).filter(|row| row.boot == boot);
        let row = row.ok_or_else(|| not_yours(sysid))?;
        (row.until, row.free_since) = (Some(until), until);
        row.id_newest = row.id_newest.max(renew.id_newest);
        self.on_beat_of(sysid).for_each(|lease| lease.expires_at = until);
        if let Some(report) = renew.report {
            self.daemon_put(renew.grant, report);
        }
        Ok(self.now)
    }

    /// When leases on the beat of this number expire, if it still belongs to this boot and has not
    /// run out.
    pub(super) fn beat_until(&self, sysid: Sysid, boot: Boot) -> Result<Timestamp, Error> {
        let row = self.sysids.get(&sysid).filter(|row| row.boot == boot);
        match row.and_then(|row| row.until) {
            None => Err(not_yours(sysid)),
            Some(until) if until <= self.now => {
                let why = format!("sysid {sysid} has run out and was not renewed yet");
                Err(Error::Unavailable(why.into()))
            }
            Some(until) => Ok(until),
        }
    }

    fn on_beat_of(&mut self, sysid: Sysid) -> impl Iterator<Item = &mut Lease> {
        let leases = self.jobs.values_mut().filter_map(|row| row.job.lease.as_mut());
        leases.filter(move |lease| lease.owner == sysid && lease.on_beat)
    }

    pub(super) fn sysid_release(&mut self, sysid: Sysid, boot: Boot) {
        let now = self.now;
        if let Some(row) = self.sysids.get_mut(&sysid).filter(|row| row.boot == boot) {
            row.until = None;
            row.free_since = row.free_since.min(now);
            let ended_at = row.free_since;
            self.on_beat_of(sysid).for_each(|lease| lease.expires_at = ended_at);
            self.daemon_left(SysidGrant { sysid, boot });
        }
    }

    pub(super) fn sysid_list(&self) -> Vec<Sysid> {
        self.sysids.keys().copied().filter(|sysid| !self.is_free(*sysid)).collect()
    }

    pub(super) fn id_newest(&self) -> Option<JobId> {
        let noted = self.sysids.values().filter_map(|row| row.id_newest);
        self.jobs.keys().copied().chain(self.marks.values().copied()).chain(noted).max()
    }

    fn is_free(&self, sysid: Sysid) -> bool {
        self.sysids.get(&sysid).and_then(|row| row.until).is_none_or(|until| until <= self.now)
    }

    /// Whether the number belongs to this boot and has not run out.
    pub(super) fn is_alive(&self, grant: SysidGrant) -> bool {
        let row = self.sysids.get(&grant.sysid).filter(|row| row.boot == grant.boot);
        row.and_then(|row| row.until).is_some_and(|until| until > self.now)
    }

    /// A number that was never used, or the one that has been free the longest.
    fn freest(&self) -> Option<Sysid> {
        let free = (1..=SYSID_MAX).filter_map(Sysid::new).filter(|sysid| self.is_free(*sysid));
        free.min_by_key(|sysid| self.sysids.get(sysid).map(|row| row.free_since))
    }
}

fn not_yours(sysid: Sysid) -> Error {
    Error::Conflict(format!("sysid {sysid} is another daemon's now"))
}
