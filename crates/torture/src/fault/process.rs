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
