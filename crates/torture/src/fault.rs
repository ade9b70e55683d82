//! Faults: carries out the plan, and writes down what was really done.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use windlass_proof::history::{Event, FaultKind, Target};
use windlass_proof::workload::{Aim, FaultMix, PlannedFault, fault_plan};

use crate::control::Control;
use crate::daemon::{Daemon, LEASE};
use crate::site::{Site, Witness};

/// Longest pause between two faults.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Faults in one run.
const FAULTS_MAX: usize = 100_000;
/// One of so many kills is followed by another one while the daemon recovers.
const AGAIN_EVERY: u64 = 4;
/// Longest time until that.
const AGAIN_MS_MAX: u64 = 300;

/// Figures for the report.
#[derive(Debug, Default, Clone)]
pub(crate) struct Done {
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) restarts: u64,
    /// Kills and stops of single contexts.
    pub(crate) contexts: u64,
    /// What daemons did that no fault explains.
    pub(crate) problems: Vec<String>,
}

pub(crate) struct Injector<'a> {
    site: &'a Site,
    daemons: Vec<Daemon<'a>>,
    witness: Witness<'a>,
    control: Option<Control>,
    faults: u64,
    done: Done,
}

impl<'a> Injector<'a> {
    /// Starts all daemons.
    pub(crate) fn new(
        site: &'a Site,
        mut daemons: Vec<Daemon<'a>>,
        control: Option<Control>,
    ) -> Result<Injector<'a>> {
        let mut witness = site.witness("faults")?;
        for daemon in &mut daemons {
            daemon.start(&mut witness)?;
            daemon.until_ready(&mut witness)?;
        }
        let done = Done::default();
        Ok(Injector { site, daemons, witness, control, faults: 0, done })
    }

    /// The plan of a run of this length, with these kinds.
    pub(crate) fn plan(site: &Site, kinds: &[FaultKind], busy: Duration) -> Vec<PlannedFault> {
        let daemons = u32::try_from(site.daemon_count()).unwrap_or(1);
        let (busy_ns, lease_ns) = (busy.as_nanos() as u64, LEASE.as_nanos() as u64);
        let mut mix = FaultMix::of(|kind| kinds.contains(kind), daemons, busy_ns, lease_ns);
        mix.pause_ns_max = PAUSE_MAX.as_nanos() as u64;
        mix.faults_max = FAULTS_MAX;
        fault_plan(site.seed, &mix)
    }

    /// Carries out the plan. Times are since now; what starting takes delays the rest.
    pub(crate) fn run(&mut self, plan: &[PlannedFault], busy: Duration) -> Result<()> {
        let from = self.site.now_ns();
        let mut late = 0;
        for fault in plan {
            let due = fault.at_ns + late;
            if due > busy.as_nanos() as u64 {
                break;
            }
            self.wait_until(from + due)?;
            let began = self.site.now_ns();
            self.carry_out(fault)?;
            late += (self.site.now_ns() - began).saturating_sub(fault.for_ns);
        }
        self.wait_until(from + busy.as_nanos() as u64)
    }

    fn wait_until(&mut self, at_ns: u64) -> Result<()> {
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
            Aim::All => Ok(()),
        }
    }

    fn of_daemon(&mut self, number: usize, planned: &PlannedFault) -> Result<()> {
        let target = Target::Daemon(self.daemons[number].name().to_owned());
        let fault = self.began(planned.kind, target)?;
        match planned.kind {
            FaultKind::Stop => {
                self.daemons[number].signal(Signal::STOP);
                self.hold(planned);
                self.daemons[number].signal(Signal::CONT);
                self.done.stops += 1;
            }
            FaultKind::Restart => {
                let status = self.daemons[number].end(Signal::TERM, &mut self.witness)?;
                if !status.success() {
                    let name = self.daemons[number].name();
                    self.done.problems.push(format!("{name} was terminated: {status}"));
                }
                self.start(number)?;
                self.done.restarts += 1;
            }
            _ => {
                self.daemons[number].end(Signal::KILL, &mut self.witness)?;
                self.done.kills += 1;
                if let Some(control) = &self.control {
                    control.lose()?;
                }
                self.hold(planned);
                if planned.draw.is_multiple_of(AGAIN_EVERY) {
                    self.daemons[number].start(&mut self.witness)?;
                    std::thread::sleep(Duration::from_millis(planned.draw / 7 % AGAIN_MS_MAX));
                    self.daemons[number].end(Signal::KILL, &mut self.witness)?;
                    self.done.kills += 1;
                }
                self.start(number)?;
            }
        }
        self.ended(fault)
    }

    /// Kills or stops one context that has run jobs. There may be none.
    fn of_context(&mut self, planned: &PlannedFault) -> Result<()> {
        let contexts = self.contexts();
        if contexts.is_empty() {
            return Ok(());
        }
        let (pid, name) = &contexts[planned.draw as usize % contexts.len()];
        let fault = self.began(planned.kind, Target::Holder(name.clone()))?;
        self.done.contexts += 1;
        if planned.kind == FaultKind::Stop {
            let _ = kill_process(*pid, Signal::STOP);
            self.hold(planned);
            let _ = kill_process(*pid, Signal::CONT);
        } else {
            let _ = kill_process(*pid, Signal::KILL);
        }
        self.ended(fault)
    }

    /// Contexts that are alive, by the names of their histories.
    fn contexts(&self) -> Vec<(Pid, String)> {
        let parents: Vec<u32> = self.daemons.iter().filter_map(Daemon::pid).collect();
        let files = fs::read_dir(self.site.history_dir()).into_iter().flatten().flatten();
        let alive = files.filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let name = name.strip_prefix("context-")?.to_owned();
            let pid: i32 = name.split('-').next()?.parse().ok()?;
            parents.contains(&parent_of(pid)?).then_some((Pid::from_raw(pid)?, name))
        });
        let mut alive: Vec<(Pid, String)> = alive.collect();
        // A number may be used again, and its latest owner is the one that is alive.
        alive.sort_by(|one, other| other.1.cmp(&one.1));
        alive.dedup_by_key(|context| context.0);
        alive
    }

    fn hold(&self, planned: &PlannedFault) {
        std::thread::sleep(Duration::from_nanos(planned.for_ns));
    }

    fn start(&mut self, number: usize) -> Result<()> {
        self.daemons[number].start(&mut self.witness)?;
        self.daemons[number].until_ready(&mut self.witness)
    }

    fn began(&mut self, kind: FaultKind, target: Target) -> Result<u64> {
        self.faults += 1;
        self.witness.record(&Event::FaultBegan { fault: self.faults, kind, target })?;
        Ok(self.faults)
    }

    fn ended(&mut self, fault: u64) -> Result<()> {
        self.witness.record(&Event::FaultEnded { fault })
    }

    /// Terminates all daemons at the end of the run.
    pub(crate) fn close(mut self) -> Result<Done> {
        self.watch()?;
        for daemon in &mut self.daemons {
            let status = daemon.end(Signal::TERM, &mut self.witness)?;
            if !status.success() {
                self.done.problems.push(format!("{} was terminated: {status}", daemon.name()));
            }
        }
        Ok(self.done)
    }
}

fn parent_of(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the program's name in parentheses: state, parent.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}
