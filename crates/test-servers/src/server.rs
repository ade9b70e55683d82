//! One running server: started, asked, killed, started again.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Kind;
use crate::install::{Folder, become_user, installed};
use crate::kind::{PASSWORD, USER};

/// A machine that is busy with other tests may need this long to start a server.
const START_TIME_MAX: Duration = Duration::from_secs(120);

/// Between two looks at whether it is there.
const PAUSE: Duration = Duration::from_millis(30);

/// Ports below those which the system gives to outgoing connections, so that a server finds its own
/// free when it starts again.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A private server. It ends when this is dropped or the process ends.
pub struct Server {
    kind: Kind,
    port: u16,
    durable: bool,
    process: Mutex<Option<Child>>,
    folder: Folder,
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
        let folder = installed(kind);
        let port = free_port();
        let server = Self { kind, port, durable, process: Mutex::new(None), folder };
        server.restart();
        server
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn user(&self) -> &'static str {
        USER
    }

    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The number of its process while it runs.
    pub fn process_id(&self) -> Option<u32> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.as_ref().map(Child::id)
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
        let (scheme, port) = (self.kind.scheme(), self.port);
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
    /// What the client said when the server is away or refuses.
    pub fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut client = self.kind.client(self.port, database, sql);
        client.current_dir("/").stdin(Stdio::null());
        let done = client.output().map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Ends it at once, as a power cut or the kernel would.
    pub fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Ends it as an administrator does.
    pub fn stop(&self) {
        let wanted = if self.kind == Kind::Postgres { Signal::INT } else { Signal::TERM };
        self.end(wanted);
    }

    /// It keeps its connections but does nothing, until it is thawed.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = &*process {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn end(&self, signal: Signal) {
        self.signal(signal);
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut child) = process.take() {
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.pid_file());
    }

    /// Starts it again after it was ended, on the same port with the same data. A try may fail
    /// because processes of the one that was killed are still ending.
    pub fn restart(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(process.is_none(), "it runs");
        let began = Instant::now();
        let mut child = self.spawn();
        while let Err(told) = self.try_sql(self.kind.first_database(), "SELECT 1") {
            let log = || fs::read_to_string(self.log()).unwrap_or_default();
            assert!(began.elapsed() < START_TIME_MAX, "no answer: {told}{}", log());
            thread::sleep(PAUSE);
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                child = self.spawn();
            }
        }
        *process = Some(child);
    }

    fn spawn(&self) -> Child {
        let log = File::create(self.log()).expect("a log in the server's folder");
        let mut command: Command = self.kind.serve(&self.folder.data(), self.port, self.durable);
        become_user(self.kind, &mut command, &self.folder);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        fs::write(self.pid_file(), format!("{}\n", child.id())).expect("a pid file");
        child
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.path.join("pid")
    }

    fn log(&self) -> PathBuf {
        self.folder.path.join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    const TRIES: usize = 1000;
    let tried = (0..TRIES).map(|_| fastrand::u16(PORTS));
    let mut free = tried.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().expect("a free port")
}
