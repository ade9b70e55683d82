//! Starts real daemons and talks to them like any client.
//!
//! Nothing here knows the internals of Windlass: it sees processes, sockets, log lines and files.
//! Everything that a test starts is ended by its guard, by process id; every wait has a deadline.

mod api;
mod bedrock;
mod command;
mod daemon;
mod home;
mod lang;
mod log;
mod peer;
mod random;
mod store;

pub(crate) use api::{Client, Tenant, ids_of, text};
pub(crate) use bedrock::{Door, JobId, Link, Reply, id_of, keys_of, request, sqlite, sqlite_text};
pub(crate) use command::{find_keys, runtime_key, windlass};
pub(crate) use daemon::{Cluster, Config, Daemon, refused_start};
pub(crate) use home::{Home, file_bytes_below, files_below, sha256_of, snapshot};
pub(crate) use lang::{Case, Stage, in_every_language};
pub(crate) use log::field;
pub(crate) use peer::Peer;
pub(crate) use random::Random;
pub(crate) use store::{Store, StoreLock, python};
pub(crate) use windlass_test_kit::http::Response;
pub(crate) use windlass_test_kit::process::{
    Ended as Finished, SH_NAMESPACE as OWN_NS, is_alive, run,
};
pub(crate) use windlass_test_kit::wait::{until_seen as until, until_some};
