//! The table in a file of SQLite, on threads that may wait for the disk:
//!
//! ```sql
//! CREATE TABLE jobs (
//!   id INTEGER PRIMARY KEY AUTOINCREMENT,
//!   target TEXT NOT NULL,
//!   time_created INTEGER NOT NULL,
//!   time_started INTEGER NOT NULL DEFAULT 0,
//!   time_finished INTEGER NOT NULL DEFAULT 0,
//!   status TEXT NOT NULL DEFAULT 'waiting'
//!     CHECK (status IN ('waiting','manual','accepted','running','done','ignored')),
//!   result TEXT CHECK (result IN ('ok','fail')),
//!   return_code INTEGER,
//!   sig TEXT,
//!   stdout TEXT,
//!   stderr TEXT
//! );
//! CREATE INDEX status_target_idx ON jobs (status, target, id);
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, params_from_iter};
use tokio::sync::OwnedMutexGuard;

use windlass_core::sync::lock;

use super::fit::TableLimits;
use super::session::{Backend, Dialect, Fault, Session, Value};

/// How long to wait for other writers of the same file.
const BUSY_TIME_MAX: Duration = Duration::from_secs(5);

/// SQLite allows rows of a billion bytes; memory is scarcer.
const PACKET_BYTES_MAX: usize = 256 * 1024 * 1024;

const DIALECT: Dialect = Dialect {
    quote: '"',
    lock: "",
    now: "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    as_text: "{}",
    or_replace: "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, boot = excluded.boot, \
                 lease_until = excluded.lease_until, was = excluded.was",
    number: "INTEGER",
    name: "TEXT",
};

pub(super) struct Sqlite {
    path: String,
    /// One transaction at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    connection: SharedConnection,
}

/// `None` until it is needed, and after a failure.
type SharedConnection = Arc<Mutex<Option<Connection>>>;

impl Sqlite {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_owned(), turn: Arc::default(), connection: Arc::default() }
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn begin(&self) -> Result<Box<dyn Session>, Fault> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (shared, path) = (Arc::clone(&self.connection), self.path.clone());
        on_blocking_thread(move || {
            let mut connection = lock(&shared);
            let open = match connection.take() {
                Some(open) => open,
                None => open(&path)?,
            };
            open.execute_batch("BEGIN IMMEDIATE").map_err(fault)?;
            *connection = Some(open);
            Ok(())
        })
        .await?;
        let shared = Arc::clone(&self.connection);
        Ok(Box::new(SqliteSession { shared, committed: false, _turn: turn }))
    }

    async fn inspect(&self, _schema: Option<&str>, _table: &str) -> Result<TableLimits, Fault> {
        Ok(TableLimits { packet_bytes_max: Some(PACKET_BYTES_MAX), ..TableLimits::default() })
    }

    async fn close(&self) {
        let _turn = self.turn.lock().await;
        let shared = Arc::clone(&self.connection);
        let closing = move || {
            drop(lock(&shared).take());
            Ok(())
        };
        let _: Result<(), Fault> = on_blocking_thread(closing).await;
    }
}

/// The file is not created: a wrong name would look like an empty table.
fn open(path: &str) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_timeout(BUSY_TIME_MAX).map_err(fault)?;
    Ok(connection)
}

struct SqliteSession {
    shared: SharedConnection,
    committed: bool,
    _turn: OwnedMutexGuard<()>,
}

impl SqliteSession {
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Fault> {
        let shared = Arc::clone(&self.shared);
        on_blocking_thread(move || {
            let connection = lock(&shared);
            let Some(connection) = &*connection else {
                return Err(Fault::Away("the file was closed".into()));
            };
            work(connection).map_err(fault)
        })
        .await
    }
}

#[async_trait]
impl Session for SqliteSession {
    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Fault> {
        let sql = sql.to_owned();
        self.with(move |connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let columns = statement.column_count();
            let rows = statement
                .query_map(params_from_iter(values.iter().map(parameter)), |row| {
                    (0..columns).map(|at| row.get_ref(at).map(value)).collect()
                })?;
            rows.collect()
        })
        .await
    }

    async fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<(), Fault> {
        let sql = sql.to_owned();
        self.with(move |connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values.iter().map(parameter)))?;
            while rows.next()?.is_some() {}
            Ok(())
        })
        .await
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Fault> {
        self.with(|connection| connection.execute_batch("COMMIT")).await?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for SqliteSession {
    /// Closing the connection rolls back; the next transaction opens a new one.
    fn drop(&mut self) {
        if !self.committed {
            drop(lock(&self.shared).take());
        }
    }
}

/// Runs on a thread that may block on the disk.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Fault::Away(error.to_string())))
}

fn parameter(value: &Value) -> rusqlite::types::ToSqlOutput<'_> {
    match value {
        Value::Null => rusqlite::types::Null.into(),
        Value::Int(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Value::Text(String::from_utf8_lossy(text).into())
        }
        ValueRef::Null | ValueRef::Real(_) => Value::Null,
    }
}

fn fault(error: Error) -> Fault {
    // The message about a file that cannot be opened shows its path, and clients see the reason.
    let reason = match &error {
        Error::SqliteFailure(code, _) if code.code == ErrorCode::CannotOpen => code.to_string(),
        error => error.to_string(),
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Clash(reason),
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted,
        ) => Fault::Away(reason),
        _ => Fault::Refused(reason),
    }
}
