//! A running SQL server: queried, killed, restarted.

use std::process::Command;

use rustix::process::Signal;
use windlass_test_kit::process::run_patiently;

use crate::Kind;
use crate::host::Host;
use crate::install::installed;
use crate::kind::{PASSWORD, USER};

/// A private server. It ends on drop or with the process.
pub struct Server {
    kind: Kind,
    durable: bool,
    host: Host,
}

impl Server {
    /// Starts a server that keeps acknowledged writes when it is killed.
    pub fn start(kind: Kind) -> Self {
        Self::begin(kind, true)
    }

    pub(crate) fn start_for_speed(kind: Kind) -> Self {
        Self::begin(kind, false)
    }

    fn begin(kind: Kind, durable: bool) -> Self {
        let server = Self { kind, durable, host: Host::new(installed(kind)) };
        server.restart();
        server
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn port(&self) -> u16 {
        self.host.port
    }

    pub fn user(&self) -> &'static str {
        USER
    }

    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The id of its process while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.host.process_id()
    }

    /// Creates a database and returns its name.
    pub fn new_database(&self) -> String {
        let name = format!("test_{:016x}", fastrand::u64(..));
        let charset = if self.kind == Kind::MariaDb { " CHARACTER SET utf8mb4" } else { "" };
        self.sql(self.kind.first_database(), &format!("CREATE DATABASE {name}{charset}"));
        name
    }

    /// `mysql://user:password@host:port/database` or the same for PostgreSQL.
    pub fn url(&self, database: &str) -> String {
        let (scheme, port) = (self.kind.scheme(), self.port());
        format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/{database}")
    }

    /// Executes SQL with the server's own client; returns lines of fields separated by tabs.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|told| panic!("{sql}: {told}"))
    }

    /// # Errors
    ///
    /// The client's error if the server is unavailable or refuses, or a timeout.
    pub fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut client = self.kind.client(self.port(), database, sql);
        let Some(done) = run_patiently(client.current_dir("/"), "") else {
            self.host.note_silence();
            return Err("the server did not answer".to_owned());
        };
        if done.code == Some(0) { Ok(done.stdout) } else { Err(done.stderr) }
    }

    /// Its own client on this database, which executes what it reads from its input.
    pub(crate) fn session(&self, database: &str) -> Command {
        let mut client = self.kind.session(self.port(), database);
        client.current_dir("/");
        client
    }

    /// Why it is unusable, if it is.
    pub fn fault(&self) -> Option<String> {
        self.host.fault()
    }

    /// Kills it, as a power cut or the kernel would.
    pub fn kill(&self) {
        self.host.end(Signal::KILL);
    }

    /// Terminates it as an administrator would.
    pub fn stop(&self) {
        let wanted = if self.kind == Kind::Postgres { Signal::INT } else { Signal::TERM };
        self.host.end(wanted);
    }

    /// Freezes it: it keeps its connections but does nothing until it is thawed.
    pub fn freeze(&self) {
        self.host.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.host.signal(Signal::CONT);
    }

    /// Restarts it on the same port with the same data.
    pub fn restart(&self) {
        let serve = || self.kind.serve(&self.host.data(), self.port(), self.durable);
        let ask = || self.try_sql(self.kind.first_database(), "SELECT 1").map(drop);
        self.host.start(serve, ask);
    }
}
