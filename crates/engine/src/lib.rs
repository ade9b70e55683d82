//! The engine: a job's whole way, behind one handle that doors talk to.
//!
//! ```text
//!   add ─► accept ─► journal ─► ingest ─► store ─► claim ─► dispatch ─► runner
//!                                           ▲                   │
//!                                           └──── settle ◄──────┘
//! ```
//! | module | what it does |
//! |---|---|
//! | `engine` | the handle: every verb, nothing else |
//! | `accept` | jobs come in and are durable before the answer |
//! | `ingest` | from the journal (our own, or a dead daemon's) into the store |
//! | `schedule` | which type is next: pure |
//! | `claim` | jobs are taken under leases: by the dispatcher, by workers, by doors |
//! | `dispatch` | batches go to the runner; its reports become verdicts |
//! | `settle` | verdicts into the store, with the jobs that attempts asked for |
//! | `house` | what runs in the background so that nothing is lost, stuck or kept for ever |
//! | `ask` | everything else that doors want to know or to change |
//! | `ready` | who hears that jobs may run: scheduler, dispatcher, waiting workers |
//! | `daemon` | who this daemon is to the store: number, tokens, contact |
//! | `shared`, `start` | what the parts share; how they come up and go down |
//! | `api`, `options`, `error` | what goes in and out |
//! | `event`, `metrics` | what it tells: log lines and numbers |
//!
//! The engine knows core's traits and the journal, never a concrete store or runner.

mod accept;
pub mod api;
mod ask;
mod claim;
mod daemon;
mod dispatch;
mod engine;
mod error;
mod event;
mod house;
mod ingest;
pub mod metrics;
pub mod options;
mod ready;
mod schedule;
mod settle;
mod shared;
mod start;

pub use ask::read::PayloadReader;
pub use engine::Engine;
pub use error::Error;
pub use options::{Fairness, Options, Parts};
