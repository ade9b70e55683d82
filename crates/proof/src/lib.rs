//! Proof that nothing is lost: histories of runs, the checker over them, and the workload that
//! makes them. Drivers run real daemons, a simulation or a cluster, under faults; this crate knows
//! nothing of them. It reads no clock and opens no files, and the same input always gives the same
//! output.
//!
//! | module | owns |
//! |---|---|
//! | `history` | events as witnesses write them down; reading and merging their files |
//! | `check` | the rules, and the verdict on a history |
//! | `ledger` | a history sorted by job, for the rules |

pub mod check;
pub mod history;
mod ledger;
