//! What the tests stand on: databases, programs, requests, and waiting with bounded patience.

mod client;
mod den;
mod foreign;
mod home;
mod http;
mod mongo;
mod process;
mod proxy;
mod tls;
mod wait;
mod watch;

pub(crate) use client::client;
pub(crate) use den::{Fields, ORPHAN_AFTER, in_both, status_of};
pub(crate) use foreign::{Beating, Foreign};
pub(crate) use home::{DEMO, Dci, Dialect, Home, both};
pub(crate) use http::{Answer, Http, form, oid};
pub(crate) use mongo::{Mongo, block_on, mongohost, number, plain};
pub(crate) use process::{Ended, Program, free_port, run, windlass};
pub(crate) use proxy::Proxy;
pub(crate) use tls::Certificate;
pub(crate) use wait::{PATIENCE, until, until_some};
pub(crate) use watch::{Rule, Watch, is_alive};
