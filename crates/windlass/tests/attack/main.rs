//! Attacks on the real `windlass` program, over its doors: each fails to get in, and next to it
//! stands a control that ordinary use still works.

#![allow(clippy::unwrap_used)]

mod batch;
mod browser;
#[cfg(target_arch = "x86_64")]
mod calls;
mod container;
mod door;
mod errors;
mod files;
mod flood;
#[path = "../it/harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "each target uses a part of it")]
mod harness;
mod jobd;
#[path = "../jobd/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each target uses a part of it")]
mod jobd_harness;
mod keys;
mod limits;
mod links;
mod memory;
mod network;
mod processes;
mod query;
mod sandbox;
#[cfg(target_arch = "x86_64")]
mod tenants;
mod terminal;
mod users;
