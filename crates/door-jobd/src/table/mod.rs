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

/// The worker that accepts: its name, and a number that is new at every start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub name: String,
    pub boot: u64,
}

/// What a row was before it was accepted, and becomes when it is handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Waiting,
    Manual,
}

/// A row that is now accepted, and ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub id: u64,
    pub target: String,
    pub origin: Origin,
}

/// The answer to a fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// In the order of their ids.
    pub rows: Vec<Row>,
    /// Ids that are now ignored: the database takes their target for ours, but it is spelled
    /// otherwise.
    pub ignored: Vec<u64>,
    /// More rows may wait: the limit was reached, or others held some at that moment. When there
    /// are no rows, ask again only after a pause.
    pub more: bool,
}

/// What became of a row that a client asked for.
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
    /// A last line of `stderr` from us, such as why the job was ended. It is never cut.
    pub note: Option<String>,
    /// In UNIX seconds.
    pub finished_at: i64,
}

/// An end that is not in the table, and why asking again does not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// The row is no longer ours: it was recovered by another worker, or deleted.
    Lost(u64),
    /// The database refuses it, even without its output.
    Refused(u64, String),
}

/// What becomes of a job that ran when its worker was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It ends as failed, with a reason in `stderr`.
    #[default]
    Fail,
    /// It becomes what it was before it was accepted, so that it runs again.
    Retry,
}

/// What a recovery did to the rows of workers that are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Accepted rows that are what they were before, and running ones that are to run again.
    pub back: Vec<Row>,
    /// Running rows that ended as failed.
    pub failed: Vec<u64>,
    /// More marks have run out than one call takes: ask again.
    pub more: bool,
}

/// Why the table did not do it, by what the caller does about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableError {
    /// The database cannot be reached or is busy. Nothing is known to have happened; ask again
    /// later. Whatever did happen unheard is mended by the next call or when the lease runs out.
    #[error("the database is away: {0}")]
    Away(String),
    /// It answers, and says no: a missing table, a wrong password, a right that is not given.
    #[error("the database refuses: {0}")]
    Refused(String),
}

/// One worker's view of the table. All adapters behave alike. Connections are made when they are
/// needed and made anew when they are lost.
#[async_trait]
pub(crate) trait Table: Send + Sync + 'static {
    /// Looks whether the table can be worked with, and makes the table of marks if it may.
    async fn prepare(&self) -> Result<(), TableError>;

    /// Accepts waiting rows of these targets, those with the lowest ids first. Several workers may
    /// ask at once; each row goes to one of them.
    async fn fetch(
        &self,
        targets: &[String],
        limit: u32,
        lease: Duration,
    ) -> Result<Fetched, TableError>;

    /// Accepts the rows of these ids which have the status `manual` and one of these targets. One
    /// answer for each id, in the order asked.
    async fn accept_manual(
        &self,
        ids: &[u64],
        targets: &[String],
        lease: Duration,
    ) -> Result<Vec<Manual>, TableError>;

    /// Accepted rows begin to run; `now` in UNIX seconds. Returns the ids that did: the others are
    /// no longer ours or are gone, and must not be run.
    async fn start(&self, ids: &[u64], now: i64) -> Result<Vec<u64>, TableError>;

    /// Writes how jobs ended. Text that does not fit is cut or replaced, and the row says so.
    /// Repeating it is harmless.
    async fn finish(&self, ends: &[End]) -> Result<Vec<Unwritten>, TableError>;

    /// Accepted rows that were not started become what they were.
    async fn hand_back(&self, rows: &[Row]) -> Result<(), TableError>;

    /// Keeps rows ours for another lease. Returns the ids that are no longer ours.
    async fn renew(&self, ids: &[u64], lease: Duration) -> Result<Vec<u64>, TableError>;

    /// Takes care of the rows whose marks have run out, except those that we hold; `now` in UNIX
    /// seconds, `reason` for the `stderr` of jobs that fail by it. After an outage of the database
    /// all leases may have run out, also those of workers that live: wait for one lease before
    /// asking.
    async fn recover(
        &self,
        held: &[u64],
        interrupted: Interrupted,
        now: i64,
        reason: &str,
    ) -> Result<Recovered, TableError>;

    /// Closes the connections; nothing is asked after it.
    async fn close(&self);
}

/// The adapter for the database that has the table. Connects to nothing yet.
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
