//! The faults of a cluster: what each is, and how it is done and undone.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::process::Signal;
use windlass_proof::history::{FaultKind, Target};

use super::patroni::{Patroni, TTL};
use super::probe::{Gap, Probes};
use super::single::Single;
use crate::daemon::LEASE;
use crate::fault::Injector;
use crate::site::Site;

/// After this, everything acknowledges again, or something is wrong.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(120);
/// How long a database refuses, or has no room.
const REFUSAL: Duration = Duration::from_secs(8);
/// How long a server stands still, if nothing replaces it.
const FREEZE: Duration = Duration::from_secs(30);
/// How long a primary stands still or is cut off: until another one has its place, and longer.
const ABSENCE: Duration = TTL.saturating_mul(2);
/// How long a machine is away with its daemon.
const MACHINE_AWAY: Duration = Duration::from_secs(15);
/// Of a daemon that is killed, until it is started again.
const DAEMON_DOWN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// One server: a process of one connection is killed, so the server restarts and forgets.
    Backend,
    /// One server: a daemon is killed and started again.
    Daemon,
    /// One server: a daemon stands still for longer than its lease.
    DaemonStop,
    /// One server: a daemon's machine is gone for a while, with its journal.
    Machine,
    /// One server: it is stopped in order and started again.
    Restart,
    /// One server: it is killed and started again.
    Server,
    /// One server: it stands still for 30 seconds.
    Slow,
    /// One server: the database is read-only for a while.
    ReadOnly,
    /// One server: it has no connection to spare for a while.
    Connections,
    /// One server: its disk is full for a while.
    DiskFull,
    /// One server: a transaction stays open for the rest of the run.
    OpenTransaction,
    /// Patroni: the primary and its Patroni are killed.
    Primary,
    /// Patroni: a standby and its Patroni are killed.
    Standby,
    /// Patroni: the leader of etcd is killed.
    Etcd,
    /// Patroni: the primary and its Patroni stand still for longer than their time to live.
    PrimaryStop,
    /// Patroni: the primary's machine is cut off from everything and lives on.
    Cut,
    /// Patroni: the primary's machine is cut off from the other members; daemons reach all of them.
    CutPeers,
}

impl Fault {
    pub(crate) fn is_of_patroni(self) -> bool {
        use Fault::{Cut, CutPeers, Etcd, Primary, PrimaryStop, Standby};
        matches!(self, Primary | Standby | Etcd | PrimaryStop | Cut | CutPeers)
    }

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |it| it.get_name().to_owned())
    }
}

/// What the daemons use as their store.
pub(crate) enum Database {
    Single(Single),
    Patroni(Patroni),
}

impl Database {
    pub(crate) fn url(&self) -> String {
        match self {
            Database::Single(single) => single.url(),
            Database::Patroni(patroni) => patroni.url(),
        }
    }
}

/// Carries out faults, one after the other.
pub(crate) struct Round<'r, 'a> {
    pub(crate) site: &'a Site,
    pub(crate) injector: &'r mut Injector<'a>,
    pub(crate) database: &'r mut Database,
    pub(crate) probes: &'r Probes<'a>,
}

impl Round<'_, '_> {
    /// Returns how long nothing was acknowledged.
    pub(crate) fn carry_out(&mut self, fault: Fault, draw: u64) -> Result<Gap> {
        let daemon = draw as usize % self.site.daemon_count();
        let of_daemon = Target::Daemon(self.site.daemon_name(daemon).to_owned());
        let (kind, target) = match fault {
            Fault::Daemon | Fault::Machine => (FaultKind::Kill, of_daemon),
            Fault::DaemonStop => (FaultKind::Stop, of_daemon),
            Fault::Restart
            | Fault::Slow
            | Fault::ReadOnly
            | Fault::Connections
            | Fault::Standby
            | Fault::Etcd
            | Fault::OpenTransaction => (FaultKind::StoreHang, Target::All),
            // A server without room for its log ends like one that was killed.
            Fault::DiskFull
            | Fault::Backend
            | Fault::Server
            | Fault::Primary
            | Fault::PrimaryStop
            | Fault::Cut
            | Fault::CutPeers => (FaultKind::StoreForgets, Target::All),
        };
        let number = self.injector.began(kind, target)?;
        // A server that forgets was away, too.
        let away = match kind {
            FaultKind::StoreForgets => {
                Some(self.injector.began(FaultKind::StoreHang, Target::All)?)
            }
            _ => None,
        };
        let from = self.site.now_ns();
        match self.database {
            _ if matches!(fault, Fault::Daemon | Fault::DaemonStop | Fault::Machine) => {
                self.of_daemon(fault, daemon)?;
            }
            Database::Single(_) => self.of_single(fault, draw)?,
            Database::Patroni(_) => self.of_patroni(fault, draw)?,
        }
        self.recover(&fault.name(), self.site.now_ns());
        self.injector.watch()?;
        away.map_or(Ok(()), |away| self.injector.ended(away))?;
        self.injector.ended(number)?;
        Ok(self.probes.gap(from))
    }

    fn of_daemon(&mut self, fault: Fault, daemon: usize) -> Result<()> {
        if fault == Fault::DaemonStop {
            self.injector.daemons[daemon].signal(Signal::STOP);
            std::thread::sleep(LEASE * 2);
            self.injector.daemons[daemon].signal(Signal::CONT);
            return Ok(());
        }
        self.injector.kill(daemon)?;
        std::thread::sleep(if fault == Fault::Machine { MACHINE_AWAY } else { DAEMON_DOWN });
        self.injector.start(daemon)
    }

    fn of_single(&mut self, fault: Fault, draw: u64) -> Result<()> {
        let Database::Single(single) = self.database else { bail!("{fault:?} needs one server") };
        match fault {
            Fault::Backend => single.kill_backend(draw),
            Fault::Server => single.kill(),
            Fault::Restart => single.restart(),
            Fault::Slow => {
                single.freeze()?;
                std::thread::sleep(FREEZE);
                single.thaw()
            }
            Fault::ReadOnly => {
                single.forbid_writes()?;
                std::thread::sleep(REFUSAL);
                single.allow_writes()
            }
            Fault::Connections => {
                single.refuse_connections()?;
                std::thread::sleep(REFUSAL);
                single.admit_connections()
            }
            Fault::DiskFull => {
                single.fill_disk()?;
                std::thread::sleep(REFUSAL);
                single.free_disk()
            }
            Fault::OpenTransaction => single.open_transaction(),
            _ => bail!("{fault:?} needs Patroni"),
        }
    }

    fn of_patroni(&mut self, fault: Fault, draw: u64) -> Result<()> {
        let Database::Patroni(patroni) = &*self.database else { bail!("{fault:?} needs Patroni") };
        let primary = patroni.until_healthy()?;
        let member = match fault {
            Fault::Standby => patroni.standby(draw)?,
            Fault::Etcd => patroni.etcd_leader()?,
            _ => primary,
        };
        match fault {
            Fault::Primary | Fault::Standby => patroni.kill_member(member)?,
            Fault::Etcd => patroni.kill_etcd(member)?,
            Fault::PrimaryStop => patroni.freeze(member)?,
            Fault::Cut => patroni.cut_off(member)?,
            Fault::CutPeers => patroni.isolate(member)?,
            _ => bail!("{fault:?} needs one server"),
        }
        let since = self.site.now_ns();
        self.recover(&format!("{} (before it was undone)", fault.name()), since);
        if matches!(fault, Fault::PrimaryStop | Fault::Cut | Fault::CutPeers) {
            let passed = Duration::from_nanos(self.site.now_ns() - since);
            std::thread::sleep(ABSENCE.saturating_sub(passed));
        }
        let Database::Patroni(patroni) = &*self.database else { bail!("it was Patroni") };
        match fault {
            Fault::Primary | Fault::Standby => patroni.start_again(member)?,
            Fault::Etcd => patroni.start_etcd_again(member)?,
            Fault::PrimaryStop => patroni.thaw(member)?,
            Fault::Cut => patroni.reconnect(member)?,
            _ => patroni.join(member)?,
        }
        patroni.until_healthy().with_context(|| format!("after {}", fault.name()))?;
        Ok(())
    }

    /// Waits until every daemon acknowledges again; notes it if that takes too long.
    fn recover(&mut self, from: &str, since_ns: u64) {
        if !self.probes.until_acknowledged(since_ns, RECOVERY_TIME_MAX) {
            let limit = RECOVERY_TIME_MAX.as_secs();
            let problem = format!("a daemon stored nothing for {limit} s during or after {from}");
            self.injector.done.problems.push(problem);
        }
    }
}
