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
/// Longest life of a job that expires.
const EXPIRY_MS_MAX: u64 = 5000;
/// Bedrock's `retryAfter`.
const RETRY_AFTER_S_MAX: u64 = 4;
/// Longest run of an attempt that takes its time.
const RUN_MS_MAX: u32 = 50;
/// Longest run of the few that are still at work when something happens to their holder.
const LONG_RUN_MS_MAX: u32 = 900;
/// Longest run of those that outlive a lease, and whose end comes when another attempt has begun.
const STUBBORN_RUN_MS_MAX: u32 = 3000;
/// Most jobs that one attempt emits.
const EMITS_MAX: u32 = 4;
/// Most children of one attempt.
const CHILDREN_MAX: u32 = 3;

/// Short intervals, so that a job repeats during a run.
const REPEATS: [&str; 4] =
    [RAPID, "FINISHED, +1 SECONDS", "SCHEDULED, +2 SECONDS", "cron: */2 * * * * * Europe/Berlin"];

/// Round follows round.
const RAPID: &str = "FINISHED, +0 SECONDS";

/// Priorities that Bedrock knows.
const BEDROCK_PRIORITIES: [u16; 6] = [0, 250, 500, 750, 850, 1000];

/// The statuses of a job's attempts; the last one ends it.
const FAILURES: [&[u16]; 6] =
    [&[500, 200], &[100, 200], &[503, 100, 200], &[400], &[500, 400], &[503, 503, 503, 200]];

/// What a form may refer to.
pub(super) struct Around<'a> {
    pub(super) mix: &'a Mix,
    /// Of the tenant and of the type.
    pub(super) place: (usize, usize),
    pub(super) parent: Option<JobId>,
    pub(super) may_repeat: bool,
}

/// A form with these features. Those that do not apply are left out.
pub(super) fn form(rng: &mut Rng, features: &[Feature], around: &Around<'_>) -> Form {
    let mut form = Form { payload_bytes: payload_bytes(rng), ..Form::default() };
    form.plan.run_ms = match rng.u8(..64) {
        0 => rng.u32(1..=LONG_RUN_MS_MAX),
        1..9 => rng.u32(1..=RUN_MS_MAX),
        _ => 0,
    };
    let served = around.mix.types[around.place.1].served;
    for feature in features {
        match feature {
            Feature::Large => form.payload_bytes = rng.u64(KIB * KIB..=2 * KIB * KIB),
            Feature::Unique => form.unique = Some(format!("key-{}", rng.u32(..UNIQUE_KEYS))),
            Feature::Parent => form.parent = around.parent,
            Feature::Then => {
                let types = &around.mix.types;
                let drawn = rng.usize(..types.len());
                let served = around.mix.is_served(around.place.0, drawn);
                let of = if served { drawn } else { around.place.1 };
                form.then = Some(types[of].name.clone());
            }
            Feature::Repeat if around.may_repeat => {
                let repeat = REPEATS[rng.usize(..REPEATS.len())];
                form.repeat = Some(repeat.into());
                if repeat == RAPID {
                    form.plan.run_ms = rng.u32(1..=RUN_MS_MAX);
                }
            }
            Feature::Delay => form.delay_ns = Some(rng.u64(1..=DELAY_MS_MAX) * MS_NS),
            Feature::Priority => form.priority = Some(rng.u16(..=1000)),
            Feature::Emit if served == Served::Handler => {
                form.plan.emits = rng.u32(1..=EMITS_MAX);
                let longest = if rng.u8(..4) == 0 { STUBBORN_RUN_MS_MAX } else { LONG_RUN_MS_MAX };
                form.plan.run_ms = rng.u32(..=longest);
            }
            Feature::Expiry => form.expires_ns = Some(rng.u64(1..=EXPIRY_MS_MAX) * MS_NS),
            Feature::Children => form.plan.children = rng.u32(1..=CHILDREN_MAX),
            Feature::Progress => form.plan.progress = true,
            Feature::Failing => form.plan.statuses = FAILURES[rng.usize(..FAILURES.len())].into(),
            _ => {}
        }
    }
    if features.contains(&Feature::Large) && rng.bool() {
        form.payload_bytes *= 2;
    }
    if form.plan.children > 0 {
        // Children have no children, and those of a failed attempt would have no parent.
        form.plan.statuses.clear();
        form.plan.children *= u32::from(form.parent.is_none());
    }
    form.payload_bytes = form.payload_bytes.min(around.mix.payload_bytes_max);
    if form.plan != Plan::default() {
        // An empty payload has no room for a plan.
        form.payload_bytes = form.payload_bytes.max(1);
    }
    form
}

/// Leaves only what `CreateJob` knows.
pub(super) fn for_bedrock(rng: &mut Rng, form: &mut Form) {
    (form.unique, form.then, form.expires_ns) = (None, None, None);
    // `firstRun` is a time of the wall clock, and a large request takes long to build.
    form.delay_ns = form.delay_ns.filter(|_| form.payload_bytes <= 64 * KIB);
    form.repeat = form.repeat.take().filter(|repeat| !repeat.starts_with("cron"));
    let priority = BEDROCK_PRIORITIES[rng.usize(..BEDROCK_PRIORITIES.len())];
    form.priority = form.priority.map(|_| priority);
    if form.repeat.is_none() && rng.u8(..3) == 0 {
        form.retry_after_ns = Some(rng.u64(2..=RETRY_AFTER_S_MAX) * 1000 * MS_NS);
    }
}

/// Mostly small, sometimes empty, now and then some tens of KiB.
fn payload_bytes(rng: &mut Rng) -> u64 {
    match rng.u8(..32) {
        0..2 => 0,
        2 => rng.u64(KIB..=64 * KIB),
        _ => rng.u64(1..=400),
    }
}
