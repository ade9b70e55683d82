//! One running SQL server: asked, killed, started again.

use rustix::process::Signal;
use windlass_test_kit::process::run_patiently;

use crate::Kind;
use crate::host::Host;
use crate::install::installed;
use crate::kind::{PASSWORD, USER};

/// A private server. It ends when this is dropped or the process ends.
pub struct Server {
    kind: Kind,
    durable: bool,
    host: Host,
}

impl Server {
    /// A server that keeps what it acknowledged when it is killed.
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

    /// The number of its process while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.host.process_id()
    }

    /// A new, empty database; answers its name.
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

    /// Carries out SQL with the server's own client; answers lines of fields with tabs between.
    ///
    /// # Panics
    ///
    /// When the server refuses it.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|told| panic!("{sql}: {told}"))
    }

    /// # Errors
    ///
    /// What the client said when the server is away or refuses, or that nothing came.
    pub fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut client = self.kind.client(self.port(), database, sql);
        let Some(done) = run_patiently(client.current_dir("/"), "") else {
            self.host.note_silence();
            return Err("the server did not answer".to_owned());
        };
        if done.code == Some(0) { Ok(done.stdout) } else { Err(done.stderr) }
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.host.fault()
    }

    /// Ends it at once, as a power cut or the kernel would.
    pub fn kill(&self) {
        self.host.end(Signal::KILL);
    }

    /// Ends it as an administrator does.
    pub fn stop(&self) {
        let wanted = if self.kind == Kind::Postgres { Signal::INT } else { Signal::TERM };
        self.host.end(wanted);
    }

    /// It keeps its connections but does nothing, until it is thawed.
    pub fn freeze(&self) {
        self.host.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.host.signal(Signal::CONT);
    }

    /// Starts it again after it was ended, on the same port with the same data.
    pub fn restart(&self) {
        let serve = || self.kind.serve(&self.host.data(), self.port(), self.durable);
        let ask = || self.try_sql(self.kind.first_database(), "SELECT 1").map(drop);
        self.host.start(serve, ask);
    }
}
