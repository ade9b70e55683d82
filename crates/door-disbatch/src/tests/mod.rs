//! Tests of the Disbatch door's database parts, over the real wire protocol: one server for all, a
//! database for each.

mod balance;
mod base;
mod cancel;
mod claim;
mod counter;
mod dci;
mod den_lost;
mod due;
mod finish;
mod gridfs;
mod harness;
mod harness_den;
mod harness_task;
mod hold;
mod index;
mod lookalike;
mod lost;
mod node;
mod odd;
mod orphan;
mod proxy;
mod queue;
mod reach;
mod task_dtr;
mod task_end;
mod task_lost;
mod task_run;
