//! The engine: a job's whole way, behind one handle that doors talk to.
//!
//! ```text
//!   add ─► accept ─► journal ─► ingest ─► store ─► dispatch ─► batch ─► runner
//!                                           ▲                    │
//!                                           └───── settle ◄──────┘
//! ```
//! | module | what it does |
//! |---|---|
//! | `engine` | the handle: every verb, nothing else |
//! | `accept`, `child`, `idempotency` | jobs come in and are durable before anybody is told so |
//! | `ingest`, `adopt` | from the journal (our own, or a dead daemon's) into the store |
//! | `schedule` | which type is next: pure |
//! | `dispatch`, `batch` | claim, hand over to the runner, turn reports into verdicts |
//! | `settle`, `follow` | verdicts into the store, with the jobs that follow |
//! | `progress` | how far running jobs have come |
//! | `pull` | workers outside take jobs under leases that they renew, and report |
//! | `take`, `decide` | doors take and change jobs by pure decisions of their own |
//! | `waitlist`, `wait` | workers that wait for jobs by name, or go away while they do |
//! | `beat`, `keep`, `reap`, `purge`, `clock` | what keeps the house in order |
//! | `read`, `list`, `change` | everything else that doors ask for |
//! | `start` | how the parts come up and go down |
//! | `service`, `health` | the one shape of everything in the background; what went wrong there |
//!
//! The engine knows core's traits and the journal, never a concrete store or runner.

mod accept;
pub mod api;
mod ask;
mod claim;
mod dispatch;
mod engine;
mod error;
mod event;
mod house;
mod ingest;
mod lock;
pub mod metrics;
pub mod options;
mod schedule;
mod settle;
mod shared;
mod start;

pub use ask::read::PayloadReader;
pub use engine::Engine;
pub use error::Error;
pub use options::{Fairness, Options, Parts};
