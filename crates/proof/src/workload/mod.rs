//! Work for daemons under test: seeded operations for clients and workers, and seeded plans of
//! faults. The same seed always gives the same sequence, as long as the answers are the same.
//!
//! | module | owns |
//! |---|---|
//! | `mix` | which features a run has, in what proportion; random subsets of them (swarms) |
//! | `client` | the next operation of a client |
//! | `change` | its changes of types, handlers and, over Bedrock, of jobs |
//! | `form` | the forms of adds |
//! | `known` | the jobs that a client knows, in bounded memory |
//! | `worker` | what a worker claims, and what it does with a job |
//! | `payload` | payloads that say where a job comes from and what its attempts do |
//! | `fault` | plans of faults |

mod change;
mod client;
mod fault;
mod form;
mod known;
mod mix;
pub mod payload;
mod worker;

#[cfg(test)]
mod tests;

pub use client::Workload;
pub use fault::{Aim, FaultMix, PlannedFault, calm_at, fault_plan};
pub use known::KNOWN_JOBS_MAX;
pub use mix::{Feature, Mix, Served, TypeMix};
pub use worker::{Act, Worker};

/// Marks, result tags and generators of different clients never meet: each client has this many.
const MARKS_PER_CLIENT: u64 = 1 << 40;

/// A generator for one part of a run: parts with the same seed do not see the same numbers.
fn generator(seed: u64, part: &str, number: u64) -> fastrand::Rng {
    let named = part.bytes().fold(seed, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    });
    fastrand::Rng::with_seed(named ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
