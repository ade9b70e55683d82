//! The basis of the tests: databases, programs, requests, and bounded waits.

mod client;
mod den;
mod foreign;
mod home;
mod http;
mod mongo;
mod process;
mod proxy;
mod skew;
mod thread;
mod tls;
mod watch;

pub(crate) use client::client;
pub(crate) use den::{Fields, in_both, longer_lease, short_lease, status_of};
pub(crate) use foreign::{Beating, Foreign};
pub(crate) use home::{DEMO, Dci, Dialect, Home, both};
pub(crate) use http::{Http, form, oid};
pub(crate) use mongo::{Mongo, block_on, mongohost, number, plain};
pub(crate) use process::{is_alive, windlass};
pub(crate) use proxy::Proxy;
pub(crate) use skew::skewed;
pub(crate) use tls::Certificate;
pub(crate) use watch::{Rule, Watch};
pub(crate) use windlass_test_kit::http::Response as Answer;
pub(crate) use windlass_test_kit::port::free_port;
pub(crate) use windlass_test_kit::process::{Ended, Program, run};
pub(crate) use windlass_test_kit::wait::{PATIENCE, until, until_seen, until_some, when_some};
