//! Windlass without a door: the engine as a daemon starts it, its runners, and queues that run with
//! no work or in warm contexts.

pub(crate) mod backlog;
pub(crate) mod context;
pub(crate) mod daemon;
pub(crate) mod lone;
pub(crate) mod noop;
pub(crate) mod queue;
pub(crate) mod warm;
pub(crate) mod watched;
