//! Daemons and their numbers: which are alive, which ids have been made, and what each says of
//! itself with its beats.

use std::time::Duration;

use async_trait::async_trait;

use super::{Error, JournalId};
use crate::id::{JobId, Sysid};
use crate::job::Boot;
use crate::limit::{DAEMON_LAYERS_MAX, DAEMON_TEXT_BYTES_MAX};
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
    /// daemon has made and what it says of itself. `Error::Conflict` if the number now belongs to
    /// another daemon. Returns the store's time, so that the daemon can correct its clock.
    async fn sysid_renew(&self, renew: SysidRenew) -> Result<Timestamp, Error>;

    /// Frees the number at once; leases on its beat expire with it. Does nothing if it belongs to
    /// another daemon.
    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error>;

    /// A further boot number, by `Boot::after`, for the tokens of a daemon's next claims. Durable.
    async fn boot_next(&self) -> Result<Boot, Error>;

    /// Every sysid whose lease has not expired.
    async fn sysid_list(&self) -> Result<Vec<Sysid>, Error>;

    /// Daemons that have reported their state, by number and journal, behind `after`: those
    /// whose beat lasts, and those that are gone. One that gave its number back is not among them,
    /// unless its journal has jobs left. Others that are gone are forgotten when a number is
    /// reserved: those whose journal has no jobs left after `DAEMON_GONE_RETENTION`, and all after
    /// `DAEMON_LEFT_RETENTION`.
    async fn daemon_list(
        &self,
        after: Option<JournalId>,
        limit: usize,
    ) -> Result<Vec<DaemonRecord>, Error>;

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
    pub report: Option<DaemonReport>,
}

/// What a daemon says of itself with a beat. A store keeps it as it is, one for each journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonReport {
    /// Its own journal.
    pub journal: JournalId,
    /// The name of its machine.
    pub host: String,
    pub version: String,
    /// The address where it serves clients; empty if there is none.
    pub listen: String,
    pub started_at: Timestamp,
    /// Whether it picks jobs.
    pub picking: bool,
    /// Jobs that run in it.
    pub running: u64,
    pub backlog: Backlog,
    /// Layers of isolation that its handlers lack, a sentence for each.
    pub layers_missing: Vec<String>,
}

impl DaemonReport {
    /// The same with its texts cut to a bounded size.
    pub fn within_limits(mut self) -> DaemonReport {
        self.layers_missing.truncate(DAEMON_LAYERS_MAX);
        let texts = [&mut self.host, &mut self.version, &mut self.listen];
        for text in texts.into_iter().chain(&mut self.layers_missing) {
            text.truncate(text.floor_char_boundary(DAEMON_TEXT_BYTES_MAX));
        }
        self
    }
}

/// The jobs of a daemon's journal that were not in the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    pub jobs: u64,
    pub bytes: u64,
    pub oldest: Option<JobId>,
    pub newest: Option<JobId>,
}

/// A daemon as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonRecord {
    pub grant: SysidGrant,
    pub beat_at: Timestamp,
    /// Its beat lasts: no other daemon has or may take its number.
    pub alive: bool,
    /// How far the store has its journal.
    pub position: Option<JobId>,
    pub report: DaemonReport,
}

impl DaemonRecord {
    /// Jobs that were in its journal at its last beat and that the store does not have, at most.
    /// What it accepted after that beat is not known here.
    pub fn left(&self) -> u64 {
        let newest = self.report.backlog.newest;
        if newest.is_none_or(|newest| Some(newest) <= self.position) {
            return 0;
        }
        self.report.backlog.jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> DaemonReport {
        DaemonReport {
            journal: JournalId(1),
            host: "é".repeat(DAEMON_TEXT_BYTES_MAX),
            version: "1".into(),
            listen: "x".repeat(DAEMON_TEXT_BYTES_MAX + 1),
            started_at: Timestamp(0),
            picking: true,
            running: 0,
            backlog: Backlog::default(),
            layers_missing: vec!["y".repeat(10_000); DAEMON_LAYERS_MAX + 1],
        }
    }

    #[test]
    fn a_report_is_cut_to_its_limits_and_stays_text() {
        let cut = report().within_limits();
        assert_eq!(cut.host, "é".repeat(DAEMON_TEXT_BYTES_MAX / 2));
        assert_eq!((cut.version.as_str(), cut.listen.len()), ("1", DAEMON_TEXT_BYTES_MAX));
        assert_eq!(cut.layers_missing.len(), DAEMON_LAYERS_MAX);
        assert!(cut.layers_missing.iter().all(|text| text.len() == DAEMON_TEXT_BYTES_MAX));
        assert_eq!(cut.clone().within_limits(), cut);
    }

    #[test]
    fn jobs_are_left_until_the_store_has_the_newest_known_one() {
        let id = |number| JobId::new(number).unwrap();
        let grant = SysidGrant { sysid: Sysid::new(1).unwrap(), boot: Boot(1) };
        let left = |jobs, newest, position| {
            let backlog = Backlog { jobs, newest, ..Backlog::default() };
            let report = DaemonReport { backlog, ..report() };
            let beat_at = Timestamp(0);
            DaemonRecord { grant, beat_at, alive: false, position, report }.left()
        };
        assert_eq!(left(0, None, None), 0);
        assert_eq!(left(3, Some(id(9)), None), 3);
        assert_eq!(left(3, Some(id(9)), Some(id(8))), 3, "how many of them is not known");
        assert_eq!(left(3, Some(id(9)), Some(id(9))), 0);
        assert_eq!(left(3, Some(id(9)), Some(id(10))), 0);
    }
}
