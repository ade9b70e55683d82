//! Black-box tests of `jobd`, `jobd-master` and `jobctl`: the real binary under its names, and a
//! private MariaDB.
//!
//! They are written from the contract, not from the code; `docs/requirements.md` lists which test
//! proves which statement.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod config;
mod config_value;
mod ctl;
mod harness;
mod kill;
mod master;
mod master_manual;
mod outage;
mod password;
mod poll;
mod run;
mod run_output;
mod stop;
mod storage;
mod wire;
mod worker;
