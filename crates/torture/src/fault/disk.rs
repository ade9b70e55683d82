//! Faults of the disk that all daemons share.

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use windlass_proof::history::{FaultKind, Target};
use windlass_proof::workload::PlannedFault;

use super::process::again_after;
use super::{Count, Injector};
use crate::disk::Disk;
use crate::layer::Trouble;

/// One of so many power cuts is followed by another one while the daemons recover.
const AGAIN_EVERY: u64 = 4;
/// One of so many times in which syncs fail ends with a power cut.
const CUT_EVERY: u64 = 2;

impl Injector<'_> {
    pub(super) fn of_disk(&mut self, planned: &PlannedFault) -> Result<()> {
        let fault = self.began(planned.kind, Target::All)?;
        match planned.kind {
            FaultKind::PowerCut => self.power_cut(planned)?,
            FaultKind::DiskFull => self.full(planned)?,
            FaultKind::ReadError => self.fail(planned, Trouble::Reads)?,
            FaultKind::WriteError => self.fail(planned, Trouble::Writes)?,
            FaultKind::FailedSync => self.fail(planned, Trouble::Syncs)?,
            FaultKind::StoreHang => self.hang(planned)?,
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
        self.done.add(Count::Hangs);
        self.recover("a disk that hung")
    }

    /// Daemons that met an I/O error may wait for an operator, who restarts all of them. They may
    /// say that their end was not clean.
    fn fail(&mut self, planned: &PlannedFault, trouble: Trouble) -> Result<()> {
        self.disk()?.set(trouble)?;
        self.hold(planned);
        self.done.add(match trouble {
            Trouble::Syncs => Count::FailedSyncs,
            _ => Count::IoErrors,
        });
        // Before a sync succeeds again, so that reliance on a failed one shows as a loss.
        let cut = trouble == Trouble::Syncs && (planned.draw / 4).is_multiple_of(CUT_EVERY);
        if cut && self.disk()?.has_power() {
            self.cut()?;
            return (0..self.daemons.len()).try_for_each(|number| self.start(number));
        }
        self.disk()?.set(Trouble::None)?;
        // With a store that refuses, an orderly end takes long.
        let signal = if planned.draw.is_multiple_of(4) { Signal::TERM } else { Signal::KILL };
        self.end_all(signal)?;
        // One after the other: the first one has to have the store for itself.
        (0..self.daemons.len()).try_for_each(|number| self.start(number))
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
