//! Faults of processes: daemons, and the contexts in which handlers run.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use windlass_proof::history::{FaultKind, Target};
use windlass_proof::workload::PlannedFault;

use super::{Count, Injector};
use crate::daemon::Daemon;

/// One of so many kills is followed by another one while the daemon recovers.
const AGAIN_EVERY: u64 = 4;
/// A context is at most so far below its daemon.
const DEPTH_MAX: usize = 4;
/// Longest time until that.
const AGAIN_MS_MAX: u64 = 300;

impl Injector<'_> {
    pub(super) fn of_daemon(&mut self, number: usize, planned: &PlannedFault) -> Result<()> {
        let target = Target::Daemon(self.daemons[number].name().to_owned());
        let fault = self.began(planned.kind, target)?;
        match planned.kind {
            FaultKind::Stop => {
                self.daemons[number].signal(Signal::STOP);
                self.hold(planned);
                self.daemons[number].signal(Signal::CONT);
                self.done.add(Count::Stops);
            }
            FaultKind::Restart => {
                let status = self.daemons[number].end(Signal::TERM, &mut self.witness)?;
                if !status.success() {
                    let name = self.daemons[number].name();
                    self.done.problems.push(format!("{name} was terminated: {status}"));
                }
                self.start(number)?;
                self.done.add(Count::Restarts);
            }
            FaultKind::TornTail => self.tear_tail(number, planned)?,
            FaultKind::DamagedJournal => self.damage_journal(number, planned)?,
            _ => {
                self.kill(number)?;
                self.hold(planned);
                if planned.draw.is_multiple_of(AGAIN_EVERY) {
                    self.daemons[number].start(&mut self.witness)?;
                    std::thread::sleep(again_after(planned));
                    self.kill(number)?;
                }
                self.start(number)?;
            }
        }
        self.ended(fault)
    }

    pub(crate) fn kill(&mut self, number: usize) -> Result<()> {
        self.daemons[number].end(Signal::KILL, &mut self.witness)?;
        self.done.add(Count::Kills);
        Ok(())
    }

    /// Kills or stops one context that has run jobs. There may be none.
    pub(super) fn of_context(&mut self, planned: &PlannedFault) -> Result<()> {
        let contexts = self.contexts();
        if contexts.is_empty() {
            return Ok(());
        }
        let (pid, name) = &contexts[planned.draw as usize % contexts.len()];
        let fault = self.began(planned.kind, Target::Holder(name.clone()))?;
        self.done.add(Count::Contexts);
        if planned.kind == FaultKind::Stop {
            let _ = kill_process(*pid, Signal::STOP);
            self.hold(planned);
            let _ = kill_process(*pid, Signal::CONT);
        } else {
            let _ = kill_process(*pid, Signal::KILL);
        }
        self.ended(fault)
    }

    /// Contexts that are alive, by the names of their histories, which they keep open. In a cell, a
    /// context has another number than outside, and is further below its daemon.
    fn contexts(&self) -> Vec<(Pid, String)> {
        let daemons: Vec<u32> = self.daemons.iter().filter_map(Daemon::pid).collect();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        let own = numbers.filter(|pid| is_below(*pid, &daemons));
        let contexts = own.filter_map(|pid| Some((Pid::from_raw(pid)?, history_of(pid)?)));
        let mut contexts: Vec<(Pid, String)> = contexts.collect();
        contexts.sort_by(|one, other| one.1.cmp(&other.1));
        contexts
    }
}

/// Whether one of these is its parent, or a parent of that, and so on.
fn is_below(pid: i32, ancestors: &[u32]) -> bool {
    let parents = std::iter::successors(Some(pid), |pid| parent_of(*pid)?.try_into().ok());
    let mut above = parents.skip(1).take(DEPTH_MAX);
    above.any(|pid| u32::try_from(pid).is_ok_and(|pid| ancestors.contains(&pid)))
}

/// The name of the history that a context writes.
fn history_of(pid: i32) -> Option<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let mut names = files.filter_map(|file| {
        let target = fs::read_link(file.path()).ok()?;
        Some(target.file_name()?.to_str()?.strip_prefix("context-")?.to_owned())
    });
    names.next()
}

/// The pause between a start and another kill.
pub(super) fn again_after(planned: &PlannedFault) -> Duration {
    Duration::from_millis(planned.draw / 7 % AGAIN_MS_MAX)
}

fn parent_of(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the program's name in parentheses: state, parent.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}
