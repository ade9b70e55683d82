//! One schedule: daemons, clients, workers and faults on one thread, all decided by one seed; then
//! the verdict.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::mpsc::unbounded_channel;
use windlass_core::Tenant;
use windlass_core::memory::MemoryStore;
use windlass_proof::check::{Checker, Report, Terms};
use windlass_proof::history::{FaultKind, Operation, Record};
use windlass_proof::workload::{Feature, Mix, Served, TypeMix};

use crate::call::Caller;
use crate::client::{Client, certainly};
use crate::clock::SimClock;
use crate::closing::Closing;
use crate::control::Control;
use crate::daemon::{LEASE, RETRY_DELAY, Site};
use crate::fault::{self, Plans};
use crate::panics;
use crate::worker::Worker;
use crate::world::World;

const DAEMONS_MAX: u64 = 3;
/// A fleet has a client and a worker for so many daemons, and no fewer than a small schedule.
const FLEET_DAEMONS_PER_CLIENT: usize = 2;
/// And faults come as often as in so many small schedules.
const FLEET_DAEMONS_PER_PLAN: usize = 20;
const CLIENTS: usize = 3;
const WORKERS: usize = 3;
/// Most requests of one client.
const OPERATIONS_MAX: u64 = 24;
/// Most jobs in one add.
const COUNT_MAX: u32 = 4;
/// Largest payload: enough for one that is not in a frame.
const PAYLOAD_BYTES_MAX: u64 = 20 * 1024;
/// How long faults come.
const BUSY: Duration = Duration::from_secs(6);
/// Longest time between a daemon's claim of a batch and the begin of its last run, without faults.
const CLAIM_AHEAD: Duration = Duration::from_secs(10);

/// The clock counts milliseconds. Records within one of them differ by nanoseconds, up to this.
const STAMPS_NS_MAX: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    /// A planted bug.
    pub(crate) control: Option<Control>,
    /// So many daemons, each on a machine of its own; otherwise one machine with a few.
    pub(crate) fleet: Option<usize>,
}

impl Settings {
    /// The command that repeats the schedule.
    pub(crate) fn command(&self) -> String {
        let fleet = self.fleet.map(|daemons| format!(" --fleet {daemons}")).unwrap_or_default();
        format!("cargo xtask sim --seed {}{fleet}", self.seed)
    }
}

pub(crate) struct Verdict {
    pub(crate) report: Report,
    /// Panics, daemons that end or do not start, jobs that are left.
    pub(crate) problems: Vec<String>,
    pub(crate) history: Vec<Record>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.report.is_clean()
    }
}

/// Plays the schedule of a seed and checks it. The same seed always gives the same history.
pub(crate) fn play(settings: Settings) -> Result<Verdict> {
    play_by(settings, |world| run(world, settings.fleet))
}

/// Whatever panics, the seed has a verdict. `run` says whether all jobs were drained.
fn play_by<F: Future<Output = bool>>(
    settings: Settings,
    run: impl FnOnce(Arc<World>) -> F,
) -> Result<Verdict> {
    let Settings { seed, control, fleet } = settings;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.context("a runtime")?;
    let daemons =
        fleet.unwrap_or_else(|| fastrand::Rng::with_seed(seed).u64(1..=DAEMONS_MAX) as usize);
    let world = {
        // It has the clock of the runtime.
        let _entered = runtime.enter();
        Arc::new(World::new(seed, control, daemons))
    };
    let (drained, mut panics) = panics::noted(|| {
        let drained = runtime.block_on(async {
            let drained = run(world.clone()).await;
            // Daemons refer to the world, and the world to daemons.
            (0..daemons).for_each(|number| world.set_up(number, None));
            drained
        });
        drop(runtime);
        drained
    });
    let (history, mut problems) = world.take();
    problems.append(&mut panics);
    let (report, mut panics) = panics::noted(|| judge(&history, drained.unwrap_or_default()));
    problems.append(&mut panics);
    Ok(Verdict { report: report.unwrap_or_default(), problems, history })
}

/// False if the jobs could not be drained.
async fn run(world: Arc<World>, fleet: Option<usize>) -> bool {
    let (seed, control, daemons) = (world.seed, world.control, world.daemons());
    let pairs = fleet.map_or(1, |daemons| daemons.div_ceil(FLEET_DAEMONS_PER_PLAN));
    let plans = Plans::new(seed, daemons, pairs, BUSY, control.and_then(Control::fault));
    let clock = Arc::new(SimClock::new());
    let store = Arc::new(store(&plans, &clock));
    let site = Arc::new(Site::new(world, clock, store, fleet.is_some()));
    let mut mix = mix(seed);
    if let Some(control) = control {
        control.adjust(&mut mix);
    }
    site.start_all().await;
    work(&site, &mix, &plans).await
}

/// A store that can forget what it has not synced is slower, so it is one only if it must be.
fn store(plans: &Plans, clock: &Arc<SimClock>) -> MemoryStore {
    let forgets = plans.have(FaultKind::StoreForgets);
    if forgets || plans.have(FaultKind::PowerCut) {
        return MemoryStore::undoable(forgets, clock.clone());
    }
    MemoryStore::new(clock.clone())
}

/// The mix of the seed, with the types and requests that can be simulated.
fn mix(seed: u64) -> Mix {
    let mut mix = Mix::swarm(seed);
    mix.types.retain(|of| of.served != Served::Bedrock);
    if mix.types.is_empty() {
        let of = |name: &str, served| TypeMix { name: name.into(), served };
        mix.types = vec![of("run-0", Served::Handler), of("pull-1", Served::Pull)];
    }
    mix.count_max = mix.count_max.min(COUNT_MAX);
    mix.payload_bytes_max = PAYLOAD_BYTES_MAX;
    // Flaws are of requests as doors read them, and there is no Bedrock door. Handlers have no
    // children, and a schedule is short.
    for left_out in [
        Feature::Invalid,
        Feature::Bedrock,
        Feature::BedrockChange,
        Feature::Children,
        Feature::Glut,
    ] {
        mix.set(left_out, 0);
    }
    mix.bedrock_tenants = 0;
    mix
}

/// Everything from the first request to the final listing; false if it could not be drained.
async fn work(site: &Arc<Site>, mix: &Mix, plans: &Plans) -> bool {
    let world = &site.world;
    let caller = |who: &str| Caller { world: world.clone(), who: who.to_owned() };
    for tenant in &mix.tenants {
        for of in mix.types.iter().filter(|of| of.served == Served::Handler) {
            let (tenant, type_name) = (tenant.clone(), of.name.clone());
            let set = Operation::SetHandler { tenant, type_name, version: 0 };
            certainly(&caller("setup"), &set).await;
        }
    }
    let of_fleet = world.daemons() / FLEET_DAEMONS_PER_CLIENT;
    let (clients, workers) = (CLIENTS.max(of_fleet), WORKERS.max(of_fleet));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..clients).map(|_| unbounded_channel()).unzip();
    let workers =
        (0..workers as u32).filter_map(|number| Worker::new(world, number, mix, &senders));
    let workers: Vec<_> = workers.map(|worker| tokio::spawn(worker.run())).collect();
    let clients = (0..).zip(receivers).map(|(number, news)| {
        let operations = world.draw(OPERATIONS_MAX) as u32 + 1;
        tokio::spawn(Client::new(world, number, mix, operations, news).run())
    });
    let clients: Vec<_> = clients.collect();
    let busy = world.now_ns() + BUSY.as_nanos() as u64;
    fault::inject(site, plans).await;
    let rest = busy.saturating_sub(world.now_ns());
    tokio::time::sleep(Duration::from_nanos(rest)).await;
    world.drain();
    for client in clients {
        // A panic is a problem, which the panic hook has noted.
        let _ = client.await;
    }
    let tenants = mix.tenants.iter().filter_map(|name| Tenant::new(name).ok()).collect();
    let closing = Closing { caller: caller("closing"), tenants };
    let drained = closing.drain().await;
    world.end();
    for worker in workers {
        let _ = worker.await;
    }
    closing.list().await;
    drained
}

/// Not checked are fairness, because a schedule has too few jobs to tell chance from neglect, and
/// rounds of repeating jobs, because it is nowhere calm for as long as one may take.
fn judge(history: &[Record], drained: bool) -> Report {
    let ns = |duration: Duration| duration.as_nanos() as u64;
    let mut checker = Checker::new(Terms {
        lease_ns: ns(LEASE),
        slack_ns: STAMPS_NS_MAX,
        claim_ahead_ns: ns(CLAIM_AHEAD),
        retry_pause_ns: Some(ns(RETRY_DELAY) * 9 / 10),
        drained,
        ..Terms::default()
    });
    history.iter().for_each(|record| checker.record(record.clone()));
    checker.finish()
}

#[cfg(test)]
mod tests {
    use windlass_proof::history::{Event, FaultKind, Target};

    use super::*;

    #[test]
    fn a_panic_outside_of_all_tasks_is_a_verdict_of_its_seed() {
        let settings = Settings { seed: 7, control: None, fleet: None };
        let verdict = play_by(settings, |world| async move {
            world.fault_began(FaultKind::PowerCut, Target::All);
            panic!("planted")
        });
        let verdict = verdict.unwrap();
        assert!(!verdict.is_clean());
        assert!(matches!(&verdict.problems[..], [panic] if panic.contains("planted")));
        let is_kept = |record: &Record| matches!(record.event, Event::FaultBegan { .. });
        assert!(verdict.history.iter().any(is_kept));
    }
}
