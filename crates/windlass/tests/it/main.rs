//! End-to-end tests of the `windlass` program, from outside: processes, sockets, files, logs.
//!
//! The tests are written from the contracts, not from the code. A name that starts with a number
//! such as `s0_42` proves that requirement; `docs/requirements.md` lists which test proves which.
//! Volumes are named constants, scaled so that the whole suite takes a few minutes on two cores.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod accept;
mod access;
mod bedrock;
mod bedrock_door;
mod context;
mod docs;
mod durability;
mod harness;
mod operate;
mod run;
mod schedule;
mod secret;
mod tls;
