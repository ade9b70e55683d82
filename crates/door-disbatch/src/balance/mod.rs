//! The balancer: adjusts the limits of queues so that all of them together run as many tasks as
//! allowed at the time of the week, more important queues first.
//!
//! | module | owns |
//! |---|---|
//! | `schedule` | how many tasks may run now |
//! | `step` | how they are shared between queues |
//! | `plan` | the document that defines both |
//! | `run` | the loop: every half minute, in one command interface at a time |

mod plan;
mod run;
mod schedule;
mod step;

pub(crate) use self::run::Balancer;
#[cfg(test)]
pub(crate) use self::run::{Change, Outcome};
pub(crate) use self::schedule::Schedule;
