//! Private servers that tests crash. A server that one test has given back is lent to the next.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use windlass_core::sync::lock;
use windlass_test_kit::wait::{until, until_some};
use windlass_test_servers::{Kind, Server};

static IDLE: Mutex<Vec<Held>> = Mutex::new(Vec::new());
static SCHEMAS: AtomicUsize = AtomicUsize::new(0);

const DATABASE: &str = "postgres";

/// A server that no other test uses at the same time.
///
/// What is committed relaxed stays in the memory of the server: only synced commits write the log,
/// because the process that would write it in the background stands still. Nothing is synced to
/// disk either, which makes no difference to a crash of the server alone.
pub(crate) struct Lent {
    held: Option<Held>,
}

/// A server, and its process that writes relaxed commits, which is stopped.
struct Held {
    server: Server,
    writer: Mutex<i32>,
}

/// Commits must not be written for any other reason than that they are synced.
const SETTINGS: [&str; 7] = [
    "fsync = off",
    "autovacuum = off",
    "checkpoint_timeout = '1h'",
    "bgwriter_lru_maxpages = 0",
    "wal_writer_delay = '10s'",
    "wal_writer_flush_after = '1GB'",
    "log_min_messages = fatal",
];

impl Lent {
    pub(crate) fn new() -> Lent {
        let idle = lock(&IDLE).pop();
        Lent { held: Some(idle.unwrap_or_else(started)) }
    }

    pub(crate) fn url(&self) -> String {
        self.held().server.url(DATABASE)
    }

    /// A name that no other schema has.
    pub(crate) fn new_schema(&self) -> String {
        format!("store_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
    }

    /// Crashes the server; returns once it has recovered.
    pub(crate) fn crash(&self) {
        let Held { server, writer } = self.held();
        let mut writer = lock(writer);
        signal(*writer, Signal::KILL);
        *writer = stopped_writer(server, *writer);
    }

    fn held(&self) -> &Held {
        self.held.as_ref().expect("it is there until it is given back")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A test that fails may leave it in any state.
        if !std::thread::panicking() {
            lock(&IDLE).extend(self.held.take());
        }
    }
}

fn started() -> Held {
    let server = Server::start(Kind::Postgres);
    let settings = SETTINGS.map(|setting| format!("ALTER SYSTEM SET {setting}"));
    settings.iter().for_each(|sql| drop(server.sql(DATABASE, sql)));
    server.sql(DATABASE, "SELECT pg_reload_conf()");
    until("the settings are in force", || {
        server.sql(DATABASE, "SHOW checkpoint_timeout").trim() == "1h"
    });
    let writer = Mutex::new(stopped_writer(&server, 0));
    Held { server, writer }
}

/// Waits for the writer that follows this one, and stops it while it has nothing to do: stopped in
/// the middle of a write, it would keep all others from the log.
fn stopped_writer(server: &Server, before: i32) -> i32 {
    until_some("the writer of the new server stands still", || {
        assert_eq!(server.fault(), None);
        let (writer, _) = writer(server).filter(|(writer, _)| *writer != before)?;
        signal(writer, Signal::STOP);
        until("it has stopped", || state(writer).contains(") T "));
        let rests = self::writer(server).is_some_and(|(_, waits_for)| waits_for == "WalWriterMain");
        if !rests {
            signal(writer, Signal::CONT);
        }
        rests.then_some(writer)
    })
}

/// The process that writes relaxed commits, and what it waits for.
fn writer(server: &Server) -> Option<(i32, String)> {
    let find = "SELECT pid, wait_event FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let found = server.try_sql(DATABASE, find).ok()?;
    let (process, waits_for) = found.trim().split_once('\t')?;
    Some((process.parse().ok()?, waits_for.to_owned()))
}

fn state(process: i32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default()
}

fn signal(process: i32, signal: Signal) {
    let process = Pid::from_raw(process).expect("a process id");
    kill_process(process, signal).expect("it can be signalled");
}
