//! Faults of the disk that all daemons share.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;
use serde_json::Value;
use windlass_proof::history::{FaultKind, Target};
use windlass_proof::workload::PlannedFault;

use super::probe::Probe;
use super::process::again_after;
use super::{Count, Injector};
use crate::daemon::Daemon;
use crate::disk::Disk;
use crate::layer::Trouble;

/// One of so many power cuts is followed by another one while the daemons recover.
const AGAIN_EVERY: u64 = 4;
/// One of so many times in which syncs fail ends with a power cut.
const CUT_EVERY: u64 = 2;

/// One of so many times in which calls fail, daemons are left alone afterwards.
const LEAVE_EVERY: u64 = 2;
/// How long they may then take to work again.
const GO_ON_TIME_MAX: Duration = Duration::from_secs(30);
/// An add that needs only the journal is acknowledged in this time, on a slow machine.
const ADD_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// What the store says if only a restart helps (`store-sqlite`, `doubt`).
const RESTART_WORDS: &str = "until every daemon that uses it has been restarted";

/// What a daemon needs until it works again.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Restart,
    /// Perhaps only that; with what it says.
    Time(String),
}

impl Injector<'_> {
    pub(super) fn of_disk(&mut self, planned: &PlannedFault) -> Result<()> {
        let fault = self.began(planned.kind, Target::All)?;
        match planned.kind {
            FaultKind::PowerCut => self.power_cut(planned)?,
            FaultKind::DiskFull => self.full(planned)?,
            FaultKind::ReadError => self.fail(planned, Trouble::Reads)?,
            FaultKind::WriteError => self.fail(planned, Trouble::Writes)?,
            FaultKind::FailedSync => self.fail(planned, Trouble::Syncs)?,
            FaultKind::DiskHang => self.hang(planned)?,
            FaultKind::StoreHang => self.hang_store(planned)?,
            kind => bail!("{kind:?} is not a fault of the disk"),
        }
        self.ended(fault)
    }

    /// The daemons' machine loses its power, and has it again.
    fn power_cut(&mut self, planned: &PlannedFault) -> Result<()> {
        self.cut()?;
        self.hold(planned);
        if planned.draw.is_multiple_of(AGAIN_EVERY) {
            for daemon in &mut self.daemons {
                daemon.start(&mut self.witness)?;
            }
            std::thread::sleep(again_after(planned));
            self.cut()?;
        }
        self.start_all()
    }

    /// The daemons are stopped first. A sync that is under way while XFS goes down may succeed
    /// without having synced, as it does for any program; nobody may be answered then.
    fn cut(&mut self) -> Result<()> {
        self.daemons.iter().for_each(|daemon| daemon.signal(Signal::STOP));
        self.disk()?.cut()?;
        self.end_all(Signal::KILL)?;
        self.disk.as_mut().map_or(Ok(()), Disk::restore)?;
        self.done.add(Count::PowerCuts);
        Ok(())
    }

    /// Daemons recover by themselves when there is room again.
    fn full(&mut self, planned: &PlannedFault) -> Result<()> {
        self.disk()?.fill()?;
        self.hold(planned);
        self.disk()?.free()?;
        self.done.add(Count::FullDisks);
        self.recover("a full disk")
    }

    fn hang(&mut self, planned: &PlannedFault) -> Result<()> {
        self.disk()?.set(Trouble::Hang)?;
        self.hold(planned);
        self.disk()?.set(Trouble::None)?;
        self.done.add(Count::DiskHangs);
        self.recover("a disk that hung")
    }

    /// Adds need only the journal, so each daemon must acknowledge one meanwhile. On a slow
    /// machine, the store hangs until they have, or for longer than any add takes.
    fn hang_store(&mut self, planned: &PlannedFault) -> Result<()> {
        let daemons = 0..self.daemons.len();
        let probes: Vec<Probe> = daemons.map(|it| self.probe(it)).collect::<Result<_>>()?;
        self.disk()?.set(Trouble::StoreHang)?;
        let site = self.site;
        let (in_time, answers) = std::thread::scope(|scope| {
            let adds: Vec<_> = probes.iter().map(|it| scope.spawn(|| it.send(site))).collect();
            let until = site.now_ns() + ADD_TIME_MAX.as_nanos() as u64;
            self.hold(planned);
            while !adds.iter().all(ScopedJoinHandle::is_finished) && site.now_ns() < until {
                std::thread::sleep(LOOK_PAUSE);
            }
            let in_time: Vec<bool> = adds.iter().map(ScopedJoinHandle::is_finished).collect();
            self.disk()?.set(Trouble::None)?;
            let answers = adds.into_iter().map(|add| add.join().map_err(|_| anyhow!("a panic")));
            anyhow::Ok((in_time, answers.collect::<Result<Vec<_>>>()?))
        })?;
        let mut silent = 0;
        for ((probe, in_time), answer) in probes.iter().zip(in_time).zip(answers) {
            let acknowledged = self.probed(probe, answer)?;
            silent += usize::from(!(acknowledged && in_time));
        }
        if silent > 0 {
            let what = format!("{silent} daemons acknowledged no add while only the store hung");
            self.done.problems.push(what);
        }
        self.done.add(Count::StoreHangs);
        self.recover("a store that hung")
    }

    /// Daemons either go on by themselves when the disk works again, or wait for an operator, who
    /// restarts all of them, also for no other reason than the error. They may say that their end
    /// was not clean.
    fn fail(&mut self, planned: &PlannedFault, trouble: Trouble) -> Result<()> {
        self.disk()?.set(trouble)?;
        self.hold(planned);
        self.done.add(match trouble {
            Trouble::Syncs => Count::FailedSyncs,
            Trouble::Reads => Count::ReadErrors,
            _ => Count::WriteErrors,
        });
        // Before a sync succeeds again, so that reliance on a failed one shows as a loss.
        let cut = trouble == Trouble::Syncs && (planned.draw / 4).is_multiple_of(CUT_EVERY);
        if cut && self.disk()?.has_power() {
            self.cut()?;
            return (0..self.daemons.len()).try_for_each(|number| self.start(number));
        }
        self.disk()?.set(Trouble::None)?;
        if (planned.draw / 8).is_multiple_of(LEAVE_EVERY) && self.goes_on()? {
            self.done.add(Count::GoneOn);
            return self.recover("I/O errors");
        }
        // With a store that refuses, an orderly end takes long.
        let signal = if planned.draw.is_multiple_of(4) { Signal::TERM } else { Signal::KILL };
        self.end_all(signal)?;
        // One after the other: the first one has to have the store for itself.
        (0..self.daemons.len()).try_for_each(|number| self.start(number))
    }

    /// Whether all daemons work again without a restart. One that does not must ask for it.
    fn goes_on(&mut self) -> Result<bool> {
        let until = self.site.now_ns() + GO_ON_TIME_MAX.as_nanos() as u64;
        loop {
            let needs: Vec<Need> = self.daemons.iter_mut().map(need).collect();
            if needs.contains(&Need::Restart) {
                return Ok(false);
            }
            let Some(Need::Time(state)) = needs.iter().find(|need| **need != Need::Nothing) else {
                return Ok(true);
            };
            if self.site.now_ns() > until {
                let what = "after I/O errors, a daemon neither works again nor asks for a restart";
                self.done.problems.push(format!("{what}: {state}"));
                return Ok(false);
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// Waits until all daemons are ready again.
    fn recover(&mut self, from: &str) -> Result<()> {
        self.watch()?;
        for daemon in &mut self.daemons {
            let ready = daemon.until_ready(&mut self.witness);
            ready.with_context(|| format!("{} does not recover from {from}", daemon.name()))?;
        }
        Ok(())
    }

    fn disk(&self) -> Result<&Disk> {
        self.disk.as_ref().context("the run has no disk of its own")
    }
}

/// One that has ended says with that that it needs a restart.
fn need(daemon: &mut Daemon<'_>) -> Need {
    match daemon.state() {
        _ if daemon.crashed().is_some() => Need::Restart,
        Some(state) => need_of(&state),
        None => Need::Time("no answer".to_owned()),
    }
}

/// By its answer about its parts. Some journals of the run can never be taken over (see `plant`).
fn need_of(state: &Value) -> Need {
    let part = |name: &str| state[name].as_str().unwrap_or("no answer").to_owned();
    let parts = ["journal", "store", "services"].map(part);
    if parts.iter().all(|part| part == "ok") {
        return Need::Nothing;
    }
    let asks = parts.iter().any(|part| part.contains(RESTART_WORDS));
    if asks { Need::Restart } else { Need::Time(parts.join("; ")) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_daemon_works_again_asks_for_a_restart_or_needs_time() {
        let of = |journal: &str, store: &str, services: &str| {
            let takeover = "the journal of daemon 3001 cannot be read";
            let parts = json!({"journal": journal, "store": store, "services": services});
            let mut state = parts.as_object().unwrap().clone();
            state.insert("takeover".into(), takeover.into());
            need_of(&state.into())
        };
        assert_eq!(of("ok", "ok", "ok"), Need::Nothing);
        let doubt = format!("a sync failed: nothing more is written {RESTART_WORDS} (EIO)");
        assert_eq!(of("ok", "ok", &doubt), Need::Restart);
        assert_eq!(of("ok", &doubt, "ok"), Need::Restart);
        let waits = Need::Time("ok; the store does not answer; ok".into());
        assert_eq!(of("ok", "the store does not answer", "ok"), waits);
        assert!(matches!(need_of(&json!({"ready": "ok"})), Need::Time(_)), "without a key");
    }

    #[test]
    fn the_store_still_asks_for_a_restart_in_these_words() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = fs::read_to_string(here.join("../store-sqlite/src/doubt.rs")).unwrap();
        let words = source.replace("\\\n         ", "");
        assert!(words.contains(RESTART_WORDS));
    }
}
