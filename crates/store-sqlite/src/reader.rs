//! The read connections, each used by one call at a time. A read sees one consistent state: what
//! was committed when it began, which includes everything that was answered before.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_core::store::Error;
use windlass_core::sync::lock;

use crate::error::{Result, closed};
use crate::open::{self, Options};

pub(crate) struct Readers {
    pool: Arc<ReaderPool>,
    permits: Arc<Semaphore>,
}

struct ReaderPool {
    options: Options,
    /// At most `options.readers`. A caller with a permit takes one, or opens one if there is none.
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(mut options: Options) -> Readers {
        options.readers = options.readers.max(1);
        let permits = Arc::new(Semaphore::new(options.readers));
        Readers { pool: Arc::new(ReaderPool { options, idle: Mutex::default() }), permits }
    }

    /// Runs `read` in its own transaction, on a thread that may block.
    pub(crate) async fn read<T, F>(&self, read: F) -> std::result::Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let pool = self.pool.clone();
        let work = move || pool.run(read, permit);
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer,
            Err(ended) => Err(Error::Internal(format!("a read did not end: {ended}").into())),
        }
    }

    /// Waits for running reads and closes all connections.
    pub(crate) async fn stop(&self) {
        let all = u32::try_from(self.pool.options.readers).unwrap_or(u32::MAX);
        // An error means that another call has already closed them.
        if let Ok(_permits) = self.permits.acquire_many(all).await {
            self.permits.close();
            self.pool.idle().clear();
        }
    }
}

impl ReaderPool {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic cannot leave a list of connections half-done.
        lock(&self.idle)
    }

    fn run<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T>,
        permit: OwnedSemaphorePermit,
    ) -> std::result::Result<T, Error> {
        let in_transaction = || -> Result<T> {
            let taken = self.idle().pop();
            let conn = match taken {
                Some(conn) => conn,
                None => open::reader(&self.options)?,
            };
            conn.prepare_cached("BEGIN")?.execute([])?;
            // After a panic in the middle of a read, the connection is closed, not reused.
            let answer = Error::caught("a read", || read(&conn))?;
            let ended = conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
            // A connection whose transaction cannot be ended is not reused.
            if ended.is_ok() {
                self.idle().push(conn);
            }
            answer
        };
        let answer = in_transaction().map_err(|failure| failure.translate(&self.options.path));
        drop(permit);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_that_panics_is_answered_and_the_next_one_is_served() {
        let directory = tempfile::TempDir::new().unwrap();
        let options = Options { readers: 1, ..Options::new(directory.path().join("jobs.db")) };
        let _file = open::writer(&options).unwrap();
        let readers = Readers::new(options);
        for _ in 0..3 {
            let answer = readers.read(|_| -> Result<()> { panic!("a defect") }).await;
            assert_eq!(answer, Err(Error::Internal("a read panicked: a defect".into())));
            let types = |conn: &Connection| {
                Ok(conn.query_row("SELECT count(*) FROM type", [], |row| row.get::<_, i64>(0))?)
            };
            assert_eq!(readers.read(types).await, Ok(0));
        }
    }
}
