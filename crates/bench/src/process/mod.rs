//! Parts in their own processes, so that the CPU time and the memory of each are known.

pub(crate) mod child;
pub(crate) mod database;
pub(crate) mod server;
