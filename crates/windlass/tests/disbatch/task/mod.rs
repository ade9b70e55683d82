//! Running a task: the plugin, its result and its output.

mod handover;
mod odd;
mod outcome;
mod output;
