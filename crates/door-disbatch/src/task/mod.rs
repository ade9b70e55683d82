//! One task from claim to end: start it, pass it to its plugin's program, wait, evaluate the
//! result, and write it back with its output.
//!
//! | module | owns |
//! |---|---|
//! | `run` | running one task |
//! | `handover` | the input of a plugin, and checks of its program |
//! | `temp`, `response` | the files for input and response |
//! | `outcome` | what the exit means: the rules and all messages |
//! | `write` | writing the end to the database, with retries |
//! | `end_signal` | ending it from outside |
//! | `dtr`, `args` | the stand-alone task runner, and its command line |

mod args;
mod dtr;
mod end_signal;
mod handover;
mod outcome;
mod response;
mod run;
mod temp;
mod write;

pub use self::args::RunnerArgs;
pub use self::dtr::runner;
pub(crate) use self::end_signal::{EndHandle, end_signal};
pub(crate) use self::outcome::StopReason;
pub(crate) use self::run::{RunContext, RunEnd, TaskToRun, run};
pub(crate) use self::temp::Temp;
pub(crate) use self::write::until_back;
