//! The Disbatch door: an execution node, a task runner and a command interface on a MongoDB that
//! other programs use too. Collections, documents, routes and configuration files are those of
//! Disbatch, in both of its dialects, so that it can work beside the original or in its place.
//!
//! What we add stands below the field `windlass` of a document; no other field means anything new.

pub mod balance;
pub mod client;
pub mod config;
pub mod database;
pub mod dci;
pub mod den;
pub mod dialect;
pub mod doc;
pub mod gridfs;
pub mod relaxed;
pub mod status;
pub mod task;
#[cfg(test)]
mod tests;
