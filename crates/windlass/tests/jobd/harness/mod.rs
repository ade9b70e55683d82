//! The basis of the tests: databases, daemons, clients, and bounded waits.

mod base;
mod client;
mod conf;
mod daemon;
mod home;

pub(crate) use base::{Base, Row};
pub(crate) use client::{Client, error_zero};
pub(crate) use conf::Conf;
pub(crate) use daemon::{Daemon, program};
pub(crate) use home::Home;
pub(crate) use windlass_test_kit::port::free_port;
pub(crate) use windlass_test_kit::process::{Ended, is_alive, run};
pub(crate) use windlass_test_kit::wait::{PATIENCE, until, until_seen, until_some};
