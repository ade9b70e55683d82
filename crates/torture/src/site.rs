//! What all parts of a run share: its directory, clock, addresses and phase.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use windlass_proof::history::{Event, FaultKind, Recorder};
use windlass_test_kit::port::free_port;

use crate::clock::{self, Clock};
use crate::daemon::LEASE;
use crate::disk::{self, Disk};

/// Problems that are kept; more of them say no more.
const PROBLEMS_MAX: usize = 20;
/// How long a pause lasts at most before the phase is looked at again.
const NAP: Duration = Duration::from_millis(50);

/// Clients, workers and faults.
const BUSY: u8 = 0;
/// Workers only, until nothing is left to do.
const DRAINING: u8 = 1;
const OVER: u8 = 2;

pub(crate) struct Site {
    pub(crate) seed: u64,
    dir: PathBuf,
    /// Where handlers write their histories.
    handler_dir: PathBuf,
    /// The data directory is on a disk of its own.
    own_disk: bool,
    /// The daemons' clock can be set.
    own_clock: bool,
    /// The URL of the store, if it is on a server; then each daemon has its own data directory.
    store: Option<String>,
    origin_ns: u64,
    daemons: Vec<Place>,
    phase: AtomicU8,
    /// No fault comes, and clients leave types alone.
    calm: AtomicBool,
    ops: AtomicU64,
    /// Faults that are under way.
    faults: AtomicU64,
    /// When the last one ended; 0 if none has.
    fault_ended_ns: AtomicU64,
    /// The admin key of each daemon, as soon as it is ready.
    keys: Mutex<Vec<Option<String>>>,
    problems: Mutex<Vec<String>>,
    pub(crate) tally: Tally,
}

/// Where a daemon listens. It keeps its address when it is started again.
struct Place {
    name: String,
    address: SocketAddr,
    /// Of the Bedrock door.
    bedrock: SocketAddr,
    boots: AtomicU64,
}

/// Figures of the run that its history does not sum up.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) finishes: AtomicU64,
    pub(crate) unknown: AtomicU64,
}

impl Site {
    pub(crate) fn new(seed: u64, dir: &Path, daemons: u32, kinds: &[FaultKind]) -> Result<Site> {
        let place = |number| Place {
            name: format!("daemon-{number}"),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            bedrock: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            boots: AtomicU64::new(0),
        };
        let site = Site {
            seed,
            dir: dir.to_owned(),
            handler_dir: dir.join("history"),
            own_disk: kinds.iter().any(disk::is_needed),
            own_clock: kinds.iter().any(|kind| matches!(kind, FaultKind::ClockStep { .. })),
            store: None,
            origin_ns: monotonic_ns(),
            daemons: (0..daemons).map(place).collect(),
            phase: AtomicU8::new(BUSY),
            calm: AtomicBool::new(false),
            ops: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            fault_ended_ns: AtomicU64::new(0),
            keys: Mutex::new((0..daemons).map(|_| None).collect()),
            problems: Mutex::default(),
            tally: Tally::default(),
        };
        site.create_folders()?;
        Ok(site)
    }

    /// A site whose daemons share nothing but a store on a server.
    pub(crate) fn on_server(seed: u64, dir: &Path, daemons: u32, url: &str) -> Result<Site> {
        let mut site = Site::new(seed, dir, daemons, &[])?;
        site.store = Some(url.to_owned());
        Ok(site)
    }

    /// A site with one daemon below the directory of this one, with the same clock and handlers.
    pub(crate) fn beside(&self, name: &str) -> Result<Site> {
        let mut site = Site::new(self.seed, &self.dir.join(name), 1, &[])?;
        site.handler_dir.clone_from(&self.handler_dir);
        site.origin_ns = self.origin_ns;
        site.daemons[0].name = name.to_owned();
        site.ops = AtomicU64::new(self.ops.load(Ordering::Relaxed));
        site.drain();
        Ok(site)
    }

    fn create_folders(&self) -> Result<()> {
        for folder in [self.history_dir(), self.console_dir()] {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        // In the sandbox, handlers have users of their own.
        fs::set_permissions(self.history_dir(), fs::Permissions::from_mode(0o777))?;
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn handler_dir(&self) -> &Path {
        &self.handler_dir
    }

    /// The files of all witnesses. Handlers may write here.
    pub(crate) fn history_dir(&self) -> PathBuf {
        self.dir.join("history")
    }

    pub(crate) fn console_dir(&self) -> PathBuf {
        self.dir.join("consoles")
    }

    /// What each process of a daemon has printed.
    pub(crate) fn consoles(&self, number: usize) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        for entry in fs::read_dir(self.console_dir().join(self.daemon_name(number)))? {
            let text = fs::read(entry?.path()).unwrap_or_default();
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(texts)
    }

    /// Reads the key that a daemon has written to its data directory.
    pub(crate) fn learn_key(&self, number: usize) -> Result<()> {
        let path = self.data_dir_of(number).join("admin.key");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        self.keys()[number] = Some(text.trim().to_owned());
        Ok(())
    }

    pub(crate) fn key(&self, number: usize) -> Option<String> {
        self.keys()[number].clone()
    }

    fn keys(&self) -> MutexGuard<'_, Vec<Option<String>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        let parent = if self.own_disk { self.disk_dir() } else { self.dir.clone() };
        parent.join("data")
    }

    /// The data directory of a daemon, which others share unless the store is on a server.
    pub(crate) fn data_dir_of(&self, number: usize) -> PathBuf {
        match self.store {
            Some(_) => self.data_dir().join(self.daemon_name(number)),
            None => self.data_dir(),
        }
    }

    /// The URL of a store on a server.
    pub(crate) fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    pub(crate) fn disk(&self, kinds: &[FaultKind]) -> Result<Option<Disk>> {
        self.own_disk.then(|| Disk::new(&self.disk_dir(), kinds)).transpose()
    }

    pub(crate) fn clock(&self) -> Result<Option<Clock>> {
        self.own_clock.then(|| Clock::new(&self.dir)).transpose()
    }

    /// Whether handlers run without the sandbox: a cell keeps the disk in use that the next fault
    /// takes away, and has neither the library that sets clocks nor a way to a server of the run.
    pub(crate) fn has_bare_handlers(&self) -> bool {
        self.own_disk || self.own_clock || self.store.is_some()
    }

    /// What daemons need to see the clock of the run.
    pub(crate) fn clock_environment(&self) -> Vec<(&'static str, PathBuf)> {
        if self.own_clock { clock::environment(&self.dir).to_vec() } else { Vec::new() }
    }

    /// Where the disk of the data directory is mounted, if it has its own.
    fn disk_dir(&self) -> PathBuf {
        self.dir.join("disk")
    }

    /// When the run began, by the clock that handlers can read too.
    pub(crate) fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    pub(crate) fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.origin_ns)
    }

    pub(crate) fn daemon_count(&self) -> usize {
        self.daemons.len()
    }

    pub(crate) fn daemon_name(&self, number: usize) -> &str {
        &self.daemons[number].name
    }

    pub(crate) fn address(&self, number: usize) -> SocketAddr {
        self.daemons[number].address
    }

    pub(crate) fn bedrock(&self, number: usize) -> SocketAddr {
        self.daemons[number].bedrock
    }

    /// Grows when a daemon goes down: connections to an earlier process are dead.
    pub(crate) fn boots(&self, number: usize) -> u64 {
        self.daemons[number].boots.load(Ordering::Acquire)
    }

    pub(crate) fn went_down(&self, number: usize) {
        self.daemons[number].boots.fetch_add(1, Ordering::AcqRel);
    }

    /// A number for a request, unique in the run.
    pub(crate) fn next_op(&self) -> u64 {
        self.ops.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn fault_began(&self) {
        self.faults.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn fault_ended(&self) {
        self.fault_ended_ns.fetch_max(self.now_ns(), Ordering::AcqRel);
        self.faults.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a fault is under way, or one ended after this time or less than a lease before it.
    pub(crate) fn had_fault_since(&self, at_ns: u64) -> bool {
        let ended_ns = self.fault_ended_ns.load(Ordering::Acquire);
        let reach_ns = ended_ns.saturating_add(LEASE.as_nanos() as u64);
        self.faults.load(Ordering::Acquire) > 0 || (ended_ns > 0 && reach_ns >= at_ns)
    }

    /// Notes what no fault explains, and the history does not show.
    pub(crate) fn problem(&self, what: String) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < PROBLEMS_MAX {
            problems.push(what);
        }
    }

    pub(crate) fn take_problems(&self) -> Vec<String> {
        std::mem::take(&mut self.problems.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.phase.load(Ordering::Acquire) == BUSY
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Acquire)
    }

    pub(crate) fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OVER
    }

    pub(crate) fn drain(&self) {
        self.phase.fetch_max(DRAINING, Ordering::AcqRel);
    }

    pub(crate) fn end(&self) {
        self.phase.store(OVER, Ordering::Release);
    }

    /// Ends the run when it is dropped, so also after an error or a panic: workers wait for that,
    /// and the scope that started them waits for the workers.
    pub(crate) fn ending(&self) -> Ending<'_> {
        Ending(self)
    }

    /// Sleeps, but not beyond the end of the run.
    pub(crate) fn pause(&self, time: Duration) {
        self.pause_while(time, || !self.is_over());
    }

    /// Sleeps while the condition holds.
    pub(crate) fn pause_while(&self, time: Duration, holds: impl Fn() -> bool) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = self.now_ns().saturating_add(nanos);
        while holds() {
            let left = until.saturating_sub(self.now_ns());
            if left == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left).min(NAP));
        }
    }

    pub(crate) fn witness(&self, name: &str) -> Result<Witness<'_>> {
        let path = self.history_dir().join(name);
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Witness { site: self, recorder: Recorder::new(file) })
    }
}

/// See [`Site::ending`].
pub(crate) struct Ending<'a>(&'a Site);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Writes down what one part of the run does and sees.
pub(crate) struct Witness<'a> {
    site: &'a Site,
    recorder: Recorder<File>,
}

impl Witness<'_> {
    pub(crate) fn record(&mut self, event: &Event) -> Result<()> {
        self.record_at(self.site.now_ns(), event)
    }

    /// Writes down what happened a little earlier.
    pub(crate) fn record_at(&mut self, at_ns: u64, event: &Event) -> Result<()> {
        self.recorder.record(at_ns, event).context("cannot write the history")
    }
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    #[test]
    fn a_panic_ends_the_run_so_that_workers_stop() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::new(1, dir.path(), 1, &[]).unwrap();
        let act = || {
            thread::scope(|scope| {
                let _ending = site.ending();
                scope.spawn(|| site.pause(Duration::from_secs(600)));
                panic!("as a defect of the run would");
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(act)).is_err() && site.is_over());
    }
}
