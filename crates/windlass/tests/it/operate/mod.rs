//! What an operator does and sees: starts and stops, the command line, logs, health.

mod archive;
mod bad_start;
mod cli;
mod doctor;
mod log;
mod observe;
mod packaging;
mod run;
mod start_stop;
mod unit;
