//! What the tests stand on: databases, daemons, clients, and waiting with bounded patience.

mod base;
mod client;
mod conf;
mod daemon;
mod home;
mod wait;

pub(crate) use base::{Base, Row};
pub(crate) use client::{Client, error_zero};
pub(crate) use conf::Conf;
pub(crate) use daemon::{Daemon, Ended, free_port, program, run};
pub(crate) use home::Home;
pub(crate) use wait::{PATIENCE, until, until_some, wait_for};
