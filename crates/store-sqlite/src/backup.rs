//! Copies the file while daemons may be using it.
//!
//! The copy is one committed state. A read transaction is open from the first page to the last, so
//! other processes' commits, which go on, do not change what is read, and the copy does not have to
//! start again. Until it ends, the log cannot be restarted and grows with every commit.
//!
//! Commits that are not synced yet are in the copy as well: they are visible to every reader.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use windlass_core::store::Error;

use crate::doubt::Doubt;
use crate::error::Result;
use crate::migration::{self, APPLICATION_ID};
use crate::open::{self, Options};

/// Pages between two reports of progress.
const STEP_PAGES: i32 = 1024;
/// How often in a row a step may find the file locked. Each time waits for `busy_timeout`.
const BUSY_TRIES_MAX: usize = 3;

/// Copies the store at `from` to `to`, an empty file. Reports the pages that have been copied, and
/// their total. The copy is not synced. `from` keeps its content, and nothing is moved from its log
/// into it.
///
/// Errors: `Unavailable` if the store is locked or in doubt, or a disk fails; `Corrupt` and
/// `Conflict` if it is not a store of this Windlass.
pub fn back_up(
    from: &Path,
    to: &Path,
    mut progress: impl FnMut(u64, u64),
) -> std::result::Result<(), Error> {
    // In doubt, pages may be read that are older than the log says.
    let doubt = Doubt::new(from);
    doubt.check_all()?;
    copy(from, to, &mut progress).map_err(|failure| failure.translate(from))?;
    doubt.check_all()
}

fn copy(from: &Path, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    open::check_header(from)?;
    let source = open::connect(&Options::new(from), OpenFlags::empty())?;
    source.pragma_update(None, "query_only", true)?;
    let state = source.unchecked_transaction()?;
    // The first read fixes the state that is copied.
    let application_id: i64 =
        state.query_row("PRAGMA application_id", [], |row| row.get(0)).and_then(|id| {
            state.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
            Ok(id)
        })?;
    if application_id != APPLICATION_ID {
        return Err(migration::foreign(from));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(to, flags)?;
    // If the copy fails, it is thrown away; if it succeeds, the caller syncs it.
    target.pragma_update(None, "journal_mode", "OFF")?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let backup = Backup::new(&source, &mut target)?;
    let mut busy = 0;
    loop {
        match backup.step(STEP_PAGES)? {
            StepResult::Done => break,
            StepResult::More => busy = 0,
            _ if busy < BUSY_TRIES_MAX => busy += 1,
            _ => return Err(locked()),
        }
        let at = backup.progress();
        progress((at.pagecount - at.remaining) as u64, at.pagecount as u64);
    }
    drop(backup);
    drop(state);
    target.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn locked() -> crate::error::Failure {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, None).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    fn target(dir: &Path) -> PathBuf {
        let path = dir.join("copy.db");
        fs::write(&path, "").unwrap();
        path
    }

    /// A store with this many rows in its log, and the connection that keeps them there.
    fn store_with(path: &Path, rows: i64) -> Connection {
        let conn = open::writer(&Options::new(path)).unwrap();
        conn.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        for _ in 0..rows {
            conn.execute("INSERT INTO t VALUES (randomblob(3000))", []).unwrap();
        }
        conn
    }

    fn rows(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    /// Another connection commits after every step, so a copy without its own state never ends.
    #[test]
    fn the_copy_is_the_state_at_its_beginning_though_commits_go_on() {
        const ROWS: i64 = 2500;
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("store.db"), target(dir.path()));
        let writer = store_with(&from, ROWS);
        let mut steps = 0;
        back_up(&from, &to, |done, total| {
            assert!(done <= total);
            steps += 1;
            writer.execute("INSERT INTO t VALUES ('late')", []).unwrap();
        })
        .unwrap();
        assert!(steps > 1, "{steps} steps");
        let copy = Connection::open(&to).unwrap();
        assert_eq!(rows(&copy), ROWS);
        let check: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        assert_eq!(rows(&writer), ROWS + steps);
    }

    #[test]
    fn a_log_that_a_killed_daemon_left_is_copied_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("store.db"), target(dir.path()));
        let writer = store_with(&from, 10);
        let left = dir.path().join("left.db");
        fs::copy(&from, &left).unwrap();
        let (log, left_log) = (dir.path().join("store.db-wal"), dir.path().join("left.db-wal"));
        fs::copy(&log, &left_log).unwrap();
        drop(writer);
        let before = (fs::read(&left).unwrap(), fs::read(&left_log).unwrap());
        back_up(&left, &to, |_, _| ()).unwrap();
        assert_eq!(rows(&Connection::open(&to).unwrap()), 10);
        assert_eq!((fs::read(&left).unwrap(), fs::read(&left_log).unwrap()), before);
    }

    #[test]
    fn a_file_of_another_program_and_a_store_in_doubt_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("store.db"), target(dir.path()));
        Connection::open(&from).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(matches!(back_up(&from, &to, |_, _| ()), Err(Error::Conflict(_))));
        fs::remove_file(&from).unwrap();
        drop(store_with(&from, 1));
        fs::write(dir.path().join("store.db-doubt"), "").unwrap();
        assert!(matches!(back_up(&from, &to, |_, _| ()), Err(Error::Unavailable(_))));
        assert_eq!(fs::metadata(&to).unwrap().len(), 0);
    }
}
