//! Opens the file: checks whether it is ours, and sets up every connection to it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use windlass_core::file_name::FileName;
use windlass_core::time::{Clock, SystemClock};

use crate::clock;
use crate::doubt;
use crate::error::{Failure, Result};
use crate::heap;
use crate::migration;

/// Called after each commit that wrote something, with how long it took and whether it was synced.
pub type OnCommit = Arc<dyn Fn(Duration, bool) + Send + Sync>;

/// How to open the store. `Options::new(path)` has values that suit most machines.
#[derive(Clone)]
pub struct Options {
    pub path: PathBuf,
    /// How long a write waits for another process's transaction before it is `Unavailable`.
    pub busy_timeout: Duration,
    /// The writer's page cache. Each reader has a small cache of its own.
    pub cache_bytes: usize,
    /// Reads that run at the same time, each on its own connection; at least one.
    pub readers: usize,
    pub on_commit: Option<OnCommit>,
    /// The machine's clock; the same for every daemon that opens the file.
    pub clock: Arc<dyn Clock>,
}

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// A larger cache would cost more than it saves: SQLite walks the whole cache at many commits, and
/// pages that are not in it are in the cache of the operating system.
const CACHE_BYTES: usize = 32 * 1024 * 1024;
const READERS: usize = 4;
const READER_CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Enough that no statement of this crate is compiled twice on one connection.
const STATEMENTS_MAX: usize = 256;

/// The log file is truncated to this size after a burst.
const LOG_FILE_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// Pause between attempts to switch a new file to WAL mode while other processes open it.
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

/// The writer's connection. Creates and migrates the file if necessary.
pub(crate) fn writer(options: &Options) -> Result<Connection> {
    if !heap::install() {
        tracing::warn!("the memory of queries is not bounded: SQLite was in use before");
    }
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

/// A connection for one SQL query. Its temporary data may be large, so it is kept in files.
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
    // Plans must not depend on bound values: otherwise SQLite recompiles a cached statement for
    // each new value, which took half of the time of reading a job.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Only the writer moves the log into the file, because it sees when that fails (see `doubt`).
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn set_cache(connection: &Connection, bytes: usize) -> Result<()> {
    // A negative number is in KiB, a positive one in pages.
    Ok(connection.pragma_update(None, "cache_size", -((bytes / 1024) as i64))?)
}

/// The switch needs exclusive access and does not wait for it, so it is retried for as long as a
/// write would wait.
fn switch_to_wal(connection: &Connection, patience: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let switched = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let what =
                    format!("the file system supports only the journal mode {mode}, not WAL");
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

/// Refuses files that are clearly not ours before SQLite opens, and perhaps changes, them.
pub(crate) fn check_header(path: &Path) -> Result<()> {
    let Ok(file) = File::open(path) else {
        // The file is missing, or SQLite will report the reason when it opens the file.
        return Ok(());
    };
    let mut header = Vec::with_capacity(HEADER_BYTES);
    if file.take(HEADER_BYTES as u64).read_to_end(&mut header).is_err() || header.is_empty() {
        return Ok(());
    }
    if is_unfinished(path, &header) {
        return Ok(());
    }
    if header.len() < HEADER_BYTES || !header.starts_with(MAGIC) {
        return Err(Failure::corrupt(format!("{} is not a SQLite database", FileName(path))));
    }
    let number = |at: usize| {
        let bytes = header[at..at + 4].try_into().expect("a slice of four bytes");
        i64::from(i32::from_be_bytes(bytes))
    };
    migration::check(number(APPLICATION_ID_AT), number(USER_VERSION_AT), path)
}

/// Whether a power cut has interrupted the creation of the file before its first sector was
/// written. SQLite's journal says so, and SQLite begins again.
fn is_unfinished(path: &Path, header: &[u8]) -> bool {
    let journal = doubt::beside(path, "-journal");
    header.iter().all(|byte| *byte == 0) && journal.metadata().is_ok_and(|file| file.len() > 0)
}
