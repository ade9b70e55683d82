//! Windlass without a door: the engine as a daemon starts it, the runners that it is given, and
//! queues that are run with nothing to do or in warm contexts.

pub(crate) mod backlog;
pub(crate) mod context;
pub(crate) mod daemon;
pub(crate) mod noop;
pub(crate) mod queue;
pub(crate) mod warm;
pub(crate) mod watched;
