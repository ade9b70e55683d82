//! Faults: carries out the plan, and writes down what was really done.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use windlass_proof::history::{FaultKind, Target};
use windlass_proof::workload::{Aim, FaultMix, PlannedFault, fault_plan};

use crate::daemon::{LEASE, Site};
use crate::life::Trouble;

/// Longest pause between two faults.
const PAUSE_MAX: Duration = Duration::from_millis(1500);
/// A daemon that is to die at a call dies at one of the next so many.
const FUSE_CALLS_MAX: u64 = 60;
/// Or after this, if it makes no calls.
const FUSE_TIME_MAX: Duration = Duration::from_millis(500);
/// One of so many daemons dies again while it recovers.
const AGAIN: u64 = 3;
/// The seeds of two pairs of plans are so far apart that runs do not share them.
const PAIR_SEEDS: u64 = 1 << 32;

/// The faults of a run: plans that are carried out at the same time.
pub(crate) struct Plans(Vec<Vec<PlannedFault>>);

/// What is done for a kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    Restart,
    CutPower,
    SetClock { by_ms: i64 },
    MakeStoreForget,
    HangStore,
    Trouble(Trouble),
}

impl Deed {
    /// `None` for what is not simulated. Damage of what was synced loses jobs, as it would in
    /// reality. A process that stops and continues, or that waits for its disk, would stop the one
    /// thread that there is.
    fn of(kind: FaultKind) -> Option<Deed> {
        match kind {
            FaultKind::Kill => Some(Deed::Kill),
            FaultKind::Restart => Some(Deed::Restart),
            FaultKind::PowerCut => Some(Deed::CutPower),
            FaultKind::ClockStep { by_ms } => Some(Deed::SetClock { by_ms }),
            FaultKind::StoreForgets => Some(Deed::MakeStoreForget),
            FaultKind::StoreHang => Some(Deed::HangStore),
            FaultKind::DiskFull => Some(Deed::Trouble(Trouble::DiskFull)),
            FaultKind::ReadError => Some(Deed::Trouble(Trouble::Reads)),
            FaultKind::WriteError => Some(Deed::Trouble(Trouble::Writes)),
            FaultKind::FailedSync => Some(Deed::Trouble(Trouble::Syncs)),
            FaultKind::Partition => Some(Deed::Trouble(Trouble::Partition)),
            FaultKind::Stop
            | FaultKind::DiskHang
            | FaultKind::TornTail
            | FaultKind::DamagedJournal => None,
        }
    }

    fn is_of_process(self) -> bool {
        matches!(self, Deed::Kill | Deed::Restart | Deed::CutPower)
    }
}

impl Plans {
    /// Those of the run with this seed: so many pairs, of which one plan is of processes and one of
    /// their surroundings. `only` is the only fault of its kind.
    pub(crate) fn new(
        seed: u64,
        daemons: usize,
        pairs: usize,
        busy: Duration,
        only: Option<FaultKind>,
    ) -> Plans {
        let (busy_ns, lease_ns) = (busy.as_nanos() as u64, LEASE.as_nanos() as u64);
        let plan = |seed, possible: &dyn Fn(&FaultKind) -> bool| {
            let mut mix = FaultMix::of(possible, daemons as u32, busy_ns, lease_ns).swarm(seed);
            mix.pause_ns_max = PAUSE_MAX.as_nanos() as u64;
            fault_plan(seed, &mix)
        };
        let of_process = |kind: &FaultKind| Deed::of(*kind).is_some_and(Deed::is_of_process);
        let of_surroundings =
            |kind: &FaultKind| Deed::of(*kind).is_some_and(|deed| !deed.is_of_process());
        let plan = |seed, of: &dyn Fn(&FaultKind) -> bool| {
            let only = only.filter(of);
            plan(seed, &|kind| of(kind) && only.is_none_or(|only| only == *kind))
        };
        let pair = |number: usize| {
            let seed = seed.wrapping_add(number as u64 * PAIR_SEEDS);
            [plan(seed, &of_process), plan(!seed, &of_surroundings)]
        };
        Plans((0..pairs).flat_map(pair).collect())
    }

    pub(crate) fn have(&self, kind: FaultKind) -> bool {
        self.0.iter().flatten().any(|fault| fault.kind == kind)
    }
}

/// Carries out all plans.
pub(crate) async fn inject(site: &Arc<Site>, plans: &Plans) {
    join_all(plans.0.iter().map(|plan| inject_all(site, plan))).await;
    // Delayed jobs are due by the wall clock. Those that were added while it was ahead would wait
    // for hours.
    let behind_ms = site.clock.behind_ms();
    if behind_ms != 0 {
        set_clock(site, behind_ms);
    }
}

/// Times are since now; what starting takes delays the rest.
async fn inject_all(site: &Arc<Site>, plan: &[PlannedFault]) {
    let mut late = 0;
    let from = site.world.now_ns();
    for fault in plan {
        let due = from + fault.at_ns + late;
        sleep_ns(due.saturating_sub(site.world.now_ns())).await;
        let began = site.world.now_ns();
        carry_out(site, fault).await;
        late += (site.world.now_ns() - began).saturating_sub(fault.for_ns);
    }
}

fn set_clock(site: &Site, by_ms: i64) {
    let fault = site.world.fault_began(FaultKind::ClockStep { by_ms }, Target::All);
    site.clock.set_by(by_ms);
    site.world.fault_ended(fault);
}

async fn carry_out(site: &Arc<Site>, planned: &PlannedFault) {
    let number = match planned.aim {
        Aim::Daemon(number) => number as usize,
        // Contexts are not processes here.
        Aim::Holder | Aim::All => planned.draw as usize % site.daemons.len(),
    };
    let world = &site.world;
    let of_all = || world.fault_began(planned.kind, Target::All);
    let Some(deed) = Deed::of(planned.kind) else { return };
    match deed {
        Deed::Kill => kill(site, number, planned).await,
        Deed::Restart => {
            let _changing = site.daemons[number].changing.lock().await;
            let fault = world.fault_began(planned.kind, site.target(number));
            site.terminate(number).await;
            site.start(number).await;
            world.fault_ended(fault);
        }
        Deed::CutPower => cut_power(site, planned).await,
        Deed::SetClock { by_ms } => set_clock(site, by_ms),
        Deed::MakeStoreForget => {
            let fault = of_all();
            site.store.undo_relaxed();
            world.fault_ended(fault);
        }
        Deed::HangStore => {
            let fault = of_all();
            world.set_store_hangs(true);
            sleep_ns(planned.for_ns).await;
            world.set_store_hangs(false);
            world.fault_ended(fault);
        }
        Deed::Trouble(trouble) => {
            let fault = world.fault_began(planned.kind, site.target(number));
            site.daemons[number].condition.set(Some(trouble));
            sleep_ns(planned.for_ns).await;
            site.daemons[number].condition.set(None);
            world.fault_ended(fault);
        }
    }
}

/// Kills a daemon, half of the time in the middle of a call, and starts it again.
async fn kill(site: &Arc<Site>, number: usize, planned: &PlannedFault) {
    let _changing = site.daemons[number].changing.lock().await;
    let fault = site.world.fault_began(planned.kind, site.target(number));
    if let Some(up) = site.world.up(number).filter(|_| planned.draw.is_multiple_of(2)) {
        up.life.light_fuse(planned.draw / 2 % FUSE_CALLS_MAX + 1);
        let _ = tokio::time::timeout(FUSE_TIME_MAX, up.life.ended()).await;
    }
    site.kill(number);
    sleep_ns(planned.for_ns).await;
    if (planned.draw / 7).is_multiple_of(AGAIN) {
        let fuse = planned.draw / 11 % FUSE_CALLS_MAX + 1;
        if site.boot(number, fuse).await.is_ok()
            && let Some(up) = site.world.up(number)
        {
            let _ = tokio::time::timeout(FUSE_TIME_MAX, up.life.ended()).await;
            site.kill(number);
        }
    }
    site.start(number).await;
    site.world.fault_ended(fault);
}

async fn cut_power(site: &Arc<Site>, planned: &PlannedFault) {
    let mut changing = Vec::new();
    for daemon in &site.daemons {
        changing.push(daemon.changing.lock().await);
    }
    let fault = site.world.fault_began(planned.kind, Target::All);
    site.cut_power();
    sleep_ns(planned.for_ns).await;
    site.start_all().await;
    site.world.fault_ended(fault);
}

async fn sleep_ns(ns: u64) {
    tokio::time::sleep(Duration::from_nanos(ns)).await;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use windlass_core::memory::MemoryStore;
    use windlass_core::store::prelude::*;
    use windlass_journal::Disk;

    use crate::clock::SimClock;
    use crate::disk::SimDisk;
    use crate::life::{Condition, Life};
    use crate::store::SimStore;
    use crate::world::World;

    use super::*;

    const CALLS: usize = 64;
    const SEEDS: u64 = 50;

    fn kinds() -> Vec<FaultKind> {
        FaultMix::of(|_| true, 1, 0, 0).kinds.into_iter().map(|(kind, _)| kind).collect()
    }

    /// Errors of a daemon's calls in this trouble.
    async fn errors(trouble: Option<Trouble>) -> usize {
        let condition = Arc::new(Condition::default());
        condition.set(trouble);
        let (world, life) = (Arc::new(World::new(1, None, 1)), Arc::new(Life::new(condition)));
        let inner = Arc::new(MemoryStore::new(Arc::new(SimClock::new())));
        let store = SimStore { world: world.clone(), inner, life: life.clone() };
        let disk = SimDisk { world, files: Arc::default(), life };
        let mut errors = 0;
        for _ in 0..CALLS {
            let done = disk.create("/file".as_ref()).and_then(|file| {
                file.write_at(b"x", 0)?;
                file.sync()?;
                disk.read("/file".as_ref(), 0, 1)
            });
            let _ = disk.remove("/file".as_ref());
            errors += usize::from(done.is_err()) + usize::from(store.ping().await.is_err());
        }
        errors
    }

    #[tokio::test(start_paused = true)]
    async fn every_trouble_makes_calls_fail() {
        assert_eq!(errors(None).await, 0);
        for deed in kinds().into_iter().filter_map(Deed::of) {
            if let Deed::Trouble(trouble) = deed {
                assert!(errors(Some(trouble)).await > 0, "{trouble:?}");
            }
        }
    }

    #[test]
    fn plans_have_all_faults_that_are_simulated_and_no_others() {
        let mut planned = HashSet::new();
        for seed in 0..SEEDS {
            let plans = Plans::new(seed, 2, 1, Duration::from_secs(6), None);
            planned.extend(plans.0.iter().flatten().map(|fault| discriminant(&fault.kind)));
        }
        for kind in kinds() {
            let is_planned = planned.contains(&discriminant(&kind));
            assert_eq!(is_planned, Deed::of(kind).is_some(), "{kind:?}");
        }
    }
}
