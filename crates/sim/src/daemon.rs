//! The daemons of a simulation: real engines, started, killed and terminated. All have one store,
//! and either one machine with one data directory, or each its own.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::RetryPolicy;
use windlass_core::memory::MemoryStore;
use windlass_core::secret::MemoryKeys;
use windlass_core::sync::lock;
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Options, Parts};
use windlass_proof::history::{DaemonEvent, Event, FaultKind, Target};

use crate::clock::{MachineClock, SimClock};
use crate::disk::{Files, SimDisk};
use crate::life::{Condition, Life};
use crate::runner::SimRunner;
use crate::store::SimStore;
use crate::world::{Up, World};

/// The lease of daemons: short, so that schedules are.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The pause before another attempt. Daemons shorten it by up to a tenth.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How long ended jobs are kept: longer than the clock can be set, so that the final listing is
/// whole.
const RETENTION: Duration = Duration::from_secs(365 * 24 * 3600);
/// A daemon that cannot start is started again after this, so many times.
const START_PAUSE: Duration = Duration::from_millis(250);
const STARTS_MAX: usize = 200;
/// How long a daemon may take to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);
/// How wrong the clocks of machines may be.
const SKEW_MS_MAX: i64 = 90_000;
/// Segments of journals: small, so that there are several.
const SEGMENT_BYTES: std::ops::Range<u64> = 1_000..40_000;

pub(crate) struct Site {
    pub(crate) world: Arc<World>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) files: Arc<Mutex<Files>>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) daemons: Vec<Daemon>,
    segment_bytes_max: u64,
}

pub(crate) struct Daemon {
    pub(crate) name: String,
    pub(crate) condition: Arc<Condition>,
    data_dir: PathBuf,
    clock: Arc<MachineClock>,
    boots: AtomicU32,
    /// Locked while the daemon is being started or stopped.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Site {
    /// With `apart`, each daemon has a machine of its own, whose clock is wrong.
    pub(crate) fn new(
        world: Arc<World>,
        clock: Arc<SimClock>,
        store: Arc<MemoryStore>,
        apart: bool,
    ) -> Site {
        let daemon = |number: usize| {
            let wrong_by =
                if apart { world.rng(|rng| rng.i64(-SKEW_MS_MAX..=SKEW_MS_MAX)) } else { 0 };
            let data_dir = if apart { format!("/data/{number}") } else { "/data".to_owned() };
            Daemon {
                name: format!("daemon-{number}"),
                condition: Arc::default(),
                data_dir: data_dir.into(),
                clock: Arc::new(MachineClock::new(clock.clone(), wrong_by)),
                boots: AtomicU32::new(0),
                changing: tokio::sync::Mutex::default(),
            }
        };
        let daemons = (0..world.daemons()).map(daemon).collect();
        let segment_bytes_max = world.rng(|rng| rng.u64(SEGMENT_BYTES));
        Site { world, clock, files: Arc::default(), store, daemons, segment_bytes_max }
    }

    pub(crate) fn target(&self, number: usize) -> Target {
        Target::Daemon(self.daemons[number].name.clone())
    }

    /// Starts all daemons at once until they are up.
    pub(crate) async fn start_all(self: &Arc<Site>) {
        let start = |number| {
            let site = self.clone();
            tokio::spawn(async move { site.start(number).await })
        };
        let starts: Vec<_> = (0..self.daemons.len()).map(start).collect();
        for started in starts {
            // A panic is a problem, which the panic hook has noted.
            let _ = started.await;
        }
    }

    /// Starts a daemon until it is up.
    pub(crate) async fn start(self: &Arc<Site>, number: usize) {
        let mut why = String::new();
        for _ in 0..STARTS_MAX {
            match self.boot(number, 0).await {
                Ok(()) => return,
                Err(error) => why = error,
            }
            tokio::time::sleep(START_PAUSE).await;
        }
        self.world.problem(format!("{} does not start: {why}", self.daemons[number].name));
    }

    /// Starts a daemon once. With a fuse, it dies at that call of its disk or store.
    pub(crate) async fn boot(self: &Arc<Site>, number: usize, fuse: u64) -> Result<(), String> {
        let Daemon { name, condition, boots, .. } = &self.daemons[number];
        let boot = boots.fetch_add(1, Ordering::Relaxed);
        let life = Arc::new(Life::new(condition.clone()));
        life.light_fuse(fuse);
        let (world, daemon) = (&self.world, name.clone());
        world.record(Event::Daemon { daemon, what: DaemonEvent::Started });
        let (parts, options) = (self.parts(number, boot, &life), self.options(number));
        let starting = Engine::start(parts, options, Arc::new(Metrics::default()));
        let started = tokio::select! {
            biased;
            () = life.ended() => Err("it was killed".to_owned()),
            started = starting => started.map_err(|error| error.to_string()),
        };
        let engine = match started {
            Ok(engine) if !life.is_over() => engine,
            started => {
                life.end();
                self.exited(number);
                return Err(started.err().unwrap_or_else(|| "it was killed".to_owned()));
            }
        };
        let daemon = name.clone();
        world.record(Event::Daemon { daemon, what: DaemonEvent::Ready });
        let up = Up { engine, life };
        world.set_up(number, Some(up.clone()));
        tokio::spawn(self.clone().watch(number, up));
        Ok(())
    }

    fn parts(&self, number: usize, boot: u32, life: &Arc<Life>) -> Parts {
        let (world, life) = (self.world.clone(), life.clone());
        let store =
            SimStore { world: world.clone(), inner: self.store.clone(), life: life.clone() };
        let runner = SimRunner {
            world: world.clone(),
            life: life.clone(),
            daemon: self.daemons[number].name.clone(),
            boot,
            batches: AtomicU64::new(0),
            attempts: Mutex::default(),
        };
        let disk = SimDisk { world, files: self.files.clone(), life };
        Parts {
            store: Arc::new(store),
            runner: Arc::new(runner),
            clock: self.daemons[number].clock.clone(),
            disk: Arc::new(disk),
            seal_keys: Arc::new(MemoryKeys::default()),
        }
    }

    fn options(&self, number: usize) -> Options {
        Options {
            lease: LEASE,
            reap_interval: Duration::from_millis(500),
            purge_interval: Duration::from_secs(10),
            poll_min: Duration::from_millis(100),
            slots: 3,
            slots_reserved: 1,
            stop_grace: Duration::from_secs(1),
            retention: RETENTION,
            retry: RetryPolicy { delay: RETRY_DELAY, ..RetryPolicy::default() },
            journal_segment_bytes_max: self.segment_bytes_max,
            seed: self.world.rng(|rng| rng.u64(..)),
            ..Options::new(self.daemons[number].data_dir.clone())
        }
    }

    /// A daemon that cannot go on ends, and is started again. Boxed, because a start watches too.
    fn watch(self: Arc<Site>, number: usize, up: Up) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let why = tokio::select! {
                biased;
                () = up.life.ended() => return,
                why = up.engine.failed() => why,
            };
            // Its number may have expired during a fault; nothing else is a reason.
            let excused = self.world.had_fault_within(LEASE, &self.target(number));
            if !excused || why.contains("panicked") || why.contains("damaged") {
                self.world.problem(format!("{} ended by itself: {why}", self.daemons[number].name));
            }
            let _changing = self.daemons[number].changing.lock().await;
            if up.life.is_over() || self.world.is_over() {
                return;
            }
            let fault = self.world.fault_began(FaultKind::Kill, self.target(number));
            self.kill(number);
            self.start(number).await;
            self.world.fault_ended(fault);
        })
    }

    /// Ends a daemon's process at once.
    pub(crate) fn kill(&self, number: usize) {
        if let Some(up) = self.world.up(number) {
            up.life.end();
        }
        self.world.set_up(number, None);
        self.exited(number);
    }

    /// Asks a daemon to stop, which it does in an orderly way.
    pub(crate) async fn terminate(&self, number: usize) {
        let Some(Up { engine, life }) = self.world.up(number) else { return };
        self.world.set_up(number, None);
        let stopped = tokio::select! {
            biased;
            () = life.ended() => true,
            // The store may be away, which is not its fault.
            _ = engine.shutdown() => true,
            () = tokio::time::sleep(STOP_TIME_MAX) => false,
        };
        if !stopped {
            self.world.problem(format!("{} does not stop", self.daemons[number].name));
        }
        life.end();
        self.exited(number);
    }

    /// Ends all processes, and what was not synced is gone.
    pub(crate) fn cut_power(&self) {
        for number in 0..self.daemons.len() {
            self.kill(number);
        }
        self.world.rng(|rng| lock(&self.files).cut_power(rng));
        self.store.undo_relaxed();
    }

    fn exited(&self, number: usize) {
        let daemon = self.daemons[number].name.clone();
        let what = DaemonEvent::Exited { code: None, signal: Some(9) };
        self.world.record(Event::Daemon { daemon, what });
    }
}
