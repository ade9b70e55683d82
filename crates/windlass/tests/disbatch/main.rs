//! Black-box tests of `windlass den`, `windlass dci` and `windlass disbatch`: the real binary, a
//! server that speaks MongoDB's wire protocol, and a database of its own for each test.
//!
//! They are written from the contract, not from the code; `docs/requirements.md` lists which test
//! proves which statement.

#![allow(clippy::unwrap_used)]

mod chaos;
mod client;
mod dci;
mod den;
mod dtr;
mod foreign_share;
mod harness;
mod packaging;
mod page;
mod task;
