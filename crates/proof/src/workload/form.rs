//! The forms of adds: options, sizes, and what the attempts are to do.

use fastrand::Rng;

use crate::history::{Form, JobId, Plan};

use super::mix::{Feature, Mix, Served};

const KIB: u64 = 1024;
const MS_NS: u64 = 1_000_000;
/// Unique keys of a type: few, so that they collide.
const UNIQUE_KEYS: u32 = 8;
/// Longest delay of an add.
const DELAY_MS_MAX: u64 = 3000;
/// Longest run of an attempt that takes its time.
const RUN_MS_MAX: u32 = 50;
/// Most jobs that one attempt emits.
const EMITS_MAX: u32 = 4;

/// Short intervals, so that a job repeats during a run.
const REPEATS: [&str; 3] =
    ["FINISHED, +1 SECONDS", "SCHEDULED, +2 SECONDS", "cron: */2 * * * * * Europe/Berlin"];

/// The statuses of a job's attempts; the last one ends it.
const FAILURES: [&[u16]; 6] =
    [&[500, 200], &[100, 200], &[503, 100, 200], &[400], &[500, 400], &[503, 503, 503, 200]];

/// What a form may refer to.
pub(super) struct Around<'a> {
    pub(super) mix: &'a Mix,
    pub(super) served: Served,
    pub(super) parent: Option<JobId>,
    pub(super) may_repeat: bool,
}

/// A form with these features. Those that do not apply are left out.
pub(super) fn form(rng: &mut Rng, features: &[Feature], around: &Around<'_>) -> Form {
    let mut form = Form { payload_bytes: payload_bytes(rng), ..Form::default() };
    if rng.u8(..8) == 0 {
        form.plan.run_ms = rng.u32(1..=RUN_MS_MAX);
    }
    for feature in features {
        match feature {
            Feature::Large => form.payload_bytes = rng.u64(KIB * KIB..=2 * KIB * KIB),
            Feature::Unique => form.unique = Some(format!("key-{}", rng.u32(..UNIQUE_KEYS))),
            Feature::Parent => form.parent = around.parent,
            Feature::Then => {
                let types = &around.mix.types;
                form.then = Some(types[rng.usize(..types.len())].name.clone());
            }
            Feature::Repeat if around.may_repeat => {
                form.repeat = Some(REPEATS[rng.usize(..REPEATS.len())].into());
            }
            Feature::Delay => form.delay_ns = Some(rng.u64(1..=DELAY_MS_MAX) * MS_NS),
            Feature::Priority => form.priority = Some(rng.u16(..=1000)),
            Feature::Emit if around.served == Served::Handler => {
                form.plan.emits = rng.u32(1..=EMITS_MAX);
            }
            Feature::Failing => form.plan.statuses = FAILURES[rng.usize(..FAILURES.len())].into(),
            _ => {}
        }
    }
    if features.contains(&Feature::Large) && rng.bool() {
        form.payload_bytes *= 2;
    }
    form.payload_bytes = form.payload_bytes.min(around.mix.payload_bytes_max);
    if form.plan != Plan::default() {
        // An empty payload has no room for a plan.
        form.payload_bytes = form.payload_bytes.max(1);
    }
    form
}

/// Mostly small, sometimes empty, now and then some tens of KiB.
fn payload_bytes(rng: &mut Rng) -> u64 {
    match rng.u8(..32) {
        0..2 => 0,
        2 => rng.u64(KIB..=64 * KIB),
        _ => rng.u64(1..=400),
    }
}
