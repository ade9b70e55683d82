//! Histories: what happened in a run, as it was seen from outside.
//!
//! Clients, workers, handlers and the fault injector each write down what they did and saw, in
//! files outside the data directory, one line of JSON for each event:
//!
//! ```text
//! {"at":1200345,"event":{"answered":{"op":7,"answer":{"done":{"ids":["310"]}}}}}
//! ```
//!
//! `at` is in nanoseconds since the run began, by one clock for the whole run.
//!
//! | module | owns |
//! |---|---|
//! | `id` | job ids and tokens, which are written as text |
//! | `operation` | requests of clients and workers |
//! | `event` | everything that is written down |
//! | `fault` | kinds and targets of faults |
//! | `write` | writing one witness's file |
//! | `read` | reading it, with a torn last line |
//! | `merge` | one history from many files |

mod event;
mod fault;
mod id;
mod merge;
mod operation;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use event::{
    Answer, Began, Body, Claimed, DaemonEvent, Ended, Event, Origin, Outcome, Seen, State,
};
pub use fault::{FaultKind, Target};
pub use id::{JobId, Token};
pub use merge::Merge;
pub use operation::{Add, Flaw, Form, Operation, Plan};
pub use read::{LINE_BYTES_MAX, ReadError, Record, Source, WINDOW_LINES_MAX};
pub use write::Recorder;
