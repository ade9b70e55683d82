//! The embedded store: Windlass's `Store` on one SQLite file, with nothing to install.
//!
//! ```text
//!   callers ──► writer (one thread) ──► one transaction for all waiting calls ──► answers
//!           └─► readers (a few connections) ──► one consistent state each
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `contract` | the traits of the store; passes each call to its module |
//! | `open`, `migration` | whether the file is ours, its layout, how connections are set up |
//! | `writer`, `tx` | the writer thread, group commit, durability |
//! | `clock` | the store's time, and what follows when the wall clock is set |
//! | `turn` | which of several processes writes next |
//! | `backup` | copies of the file while daemons use it |
//! | `doubt` | failed syncs, and how the file recovers from them |
//! | `reader` | the connections that read |
//! | `query` | SQL queries, each on its own connection |
//! | `heap` | the memory that one query takes |
//! | `queue` | queued jobs: ready, deferred, and the promotion from one to the other |
//! | `withheld` | queued jobs that must not be claimed: damaged or expired |
//! | `insert`, `claim`, `settle`, `change`, `housekeeping` | the verbs that change jobs |
//! | `edit`, `put` | decisions: what they are shown, and how their edits are applied |
//! | `take`, `search` | due jobs by name, handed out by a decision |
//! | `family`, `extra`, `aside` | parents and children, and other things that few jobs have |
//! | `read`, `row` | the verbs that read jobs, and their rows |
//! | `waiting` | which types are open, in pages |
//! | `type_row`, `handler`, `sysid`, `key` | types, handlers, numbers of daemons, API keys |
//! | `daemon` | what daemons say of themselves |
//! | `audit` | the audit |
//! | `secret` | secrets of handlers, sealed |
//! | `tenant` | settings of tenants |
//! | `error` | translates SQLite's error codes |
//!
//! Several daemons on one machine may open the same file. Every write takes the file's lock first
//! and reads what it depends on under that lock. Nothing is cached that another process could
//! change.

mod aside;
mod audit;
mod backup;
mod change;
mod claim;
mod clock;
mod contract;
#[cfg(test)]
mod cost;
mod daemon;
mod doubt;
mod edit;
mod error;
mod extra;
mod family;
mod handler;
mod heap;
mod housekeeping;
mod insert;
mod key;
mod migration;
mod open;
#[cfg(test)]
mod plan;
mod put;
mod query;
mod queue;
mod read;
mod reader;
mod row;
mod search;
mod secret;
mod settle;
mod sysid;
mod take;
mod tenant;
mod turn;
mod tx;
mod type_row;
mod waiting;
mod withheld;
mod writer;

use std::sync::Arc;

use rusqlite::Connection;
use windlass_core::store::{Durability, Error};
use windlass_core::time::{Clock, Timestamp};

pub use crate::backup::back_up;
pub use crate::open::{OnCommit, Options};
#[cfg(any(test, feature = "fuzz"))]
pub use crate::query::fuzz;

use crate::doubt::Doubt;
use crate::query::Queries;
use crate::reader::Readers;
use crate::tx::Tx;
use crate::writer::Writer;

/// The store. Its calls need a Tokio runtime; dropping it without `close` loses nothing.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    queries: Queries,
    doubt: Arc<Doubt>,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Opens the file, creates it if it is missing, and migrates its layout. The directory must
    /// exist. A file of a newer Windlass or of another program is a `Conflict`, one that is damaged
    /// or not a database is `Corrupt`; both are left unchanged.
    pub fn open(options: Options) -> Result<SqliteStore, Error> {
        let translated = |failure: error::Failure| failure.translate(&options.path);
        let conn = open::writer(&options).map_err(translated)?;
        let doubt = Arc::new(Doubt::new(&options.path));
        let writer = Writer::start(conn, doubt.clone(), &options).map_err(translated)?;
        let clock = options.clock.clone();
        let queries = Queries::new(options.clone(), doubt.clone());
        Ok(SqliteStore { writer, readers: Readers::new(options), queries, doubt, clock })
    }

    /// Reads something that depends on the time.
    async fn read_at<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> error::Result<T> + Send + 'static,
    {
        let clock = self.clock.clone();
        let read = move |conn: &Connection| read(conn, clock::read(conn, clock.as_ref())?);
        self.readers.read(read).await
    }

    /// Repeats an operation until it returns an answer. Each attempt is its own transaction and
    /// first makes a bounded number of due jobs ready; other operations may run in between.
    async fn write_when_ready<T, F>(&self, jobs: usize, run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>) -> error::Result<Option<T>> + Send + Sync + 'static,
    {
        let run = Arc::new(run);
        // This ends, because each attempt leaves fewer due jobs, or fewer that are in the way.
        loop {
            let run = run.clone();
            let tried = self.writer.write(Durability::Relaxed, jobs, move |tx| run(tx));
            if let Some(answer) = tried.await? {
                return Ok(answer);
            }
        }
    }

    /// Reads after due jobs have been made ready, or the first of them if there are very many.
    /// Usually there are none, and nothing is written.
    async fn read_promoted<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> error::Result<T> + Clone + Send + 'static,
    {
        let (unless_due, clock) = (read.clone(), self.clock.clone());
        let answer = self.readers.read(move |conn| {
            let due = match queue::next_due_at(conn)? {
                Some(at) => at <= clock::read(conn, clock.as_ref())?,
                None => false,
            };
            if due { Ok(None) } else { unless_due(conn).map(Some) }
        });
        if let Some(answer) = answer.await? {
            return Ok(answer);
        }
        self.writer.write(Durability::Relaxed, 0, queue::promote).await?;
        self.readers.read(read).await
    }
}
