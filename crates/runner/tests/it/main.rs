//! Handlers run as they are in production: real processes, real servers on local ports.

#![allow(clippy::unwrap_used)]

mod cell;
mod cell_calls;
mod cell_end;
mod cell_memory;
mod cell_network;
mod cell_serial;
mod check;
mod close;
mod command;
mod confine;
mod context;
mod context_forge;
mod context_held;
mod context_slots;
mod end;
mod files;
mod harness;
mod http;
mod http_batch;
mod isolation;
mod namespace;
mod output;
mod server;
mod stop;
mod unread_answers;
