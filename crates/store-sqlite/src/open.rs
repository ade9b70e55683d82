//! Opening the file: whether it is ours, and how every connection to it is set up.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use windlass_core::time::{Clock, SystemClock};

use crate::clock;
use crate::doubt;
use crate::error::{Failure, Result};
use crate::migration;

/// Told after each commit that wrote something: how long it took, and whether it was synced.
pub type OnCommit = Arc<dyn Fn(Duration, bool) + Send + Sync>;

/// How to open the store. `Options::new(path)` has values that suit most machines.
#[derive(Clone)]
pub struct Options {
    pub path: PathBuf,
    /// How long a write waits for another process's transaction before it is `Unavailable`.
    pub busy_timeout: Duration,
    /// Pages that the writer keeps in memory. Readers have a small share of their own each.
    pub cache_bytes: usize,
    /// Reads that run at the same time, each on its own connection; at least one.
    pub readers: usize,
    pub on_commit: Option<OnCommit>,
    /// The machine's; every daemon that opens the file must have the same.
    pub clock: Arc<dyn Clock>,
}

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// More would cost more than it saves: at many commits SQLite walks through the whole table of its
/// pages, and what is not here is in the memory of the operating system.
const CACHE_BYTES: usize = 32 * 1024 * 1024;
const READERS: usize = 4;
const READER_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Enough that no statement of this crate is ever compiled twice on one connection.
const STATEMENTS_MAX: usize = 256;

/// The log file is cut back to this after a burst.
const LOG_FILE_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// Pause between tries to switch a new file to the write-ahead log while others open it too.
const SWITCH_PAUSE: Duration = Duration::from_millis(5);

impl Options {
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options {
            path: path.into(),
            busy_timeout: BUSY_TIMEOUT,
            cache_bytes: CACHE_BYTES,
            readers: READERS,
            on_commit: None,
            clock: Arc::new(SystemClock),
        }
    }
}

/// The writer's connection, on a file that is there and of the right version afterwards.
pub(crate) fn writer(options: &Options) -> Result<Connection> {
    check_header(&options.path)?;
    doubt::settle(options)?;
    let mut connection = connect(options, OpenFlags::SQLITE_OPEN_CREATE)?;
    migration::migrate(&mut connection, &options.path)?;
    switch_to_wal(&connection, options.busy_timeout)?;
    clock::open(&connection, options.clock.as_ref())?;
    connection.pragma_update(None, "journal_size_limit", LOG_FILE_BYTES_MAX)?;
    set_cache(&connection, options.cache_bytes)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(connection)
}

/// A connection that only reads.
pub(crate) fn reader(options: &Options) -> Result<Connection> {
    let connection = connect(options, OpenFlags::empty())?;
    connection.pragma_update(None, "query_only", true)?;
    set_cache(&connection, READER_CACHE_BYTES)?;
    Ok(connection)
}

/// A connection for one query in SQL. What it sorts and gathers on the way may be large, and
/// goes to files.
pub(crate) fn query(options: &Options) -> Result<Connection> {
    let connection = connect(options, OpenFlags::empty())?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "temp_store", "FILE")?;
    set_cache(&connection, READER_CACHE_BYTES)?;
    Ok(connection)
}

pub(crate) fn connect(options: &Options, extra: OpenFlags) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra;
    let connection = Connection::open_with_flags(&options.path, flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans do not depend on bound values: else SQLite compiles a cached statement anew for each
    // value that is bound to it, which took half of the time of reading a job.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The log is moved into the file by the writer alone, which sees when that fails (see `doubt`).
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn set_cache(connection: &Connection, bytes: usize) -> Result<()> {
    // SQLite counts in KiB when the number is negative, in pages otherwise.
    Ok(connection.pragma_update(None, "cache_size", -((bytes / 1024) as i64))?)
}

/// The switch wants the file for itself and does not wait for it, so it is tried again for as long
/// as a write would wait.
fn switch_to_wal(connection: &Connection, patience: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let switched = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let what = format!("this file system allows only the journal mode {mode}");
                return Err(Failure::Store(windlass_core::store::Error::Unavailable(what.into())));
            }
            Err(error) if is_busy(&error) && began.elapsed() < patience => {
                std::thread::sleep(SWITCH_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

/// Refuses what is clearly not for this program before SQLite opens, and perhaps touches, it.
fn check_header(path: &Path) -> Result<()> {
    let Ok(file) = File::open(path) else {
        // Absent, or a reason that SQLite will name when it opens the file.
        return Ok(());
    };
    let mut header = Vec::with_capacity(HEADER_BYTES);
    if file.take(HEADER_BYTES as u64).read_to_end(&mut header).is_err() || header.is_empty() {
        return Ok(());
    }
    if header.len() < HEADER_BYTES || !header.starts_with(MAGIC) {
        return Err(Failure::corrupt(format!("{} is not a SQLite database", path.display())));
    }
    let number = |at: usize| {
        let bytes = header[at..at + 4].try_into().expect("a slice of four bytes");
        i64::from(i32::from_be_bytes(bytes))
    };
    migration::check(number(APPLICATION_ID_AT), number(USER_VERSION_AT), path)
}
