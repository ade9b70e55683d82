//! The client of all servers, and the loads that it generates: adds, cycles of jobs, and workers
//! that wait.

pub(crate) mod bedrock;
pub(crate) mod client;
pub(crate) mod crowd;
pub(crate) mod cycle;
pub(crate) mod depth;
pub(crate) mod round;
