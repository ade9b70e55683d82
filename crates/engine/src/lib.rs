//! The engine: the whole life of a job, behind one handle for the doors.
//!
//! ```text
//!   add ─► accept ─► journal ─► ingest ─► store ─► claim ─► dispatch ─► runner
//!                                           ▲                   │
//!                                           └──── settle ◄──────┘
//! ```
//! | module | what it does |
//! |---|---|
//! | `engine` | the handle: every verb, nothing else |
//! | `accept` | jobs come in and are durable before the add is answered |
//! | `ingest` | from the journal (our own, or a dead daemon's) into the store |
//! | `schedule` | which type is next: pure |
//! | `claim` | jobs are taken under leases: by the dispatcher, by workers, by doors |
//! | `dispatch` | batches go to the runner; its reports become verdicts |
//! | `settle` | verdicts into the store, with the jobs that attempts emitted |
//! | `house` | what runs in the background so that nothing is lost, stuck or kept for ever |
//! | `ask` | everything else that doors read or change |
//! | `key` | API keys: a copy in memory, against which requests are checked |
//! | `audit` | who changed what, and who was refused |
//! | `secret` | secrets of handlers: sealed for the store, opened for a batch |
//! | `tenant` | settings of tenants: what changed is applied |
//! | `follow_up` | what follows a change of the store: log lines, metrics, announcements |
//! | `detach` | work that continues if its caller disconnects |
//! | `ready` | announces jobs that may run: to the scheduler, the dispatcher, waiting workers |
//! | `daemon` | this daemon's identity in the store: number, tokens, contact |
//! | `shared`, `start` | what the parts share; how they start and stop |
//! | `backup` | which files of a data directory a backup has, and in which order |
//! | `api`, `options`, `error` | the types of the façade |
//! | `event`, `metrics` | log lines and numbers |
//!
//! The engine knows core's traits and the journal, never a concrete store or runner.

mod accept;
pub mod api;
mod ask;
mod audit;
pub mod backup;
mod claim;
mod daemon;
mod detach;
mod dispatch;
mod engine;
mod error;
mod event;
mod follow_up;
mod house;
mod ingest;
mod key;
pub mod metrics;
pub mod options;
mod ready;
mod schedule;
mod secret;
mod settle;
mod shared;
mod start;
mod tenant;

pub use ask::read::PayloadReader;
pub use claim::untake::{PayloadBefore, Taken};
pub use engine::Engine;
pub use error::Error;
pub use options::{Fairness, Identity, Options, Parts};
pub use windlass_journal::RealDisk;
