//! The embedded store: Windlass's `Store` on one SQLite file, with nothing to install.
//!
//! ```text
//!   callers ──► writer (one thread) ──► one transaction for all that wait ──► answers
//!           └─► readers (a few connections) ──► one consistent state each
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `contract` | the traits of the store, each call handed to its module |
//! | `open`, `migration` | whose file it is, its layout, how connections are set up |
//! | `writer`, `tx` | the thread that writes, group commit, what is durable when |
//! | `clock` | what time it is, also when the clock is set |
//! | `turn` | who of several processes writes next |
//! | `doubt` | a disk that did not take what was written to it |
//! | `reader` | the connections that read |
//! | `query` | questions in SQL, each on a connection of its own |
//! | `queue` | what waits: ready, deferred, and the way from one to the other |
//! | `insert`, `claim`, `settle`, `change`, `housekeeping` | the verbs that change jobs |
//! | `edit`, `put` | decisions: what they see, and how their edits are carried out |
//! | `take`, `search` | due jobs by name: which ones, and what becomes of them |
//! | `family`, `extra`, `aside` | parents and children, and what else only few jobs have |
//! | `read`, `row` | the verbs that show them, and their rows |
//! | `waiting` | which types are open, in pages |
//! | `type_row`, `handler`, `sysid` | types, handlers, daemons |
//! | `error` | SQLite's codes, translated |
//!
//! Several daemons of one machine may open the same file: every write takes the file's lock first
//! and reads what it depends on under it, and nothing is cached that another process could change.

mod aside;
mod change;
mod claim;
mod clock;
mod contract;
mod doubt;
mod edit;
mod error;
mod extra;
mod family;
mod handler;
mod housekeeping;
mod insert;
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
mod settle;
mod sysid;
mod take;
mod turn;
mod tx;
mod type_row;
mod waiting;
mod writer;

use std::sync::Arc;

use rusqlite::Connection;
use windlass_core::store::{Durability, Error};
use windlass_core::time::{Clock, Timestamp};

pub use crate::open::{OnCommit, Options};

use crate::doubt::Doubt;
use crate::query::Questions;
use crate::reader::Readers;
use crate::tx::Tx;
use crate::writer::Writer;

/// The store. Its calls need a Tokio runtime; dropping it without `close` loses nothing.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    questions: Questions,
    doubt: Arc<Doubt>,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    /// Opens the file, creates it if it is absent, and brings its layout up to date. The directory
    /// must be there. A file of a newer Windlass or of another program is a `Conflict`, one that is
    /// no database or damaged is `Corrupt`; both stay as they are.
    pub fn open(options: Options) -> Result<SqliteStore, Error> {
        let translated = |failure: error::Failure| failure.translate(&options.path);
        let conn = open::writer(&options).map_err(translated)?;
        let doubt = Arc::new(Doubt::new(&options.path));
        let writer = Writer::start(conn, doubt.clone(), &options).map_err(translated)?;
        let clock = options.clock.clone();
        let questions = Questions::new(options.clone(), doubt.clone());
        Ok(SqliteStore { writer, readers: Readers::new(options), questions, doubt, clock })
    }

    /// Reads what depends on the time.
    async fn read_at<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> error::Result<T> + Send + 'static,
    {
        let clock = self.clock.clone();
        let read = move |conn: &Connection| read(conn, clock::read(conn, clock.as_ref())?);
        self.readers.read(read).await
    }

    /// Tries an operation until it has an answer: before each time a bounded number of due jobs
    /// becomes ready, in a transaction that others may follow before the next.
    async fn write_when_ready<T, F>(&self, jobs: usize, run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>) -> error::Result<Option<T>> + Send + Sync + 'static,
    {
        let run = Arc::new(run);
        // What is due at one moment is finite, and each time there is less of it.
        loop {
            let run = run.clone();
            let tried = self.writer.write(Durability::Relaxed, jobs, move |tx| run(tx));
            if let Some(answer) = tried.await? {
                return Ok(answer);
            }
        }
    }

    /// Reads when jobs that are due are ready, or the first of them where there are very
    /// many; mostly there are none, and there is nothing to write.
    async fn read_promoted<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> error::Result<T> + Clone + Send + 'static,
    {
        let (unless_due, clock) = (read.clone(), self.clock.clone());
        let answer = self.readers.read(move |conn| {
            let now = clock::read(conn, clock.as_ref())?;
            let due = queue::next_due_at(conn)?.is_some_and(|at| at <= now);
            if due { Ok(None) } else { unless_due(conn).map(Some) }
        });
        if let Some(answer) = answer.await? {
            return Ok(answer);
        }
        self.writer.write(Durability::Relaxed, 0, queue::promote).await?;
        self.readers.read(read).await
    }
}
