//! `windlass disbatch`, the client.

mod access;
mod more;
mod queues;
mod tasks;
