//! One task from claimed to ended: it is started, handed to its plugin's program, waited for,
//! judged, and written back with its output.
//!
//! | module | owns |
//! |---|---|
//! | `run` | the way of one task, and what it needs |
//! | `handover` | what a plugin is told, and what it must be |
//! | `temp`, `response` | the files by which it is told, and answers |
//! | `outcome` | what its end means: the rules and every message |
//! | `write` | the end written to the database, as often as it takes |
//! | `ender` | how others end it |
//! | `dtr`, `order` | the stand-alone task runner, and its command line |

mod dtr;
mod ender;
mod handover;
mod order;
mod outcome;
mod response;
mod run;
mod temp;
mod write;

pub use self::dtr::runner;
pub(crate) use self::ender::{EndHandle, ender};
pub use self::order::Order;
pub(crate) use self::outcome::Why;
pub(crate) use self::run::{Parts, Ran, Work, run};
pub(crate) use self::temp::Temp;
pub(crate) use self::write::until_back;
