//! Plans of faults: which, where, when and for how long. The driver carries them out, and writes
//! down what it really did.

use fastrand::Rng;

use crate::history::FaultKind;

use super::generator;

/// What the faults of a run are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultMix {
    /// With their weights. The amount of a clock step is drawn anew each time.
    pub kinds: Vec<(FaultKind, u32)>,
    /// Begin with each kind once, as far as there is time; seeds that follow each other begin with
    /// different halves, so that two short runs have all kinds between them.
    pub each_first: bool,
    /// Daemons in the run, numbered from 0.
    pub daemons: u32,
    /// No fault begins or ends after this.
    pub run_ns: u64,
    pub lease_ns: u64,
    /// Longest pause between two faults.
    pub pause_ns_max: u64,
    /// Once, nothing happens for so long, for rules that judge only what no fault touches; 0 for
    /// never. A run that is not at least twice as long has no time for it.
    pub calm_ns: u64,
    pub faults_max: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFault {
    /// Since the begin of the run.
    pub at_ns: u64,
    /// How long it lasts: of a kill or power cut, until the daemon is started again.
    pub for_ns: u64,
    pub kind: FaultKind,
    pub aim: Aim,
    /// For choices that only the driver can make, such as which context.
    pub draw: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Everything that the daemons share.
    All,
    /// A daemon, by number.
    Daemon(u32),
    /// A context or worker that the driver chooses.
    Holder,
}

/// Longest clock step.
const STEP_HOURS_MAX: i64 = 48;
const HOUR_MS: i64 = 3_600_000;
/// Pauses in the opening are so many times shorter.
const OPENING_HASTE: u64 = 4;

const KINDS: [FaultKind; 15] = [
    FaultKind::Kill,
    FaultKind::Stop,
    FaultKind::Restart,
    FaultKind::PowerCut,
    FaultKind::DiskFull,
    FaultKind::ReadError,
    FaultKind::WriteError,
    FaultKind::FailedSync,
    FaultKind::ClockStep { by_ms: 0 },
    FaultKind::TornTail,
    FaultKind::DamagedJournal,
    FaultKind::DiskHang,
    FaultKind::StoreHang,
    FaultKind::StoreForgets,
    FaultKind::Partition,
];

impl FaultMix {
    /// All kinds that `possible` accepts, with equal weights.
    pub fn of(
        possible: impl Fn(&FaultKind) -> bool,
        daemons: u32,
        run_ns: u64,
        lease_ns: u64,
    ) -> FaultMix {
        let kinds = KINDS.into_iter().filter(possible).map(|kind| (kind, 1)).collect();
        let (pause_ns_max, faults_max) = (2 * lease_ns, 1000);
        let (each_first, calm_ns) = (false, 0);
        FaultMix { kinds, each_first, daemons, run_ns, lease_ns, pause_ns_max, calm_ns, faults_max }
    }

    /// Leaves out about half of the kinds, but not all, and weighs the others anew.
    pub fn swarm(mut self, seed: u64) -> FaultMix {
        let mut rng = generator(seed, "fault mix", 0);
        let kept = rng.usize(..self.kinds.len().max(1));
        let mut number = 0;
        self.kinds.retain_mut(|(_, weight)| {
            *weight = rng.u32(1..=10);
            number += 1;
            number - 1 == kept || rng.bool()
        });
        self
    }
}

/// When the calm stretch of a plan begins, if it has one: in its second half, so that what the plan
/// begins with has come.
pub fn calm_at(seed: u64, mix: &FaultMix) -> Option<u64> {
    let latest = mix.run_ns.checked_sub(mix.calm_ns)?;
    let earliest = mix.run_ns / 2;
    let mut rng = generator(seed, "fault calm", 0);
    (mix.calm_ns > 0 && earliest <= latest).then(|| rng.u64(earliest..=latest))
}

/// The faults of the run with this seed, in order. They do not overlap, but some follow each other
/// without a pause, as when a daemon is killed while it recovers.
pub fn fault_plan(seed: u64, mix: &FaultMix) -> Vec<PlannedFault> {
    let mut rng = generator(seed, "fault plan", 0);
    let mut plan = Vec::new();
    let mut now = 0_u64;
    let mut opening = opening(seed, mix).into_iter();
    let calm_at = calm_at(seed, mix).unwrap_or(u64::MAX);
    let calm_until = calm_at.saturating_add(mix.calm_ns);
    while plan.len() < mix.faults_max {
        let first = opening.next();
        let Some(kind) = first.or_else(|| draw_kind(&mut rng, mix)) else { break };
        let kind = amount(&mut rng, kind);
        let pause_ns_max = mix.pause_ns_max / if first.is_some() { OPENING_HASTE } else { 1 };
        let pause = if rng.u8(..4) == 0 { 0 } else { rng.u64(..=pause_ns_max) };
        let mut at_ns = now.saturating_add(pause);
        let for_ns = duration(&mut rng, kind, mix.lease_ns);
        if at_ns < calm_until && at_ns.saturating_add(for_ns) >= calm_at {
            at_ns = calm_until.saturating_add(pause);
        }
        now = at_ns.saturating_add(for_ns).saturating_add(1);
        if now > mix.run_ns {
            break;
        }
        let aim = match (aim(&mut rng, kind, mix.daemons), first) {
            // There may be none, and then nothing is done.
            (Aim::Holder, Some(_)) => Aim::Daemon(rng.u32(..mix.daemons.max(1))),
            (aim, _) => aim,
        };
        plan.push(PlannedFault { at_ns, for_ns, kind, aim, draw: rng.u64(..) });
    }
    plan
}

/// What a plan begins with.
fn opening(seed: u64, mix: &FaultMix) -> Vec<FaultKind> {
    if !mix.each_first {
        return Vec::new();
    }
    let mut rng = generator(seed, "fault opening", 0);
    let kinds: Vec<FaultKind> = mix.kinds.iter().map(|(kind, _)| *kind).collect();
    let (one, other) = kinds.split_at(kinds.len() / 2);
    let halves = if seed.is_multiple_of(2) { [one, other] } else { [other, one] };
    let shuffled = halves.into_iter().flat_map(|half| {
        let mut half = half.to_vec();
        rng.shuffle(&mut half);
        half
    });
    shuffled.collect()
}

fn draw_kind(rng: &mut Rng, mix: &FaultMix) -> Option<FaultKind> {
    let total: u32 = mix.kinds.iter().map(|(_, weight)| weight).sum();
    let mut left = rng.u32(..total.max(1));
    let drawn = mix.kinds.iter().find(|(_, weight)| {
        let hit = left < *weight;
        left = left.saturating_sub(*weight);
        hit
    });
    Some(drawn?.0)
}

/// The kind with what is drawn anew each time.
fn amount(rng: &mut Rng, kind: FaultKind) -> FaultKind {
    match kind {
        FaultKind::ClockStep { .. } => {
            let hours = rng.i64(1..=STEP_HOURS_MAX);
            let by_ms = if rng.bool() { hours * HOUR_MS } else { -hours * HOUR_MS };
            FaultKind::ClockStep { by_ms }
        }
        kind => kind,
    }
}

fn duration(rng: &mut Rng, kind: FaultKind, lease_ns: u64) -> u64 {
    match kind {
        FaultKind::Restart | FaultKind::ClockStep { .. } | FaultKind::StoreForgets => 0,
        // Half of them past the lease.
        FaultKind::Stop | FaultKind::DiskHang | FaultKind::StoreHang | FaultKind::Partition => {
            rng.u64(lease_ns / 4..=lease_ns * 7 / 4)
        }
        // A daemon that is back at once finds its own leases.
        FaultKind::Kill if rng.bool() => 0,
        FaultKind::PowerCut if rng.u8(..4) != 0 => 0,
        _ => rng.u64(..=lease_ns * 2),
    }
}

fn aim(rng: &mut Rng, kind: FaultKind, daemons: u32) -> Aim {
    match kind {
        FaultKind::PowerCut
        | FaultKind::DiskFull
        | FaultKind::ReadError
        | FaultKind::WriteError
        | FaultKind::FailedSync
        | FaultKind::ClockStep { .. }
        | FaultKind::DiskHang
        | FaultKind::StoreHang
        | FaultKind::StoreForgets => Aim::All,
        FaultKind::Kill | FaultKind::Stop if rng.u8(..4) == 0 => Aim::Holder,
        _ => Aim::Daemon(rng.u32(..daemons.max(1))),
    }
}
