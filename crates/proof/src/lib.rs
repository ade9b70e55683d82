//! Proof that nothing is lost: histories of runs, the checker over them, and the workload that
//! makes them. Drivers run real daemons, a simulation or a cluster, under faults; this crate knows
//! nothing of them. It reads no clock and opens no files, and the same input always gives the same
//! output.
//!
//! | module | owns |
//! |---|---|
//! | `history` | events as witnesses write them down; reading and merging their files |
//! | `check` | the rules, and the verdict on a history |
//! | `workload` | seeded operations for clients and workers, and seeded plans of faults |
//! | `ledger` | a history sorted by job, for the rules |
//!
//! A driver writes down what its clients do, and checks it at the end:
//!
//! ```text
//! let mut client = Workload::new(seed, 0, Mix::swarm(seed));
//! let operation = client.next_operation();
//! recorder.record(now(), &Event::Sent { op, who, via, what: operation.clone() })?;
//! let answer = send(&operation);
//! recorder.record(now(), &Event::Answered { op, answer: answer.clone() })?;
//! client.answered(&operation, &answer);
//! // … faults, restarts, and the final listing …
//! let report = check(&mut Merge::new(files)?, &Terms::default())?;
//! ensure!(report.is_clean(), "seed {seed}: {report}");
//! ```

pub mod check;
pub mod history;
mod ledger;
pub mod workload;
