//! The balancer: limits of queues are moved so that all of them together run as many tasks as the
//! time of the week allows, and more important queues first.
//!
//! | file | owns |
//! |---|---|
//! | `schedule` | how many tasks may run now |
//! | `step` | how they are shared between queues |
//! | `plan` | the document that says both |
//! | `run` | doing it, every half minute, by one command interface at a time |

mod plan;
mod run;
mod schedule;
mod step;

pub(crate) use self::run::Balancer;
#[cfg(test)]
pub(crate) use self::run::{Change, Outcome};
pub(crate) use self::schedule::Schedule;
