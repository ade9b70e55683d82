//! Faults: carries out the plan, and writes down what was really done.
//!
//! | module | owns |
//! |---|---|
//! | `process` | kills, stops and restarts of daemons and of handlers' processes |
//! | `disk` | what happens to the disk of all daemons |
//! | `journal` | torn and damaged journals |
//! | `clock` | steps of the daemons' clock |
//! | `probe` | adds that daemons must acknowledge while their store hangs |
//! | `done` | figures |

mod clock;
mod disk;
mod done;
mod journal;
mod probe;
mod process;

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use windlass_proof::history::{Event, FaultKind, Target};
use windlass_proof::workload::{Aim, FaultMix, PlannedFault, calm_at, fault_plan};

use crate::clock::Clock;
use crate::daemon::{Daemon, LEASE};
use crate::disk::Disk;
use crate::site::{Site, Witness};

pub(crate) use done::{Count, Done};
pub(crate) use probe::PROBE_TENANT;

/// Longest pause between two faults.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Once in a run that is long enough, nothing happens for so long: the reach of the last fault, the
/// longest time until a next round, and some more of these.
const CALM: Duration = Duration::from_secs(25);
/// Faults in one run.
const FAULTS_MAX: usize = 100_000;
/// What daemons must notice, they notice in this time.
const NOTICE_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// What is done in a run, and when.
pub(crate) struct Plan {
    busy: Duration,
    faults: Vec<PlannedFault>,
    /// When nothing happens for a while.
    calm_at_ns: Option<u64>,
}

impl Plan {
    /// The plan of a run of this length, with these kinds.
    pub(crate) fn new(site: &Site, kinds: &[FaultKind], busy: Duration) -> Plan {
        let daemons = u32::try_from(site.daemon_count()).unwrap_or(1);
        let (busy_ns, lease_ns) = (busy.as_nanos() as u64, LEASE.as_nanos() as u64);
        let mut mix = FaultMix::of(|kind| kinds.contains(kind), daemons, busy_ns, lease_ns);
        mix.pause_ns_max = PAUSE_MAX.as_nanos() as u64;
        mix.calm_ns = CALM.as_nanos() as u64;
        mix.faults_max = FAULTS_MAX;
        mix.each_first = true;
        let faults = fault_plan(site.seed, &mix);
        Plan { busy, faults, calm_at_ns: calm_at(site.seed, &mix) }
    }
}

pub(crate) struct Injector<'a> {
    site: &'a Site,
    // Before the disk, so that they are gone when it is unmounted.
    pub(crate) daemons: Vec<Daemon<'a>>,
    disk: Option<Disk>,
    clock: Option<Clock>,
    witness: Witness<'a>,
    faults: u64,
    pub(crate) done: Done,
}

impl<'a> Injector<'a> {
    /// Starts all daemons.
    pub(crate) fn new(
        site: &'a Site,
        daemons: Vec<Daemon<'a>>,
        disk: Option<Disk>,
        clock: Option<Clock>,
    ) -> Result<Injector<'a>> {
        let witness = site.witness("faults")?;
        let done = Done::default();
        let mut injector = Injector { site, daemons, disk, clock, witness, faults: 0, done };
        injector.start_all()?;
        Ok(injector)
    }

    /// Carries out the plan. Times are since now; what starting takes delays the rest.
    pub(crate) fn run(&mut self, plan: &Plan) -> Result<()> {
        let (from, busy_ns) = (self.site.now_ns(), plan.busy.as_nanos() as u64);
        let (mut late, mut calm_at_ns) = (0, plan.calm_at_ns);
        for fault in &plan.faults {
            if let Some(calm_ns) = calm_at_ns.take_if(|at_ns| *at_ns <= fault.at_ns) {
                self.rest(from + calm_ns + late)?;
            }
            let due = fault.at_ns + late;
            if due > busy_ns {
                break;
            }
            self.wait_until(from + due)?;
            let began = self.site.now_ns();
            self.carry_out(fault)?;
            late += (self.site.now_ns() - began).saturating_sub(fault.for_ns);
        }
        // Not left out, even if faults took so long that there is no time left.
        if let Some(calm_ns) = calm_at_ns {
            self.rest(from + (calm_ns + late).min(busy_ns))?;
        }
        self.wait_until(from + busy_ns)?;
        match self.clock.as_ref().map_or(0, Clock::step_to_latest) {
            0 => Ok(()),
            by_ms => self.step_clock(by_ms),
        }
    }

    /// Nothing happens for a while, from this time on.
    fn rest(&mut self, at_ns: u64) -> Result<()> {
        self.wait_until(at_ns)?;
        self.site.set_calm(true);
        let rested = self.wait_until(self.site.now_ns() + CALM.as_nanos() as u64);
        self.site.set_calm(false);
        rested
    }

    pub(crate) fn wait_until(&mut self, at_ns: u64) -> Result<()> {
        loop {
            self.watch()?;
            let left = at_ns.saturating_sub(self.site.now_ns());
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left).min(LEASE / 10));
        }
    }

    /// Starts daemons again that have ended by themselves, which is a defect.
    pub(crate) fn watch(&mut self) -> Result<()> {
        for number in 0..self.daemons.len() {
            let Some(console) = self.daemons[number].crashed() else { continue };
            let name = self.daemons[number].name().to_owned();
            self.done.problems.push(format!("{name} ended by itself: {console}"));
            let fault = self.began(FaultKind::Kill, Target::Daemon(name))?;
            self.daemons[number].end(Signal::KILL, &mut self.witness)?;
            self.start(number)?;
            self.ended(fault)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, planned: &PlannedFault) -> Result<()> {
        match planned.aim {
            Aim::Holder => self.of_context(planned),
            Aim::Daemon(number) => self.of_daemon(number as usize, planned),
            Aim::All => match planned.kind {
                FaultKind::ClockStep { by_ms } => self.step_clock(by_ms),
                _ => self.of_disk(planned),
            },
        }
    }

    fn hold(&self, planned: &PlannedFault) {
        std::thread::sleep(Duration::from_nanos(planned.for_ns));
    }

    /// Whether this holds in the time in which daemons notice things.
    fn notices(&mut self, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        let until = self.site.now_ns() + NOTICE_TIME_MAX.as_nanos() as u64;
        while !holds(self) {
            if self.site.now_ns() > until {
                return false;
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        true
    }

    pub(crate) fn start(&mut self, number: usize) -> Result<()> {
        self.daemons[number].start(&mut self.witness)?;
        self.daemons[number].until_ready(&mut self.witness)
    }

    fn start_all(&mut self) -> Result<()> {
        for daemon in &mut self.daemons {
            daemon.start(&mut self.witness)?;
        }
        self.daemons.iter_mut().try_for_each(|daemon| daemon.until_ready(&mut self.witness))
    }

    /// All at once, so that none lives on beside the others' end. Returns how they ended.
    fn end_all(&mut self, signal: Signal) -> Result<Vec<ExitStatus>> {
        self.daemons.iter().for_each(|daemon| daemon.signal(signal));
        let (daemons, witness) = (&mut self.daemons, &mut self.witness);
        daemons.iter_mut().map(|daemon| daemon.until_ended(witness)).collect()
    }

    pub(crate) fn began(&mut self, kind: FaultKind, target: Target) -> Result<u64> {
        self.faults += 1;
        self.site.fault_began();
        self.witness.record(&Event::FaultBegan { fault: self.faults, kind, target })?;
        Ok(self.faults)
    }

    pub(crate) fn ended(&mut self, fault: u64) -> Result<()> {
        self.witness.record(&Event::FaultEnded { fault })?;
        self.site.fault_ended();
        Ok(())
    }

    /// Terminates all daemons at the end of the run.
    pub(crate) fn close(mut self) -> Result<Done> {
        self.watch()?;
        let statuses = self.end_all(Signal::TERM)?;
        for status in statuses.iter().filter(|status| !status.success()) {
            self.done.problems.push(format!("a daemon was terminated: {status}"));
        }
        Ok(std::mem::take(&mut self.done))
    }
}

/// After an error, daemons may wait for a disk that hangs, and cannot end before it answers.
impl Drop for Injector<'_> {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.end_trouble();
        }
    }
}
