//! The HTTP door over real sockets, with the real engine on the reference store.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test's own helpers")]

mod access;
mod add;
mod audit;
mod client;
mod connection;
mod daemon;
mod handlers;
mod jobs;
mod operate;
mod pull;
mod refuse;
mod refuse_others;
mod result;
mod site;
mod tenants;
