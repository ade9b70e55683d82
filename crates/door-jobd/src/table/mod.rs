//! The table that other programs fill with jobs: the operations of a worker, for any database.
//!
//! Rows are never added nor deleted. Accepted rows are recorded in a small table of our own
//! (`<table>_windlass`), with a lease, to tell the rows of dead workers from those of live ones.
//! Leases use the clock of the database, because the workers' clocks may differ. If that table
//! cannot be created, everything else still works.

mod fit;
mod mysql;
mod pool;
mod postgres;
mod session;
mod sql;
mod sqlite;
#[cfg(test)]
mod tests;
mod url;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::launch::Output;

pub(crate) use url::{Server, Storage};

/// A worker: its name, and a number that is new at every start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub name: String,
    pub boot: u64,
}

/// The status of a row before it was accepted, and after it is handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Waiting,
    Manual,
}

/// An accepted row of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub id: u64,
    pub target: String,
    pub origin: Origin,
}

/// The answer to a fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// Ordered by id.
    pub rows: Vec<Row>,
    /// Ids that were set to ignored: the database considers their target equal to ours, but the
    /// spelling differs.
    pub ignored: Vec<u64>,
    /// More rows may be waiting: the limit was reached, or others had locked some. If there are no
    /// rows, pause before the next fetch.
    pub more: bool,
}

/// The outcome for a row that a client requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Manual {
    Accepted(Row),
    Missing(u64),
    /// Its status was not `manual`, and is now `ignored`.
    WrongStatus {
        id: u64,
        status: String,
    },
    /// No worker here serves its target; it is now `ignored`.
    UnknownTarget {
        id: u64,
        target: String,
    },
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub id: u64,
    /// `ok` or `fail`.
    pub ok: bool,
    pub code: Option<i32>,
    /// Such as `SIGKILL`.
    pub signal: Option<String>,
    pub stdout: Output,
    pub stderr: Output,
    /// Our own last line of `stderr`, such as why the job was killed. It is never cut.
    pub note: Option<String>,
    /// In UNIX seconds.
    pub finished_at: i64,
}

/// An end that could not be written, and why a retry will not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// The row is no longer ours: it was recovered by another worker, or deleted.
    Lost(u64),
    /// The database refuses it, even without its output.
    Refused(u64, String),
}

/// What happens to a job that was running when its worker was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It fails, with a reason in `stderr`.
    #[default]
    Fail,
    /// It gets its previous status back and runs again.
    Retry,
}

/// The result of a recovery of rows of lost workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Accepted rows that got their previous status back, and running ones that will run again.
    pub back: Vec<Row>,
    /// Running rows that were set to failed.
    pub failed: Vec<u64>,
    /// More marks have expired than one call handles: call again.
    pub more: bool,
}

/// Errors, grouped by what the caller does about them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableError {
    /// The database is unreachable or busy. The outcome is unknown; retry later. Changes without a
    /// confirmation are corrected by the next call or when the lease expires.
    #[error("the database is away: {0}")]
    Away(String),
    /// The database refuses: a missing table, a wrong password, missing rights.
    #[error("the database refuses: {0}")]
    Refused(String),
}

/// One worker's view of the table. All adapters behave alike. Connections are opened on demand and
/// reopened when lost.
#[async_trait]
pub(crate) trait Table: Send + Sync + 'static {
    /// Checks whether the table is usable, and creates the table of marks if allowed.
    async fn prepare(&self) -> Result<(), TableError>;

    /// Accepts waiting rows of these targets, lowest ids first. Several workers may fetch at once;
    /// each row goes to one of them.
    async fn fetch(
        &self,
        targets: &[String],
        limit: u32,
        lease: Duration,
    ) -> Result<Fetched, TableError>;

    /// Accepts rows by id that have the status `manual` and one of these targets. Returns one
    /// result per id, in order.
    async fn accept_manual(
        &self,
        ids: &[u64],
        targets: &[String],
        lease: Duration,
    ) -> Result<Vec<Manual>, TableError>;

    /// Marks accepted rows as running; `now` in UNIX seconds. Returns the ids that were marked: the
    /// others are no longer ours or gone, and must not run.
    async fn start(&self, ids: &[u64], now: i64) -> Result<Vec<u64>, TableError>;

    /// Writes how jobs ended. Text that does not fit is cut or replaced, and the row says so.
    /// Repeating it is harmless.
    async fn finish(&self, ends: &[End]) -> Result<Vec<Unwritten>, TableError>;

    /// Gives accepted rows that were not started their previous status back.
    async fn hand_back(&self, rows: &[Row]) -> Result<(), TableError>;

    /// Renews the leases of rows. Returns the ids that are no longer ours.
    async fn renew(&self, ids: &[u64], lease: Duration) -> Result<Vec<u64>, TableError>;

    /// Recovers rows with expired marks, except those that we hold; `now` in UNIX seconds, `reason`
    /// for the `stderr` of failed jobs. After an outage all leases may have expired, even those of
    /// live workers: wait for one lease before calling this.
    async fn recover(
        &self,
        held: &[u64],
        interrupted: Interrupted,
        now: i64,
        reason: &str,
    ) -> Result<Recovered, TableError>;

    /// Closes the connections. To be called last.
    async fn close(&self);
}

/// The adapter for this kind of database. Does not connect yet.
pub(crate) fn open(storage: &Storage, owner: Owner) -> Arc<dyn Table> {
    match storage {
        Storage::Mysql(server) => {
            let backend = mysql::Mysql::new(server);
            Arc::new(sql::SqlTable::new(Box::new(backend), &server.table, owner))
        }
        Storage::Postgres(server) => {
            let backend = postgres::Postgres::new(server);
            Arc::new(sql::SqlTable::new(Box::new(backend), &server.table, owner))
        }
        Storage::Sqlite { path, table } => {
            let backend = sqlite::Sqlite::new(path);
            Arc::new(sql::SqlTable::new(Box::new(backend), table, owner))
        }
    }
}
