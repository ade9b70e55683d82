//! What all parts of a run share: its directory, clock, addresses and phase.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use windlass_proof::history::{Event, Recorder};
use windlass_test_kit::port::free_port;

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
    origin_ns: u64,
    daemons: Vec<Place>,
    phase: AtomicU8,
    ops: AtomicU64,
    pub(crate) tally: Tally,
}

/// Where a daemon listens. It keeps its address when it is started again.
struct Place {
    name: String,
    address: SocketAddr,
    boots: AtomicU64,
}

/// Figures of the run that its history does not sum up.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) finishes: AtomicU64,
    pub(crate) unknown: AtomicU64,
}

impl Site {
    pub(crate) fn new(seed: u64, dir: &Path, daemons: u32) -> Result<Site> {
        let place = |number| Place {
            name: format!("daemon-{number}"),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            boots: AtomicU64::new(0),
        };
        let site = Site {
            seed,
            dir: dir.to_owned(),
            origin_ns: monotonic_ns(),
            daemons: (0..daemons).map(place).collect(),
            phase: AtomicU8::new(BUSY),
            ops: AtomicU64::new(0),
            tally: Tally::default(),
        };
        for folder in [site.history_dir(), site.console_dir()] {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(site)
    }

    /// The files of all witnesses. Handlers may write here.
    pub(crate) fn history_dir(&self) -> PathBuf {
        self.dir.join("history")
    }

    pub(crate) fn console_dir(&self) -> PathBuf {
        self.dir.join("consoles")
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
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

    pub(crate) fn is_busy(&self) -> bool {
        self.phase.load(Ordering::Acquire) == BUSY
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

/// Writes down what one part of the run does and sees.
pub(crate) struct Witness<'a> {
    site: &'a Site,
    recorder: Recorder<File>,
}

impl Witness<'_> {
    pub(crate) fn record(&mut self, event: &Event) -> Result<()> {
        self.recorder.record(self.site.now_ns(), event).context("cannot write the history")
    }
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
}
