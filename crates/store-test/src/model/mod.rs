//! The model test: the reference store and the store under test carry out the same random
//! operations from a seed, and must give the same answers. There are few tenants, types and ids, so
//! that operations often affect each other.
//!
//! Where the contract leaves a choice (the order of types, how a listing is split into pages, which
//! free sysid is granted), the answers are normalised first: see `answer`.

mod answer;
mod changed;
mod decide;
mod kin;
mod op;
mod value;
mod world;

use std::sync::Arc;

use windlass_core::memory::MemoryStore;
use windlass_core::store::{Claim, Hold, SysidGrant, SysidRenew, SysidReserve};
use windlass_core::{Job, State};

use crate::Harness;
use crate::fixture::LEASE;
use crate::fixture::{Subject, everything_of};
use changed::Follower;
use op::Op;
use world::World;

/// Steps of one seed in the suite.
const STEPS: u32 = 300;
/// Everything is compared after each so many steps.
const STEPS_BETWEEN_FULL: u32 = 100;
/// Operations before a failure that are printed with it.
const TRACE_MAX: usize = 12;

pub async fn seeds_1_to_5(harness: &dyn Harness) {
    for seed in 1..=5 {
        run(harness, seed, STEPS).await;
    }
}

pub async fn seeds_6_to_10(harness: &dyn Harness) {
    for seed in 6..=10 {
        run(harness, seed, STEPS).await;
    }
}

pub async fn seeds_11_to_15(harness: &dyn Harness) {
    for seed in 11..=15 {
        run(harness, seed, STEPS).await;
    }
}

pub async fn seeds_16_to_20(harness: &dyn Harness) {
    for seed in 16..=20 {
        run(harness, seed, STEPS).await;
    }
}

/// Compares a fresh store with the reference store over that many random operations. If they
/// differ, prints the seed and the last operations, and panics. With an odd seed, two daemons take
/// turns if the store can be shared. A store that keeps its data when it is closed is reopened now
/// and then, and one that can lose what was not synced loses it.
pub async fn run(harness: &dyn Harness, seed: u64, steps: u32) {
    let mut handles = vec![Subject::fresh(harness).await];
    if seed % 2 == 1 {
        handles.extend(harness.second().await.map(|store| Subject::of(harness, store)));
    }
    let memory = Arc::new(MemoryStore::undoable(true, harness.clock()));
    let mut model = Model {
        world: World::new(seed, harness.clock()),
        reference: Subject::of(harness, memory.clone()),
        memory,
        handles,
        grants: Vec::new(),
        followers: Default::default(),
        trace: Trace { seed, step: 0, ops: Vec::new() },
    };
    for step in 1..=steps {
        model.trace.step = step;
        let op = model.world.next(&model.reference).await;
        model.trace.note(format!("{:?}: {op:?}", model.world.now));
        match op {
            Op::Undo => model.undo(harness).await,
            op => model.step(op).await,
        }
        model.check_families().await;
        if step % STEPS_BETWEEN_FULL == 0 || step == steps {
            model.compare_everything().await;
            model.reopen(harness).await;
        }
    }
}

struct Model {
    world: World,
    reference: Subject,
    memory: Arc<MemoryStore>,
    /// Handles on the data of the store under test.
    handles: Vec<Subject>,
    /// The grants of the reference and of the store under test for the same reservation.
    grants: Vec<(SysidGrant, SysidGrant)>,
    /// Of the reference and of the store under test.
    followers: [Follower; 2],
    trace: Trace,
}

impl Model {
    async fn step(&mut self, op: Op) {
        match op {
            Op::SysidReserve(reserve) => self.sysid_reserve(reserve).await,
            Op::ClaimOnBeat { nth, claim } => {
                let Some((by_reference, by_subject)) = self.grant(nth) else { return };
                assert_eq!(by_reference, by_subject, "boot numbers follow from the time alone");
                let SysidGrant { sysid, boot } = by_subject;
                let claim = Claim { owner: sysid, hold: Hold::Beat(boot), ..claim };
                self.compare(&Op::Claim(claim)).await;
            }
            Op::SysidRenew { nth, id_newest } => {
                let Some((by_reference, by_subject)) = self.grant(nth) else { return };
                let renew = |grant| SysidRenew { grant, lease: LEASE, id_newest, report: None };
                let expected = self.reference.sysid_renew(renew(by_reference)).await.ok();
                let seen = self.subject().sysid_renew(renew(by_subject)).await.ok();
                assert_eq!(seen, expected, "renewed {by_subject:?}");
            }
            Op::SysidRelease { nth } => {
                let Some((by_reference, by_subject)) = self.grant(nth) else { return };
                let (sysid, boot) = (by_reference.sysid, by_reference.boot);
                self.reference.sysid_release(sysid, boot).await.unwrap();
                self.subject().sysid_release(by_subject.sysid, by_subject.boot).await.unwrap();
                // The contract does not say whether a released sysid can be renewed.
                self.grants.retain(|(granted, _)| *granted != by_reference);
            }
            Op::SetClock(by_ms) => {
                // A store may notice due jobs or a clock that was set at any time; after a look and
                // a write, both have.
                self.reference.waiting(self.world.now).await;
                self.subject().waiting(self.world.now).await;
                self.world.set_clock(by_ms);
                let expected = self.reference.boot_next().await;
                assert_eq!(self.subject().boot_next().await, expected);
            }
            Op::LookAtChanged => self.look_at_changed().await,
            op => self.compare(&op).await,
        }
    }

    async fn look_at_changed(&mut self) {
        let subject = self.subject();
        let [of_reference, of_subject] = &mut self.followers;
        of_reference.look(&self.reference).await;
        of_subject.look(&subject).await;
    }

    async fn compare(&mut self, op: &Op) {
        let expected = answer::of(&self.reference, op, &mut self.world).await;
        let subject = self.subject();
        let seen = answer::of(&subject, op, &mut self.world).await;
        assert!(
            seen == expected,
            "\nthe answers differ\nreference: {expected}\nthis store: {seen}\n"
        );
        if answer::is_error(&seen) {
            self.flush().await;
        }
    }

    /// Makes both stores durable up to here. For example, a call that failed may or may not have
    /// synced what came before it.
    async fn flush(&mut self) {
        self.reference.flush().await.unwrap();
        self.subject().flush().await.unwrap();
    }

    /// Does nothing for a store that cannot do this.
    async fn undo(&mut self, harness: &dyn Harness) {
        let undone = harness.undo_relaxed(self.handles[0].store.clone()).await;
        let Some(undone) = undone else { return };
        self.memory.undo_relaxed();
        // A daemon begins again when revisions went back.
        self.followers = Default::default();
        let handles = self.handles.len();
        self.handles = vec![Subject::of(harness, undone)];
        if handles > 1 {
            self.handles.extend(harness.second().await.map(|store| Subject::of(harness, store)));
        }
        self.compare_everything().await;
    }

    /// The store chooses which free sysid it grants, so the reference is asked for the same one.
    async fn sysid_reserve(&mut self, reserve: SysidReserve) {
        let seen = self.subject().sysid_reserve(reserve.clone()).await;
        let wanted = seen.as_ref().map(|grant| grant.sysid).ok().or(reserve.wanted);
        let expected = self.reference.sysid_reserve(SysidReserve { wanted, ..reserve }).await;
        match (expected, seen) {
            (Ok(expected), Ok(seen)) => {
                let grown = self.grants.iter().all(|(_, earlier)| earlier.boot < seen.boot);
                assert!(grown && seen.sysid == expected.sysid, "granted {seen:?}");
                self.grants.push((expected, seen));
            }
            (Err(_), Err(_)) => self.flush().await,
            (expected, seen) => panic!("the reference has {expected:?}, this store {seen:?}"),
        }
    }

    /// The handle whose turn it is.
    fn subject(&mut self) -> Subject {
        self.handles[self.world.choose(self.handles.len())].clone()
    }

    /// Does nothing for a store that loses its data when it is closed.
    async fn reopen(&mut self, harness: &dyn Harness) {
        // Closing may or may not sync.
        self.flush().await;
        if let Some(reopened) = harness.reopen(self.handles[0].store.clone()).await {
            self.trace.note("opened again".into());
            self.handles[0] = Subject::of(harness, reopened);
        }
    }

    fn grant(&self, nth: usize) -> Option<(SysidGrant, SysidGrant)> {
        let count = self.grants.len();
        (count > 0).then(|| self.grants[nth % count])
    }

    /// A job that is paused for its children has some to wait for.
    async fn check_families(&self) {
        for tenant in value::tenants() {
            let jobs = self.reference.listed(everything_of(tenant)).await;
            let waits = |job: &&Job| job.state == State::Paused && job.children;
            for parent in jobs.iter().filter(waits) {
                let awaited = |child: &Job| {
                    let ended = matches!(child.state, State::Finished | State::Cancelled);
                    child.parent == Some(parent.id) && !ended
                };
                assert!(jobs.iter().any(awaited), "{} waits for nobody", parent.id);
            }
        }
    }

    /// Everything that can be read.
    async fn compare_everything(&mut self) {
        self.look_at_changed().await;
        for op in self.world.all_reads() {
            self.trace.note(format!("full comparison: {op:?}"));
            self.compare(&op).await;
        }
        let mut newest = None;
        for tenant in value::tenants() {
            let jobs = self.reference.listed(everything_of(tenant)).await;
            newest = newest.max(jobs.first().map(|job| job.id));
        }
        let known = self.subject().id_newest().await.unwrap();
        assert!(known >= newest, "the newest id is {newest:?}, this store knows {known:?}");
        assert!(known <= self.world.id_newest, "this store knows {known:?}, which nobody made");
    }
}

/// Prints what led to a failure.
struct Trace {
    seed: u64,
    step: u32,
    ops: Vec<String>,
}

impl Trace {
    fn note(&mut self, op: String) {
        if self.ops.len() == TRACE_MAX {
            self.ops.remove(0);
        }
        self.ops.push(op);
    }
}

impl Drop for Trace {
    #[allow(clippy::print_stderr)] // It belongs into the output of the failed test.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("model test, seed {}, step {}; it did:", self.seed, self.step);
            for op in &self.ops {
                eprintln!("  {op}");
            }
        }
    }
}
