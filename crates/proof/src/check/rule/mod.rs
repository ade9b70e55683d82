//! The rules, one module each.
//!
//! | module | promise |
//! |---|---|
//! | `whole` | the history itself is whole |
//! | `lost` | an acknowledged job is there at the end, as it was added |
//! | `stuck` | a job that could run has ended when the run was drained |
//! | `after_end` | a job does not run after an acknowledged end |
//! | `overlap` | a job has one owner at a time |
//! | `token` | the tokens of a job grow |
//! | `extra_run` | each run beyond the first is explained |
//! | `in_force` | an acknowledged finish or cancel is in force, once |
//! | `deleted` | a deleted job is gone |
//! | `suspended` | nothing of a suspended type starts |
//! | `follower` | what follows a job, or was emitted by it, enters once |
//! | `add_once` | an add adds its jobs once |
//! | `payload` | the payload of a job is that of its add |
//! | `refused` | a refused request has no effect |
//! | `idempotency` | one idempotency key means one set of jobs |
//! | `unique` | a unique key has one live holder |
//! | `concurrency` | no more jobs of a type run at a time than allowed |
//! | `rate` | no more jobs of a type start in a time than allowed |
//! | `order` | jobs of a type start in the order of their adds |
//! | `fairness` | a type is not passed over too often |
//! | `early` | a job does not start before its time |
//! | `expired` | a job whose time is over is not claimed |
//! | `round` | a job that repeats comes due again |
//! | `family` | parents and children wait for each other |
//! | `fence` | only the newest claim of a job is obeyed |
//! | `counts` | the status counts the jobs that are listed |
//! | `segment` | shared by limits: when which limit was certainly in force |

mod add_once;
mod after_end;
mod concurrency;
mod counts;
mod deleted;
mod early;
mod expired;
mod extra_run;
mod fairness;
mod family;
mod fence;
mod follower;
mod idempotency;
mod in_force;
mod lost;
mod order;
mod overlap;
mod payload;
mod rate;
mod refused;
mod round;
mod segment;
mod stuck;
mod suspended;
mod token;
mod unique;
mod whole;

use crate::ledger::Ledger;

use super::terms::Terms;
use super::violation::Findings;

/// A promise that histories are checked for.
pub struct Rule {
    pub name: &'static str,
    /// The promise, in one sentence.
    pub promise: &'static str,
    pub(super) check: fn(&Ledger, &Terms, &mut Findings),
}

pub static RULES: [Rule; 26] = [
    Rule { name: "whole", promise: "The history itself is whole.", check: whole::check },
    Rule {
        name: "lost",
        promise: "An acknowledged job is there at the end, as it was added, unless it was deleted.",
        check: lost::check,
    },
    Rule {
        name: "stuck",
        promise: "When nothing is left to do, every job that could run has ended.",
        check: stuck::check,
    },
    Rule {
        name: "after_end",
        promise: "A job does not run after an acknowledged end.",
        check: after_end::check,
    },
    Rule {
        name: "overlap",
        promise: "No two holders have a job at the same time with valid leases.",
        check: overlap::check,
    },
    Rule {
        name: "token",
        promise: "The tokens of a job grow, and none is issued twice.",
        check: token::check,
    },
    Rule {
        name: "extra_run",
        promise: "Each run beyond the first has a reason in the history.",
        check: extra_run::check,
    },
    Rule {
        name: "in_force",
        promise: "An acknowledged finish or cancel is in force at the end, once.",
        check: in_force::check,
    },
    Rule {
        name: "deleted",
        promise: "A job whose delete was acknowledged is gone.",
        check: deleted::check,
    },
    Rule {
        name: "suspended",
        promise: "No job of a suspended type starts.",
        check: suspended::check,
    },
    Rule {
        name: "follower",
        promise: "What follows a job or was emitted by it enters once, if the job ended well.",
        check: follower::check,
    },
    Rule {
        name: "add_once",
        promise: "An add adds each of its jobs once, with its own payload.",
        check: add_once::check,
    },
    Rule {
        name: "payload",
        promise: "The payload of an acknowledged job is that of its add, wherever it is read.",
        check: payload::check,
    },
    Rule { name: "refused", promise: "A refused request has no effect.", check: refused::check },
    Rule {
        name: "idempotency",
        promise: "All adds with one idempotency key get the same jobs.",
        check: idempotency::check,
    },
    Rule {
        name: "unique",
        promise: "A unique key has at most one live holder.",
        check: unique::check,
    },
    Rule {
        name: "concurrency",
        promise: "No more jobs of a type run at a time than its limit.",
        check: concurrency::check,
    },
    Rule {
        name: "rate",
        promise: "No more jobs of a type start in any time than its rate allows.",
        check: rate::check,
    },
    Rule {
        name: "order",
        promise: "Plain jobs of a type start in the order of their adds.",
        check: order::check,
    },
    Rule {
        name: "fairness",
        promise: "A type with ready jobs is not passed over more often than the bound.",
        check: fairness::check,
    },
    Rule {
        name: "early",
        promise: "A job does not start before its time, nor before its pause is over.",
        check: early::check,
    },
    Rule {
        name: "expired",
        promise: "A job whose time is over is not claimed any more.",
        check: expired::check,
    },
    Rule {
        name: "round",
        promise: "A job that repeats comes due again after the end of a round.",
        check: round::check,
    },
    Rule {
        name: "family",
        promise: "A parent waits for its children, and they wait for its attempt to end.",
        check: family::check,
    },
    Rule {
        name: "fence",
        promise: "Only the newest claim of a job is obeyed, and its result counts.",
        check: fence::check,
    },
    Rule {
        name: "counts",
        promise: "The status counts exactly the jobs that are listed.",
        check: counts::check,
    },
];
