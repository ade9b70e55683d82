//! The layout of the file, in numbered steps that only go forward. `user_version` is the number of
//! applied steps, and `application_id` marks the file as ours.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use windlass_core::file_name::FileName;
use windlass_core::store::Error;

use crate::error::{Failure, Result};

/// Step number n (from 1) leads to version n.
const STEPS: [&str; 1] = [include_str!("../sql/001_initial.sql")];

/// The version that this build reads and writes.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// `WNDL` in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x574E_444C;

/// Migrates the file to `VERSION`. A newer file, or one of another program, is refused and left
/// unchanged.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    bring_up(connection, &STEPS, path)
}

fn bring_up(connection: &mut Connection, steps: &[&str], path: &Path) -> Result<()> {
    let newest = steps.len() as i64;
    // In one transaction, because another daemon may be creating the file right now.
    if applied(&*connection.transaction()?, newest, path)? == newest {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another daemon may have migrated it while this one waited for the lock.
    let from = applied(&transaction, newest, path)?;
    for step in &steps[from as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest)?;
    transaction.commit()?;
    Ok(())
}

/// The file's version: 0 for an empty one, at most `newest`.
fn applied(connection: &Connection, newest: i64, path: &Path) -> Result<i64> {
    let number = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let application_id = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    check_version(application_id, version, newest, path)?;
    if application_id == APPLICATION_ID {
        return Ok(version);
    }
    match number("SELECT count(*) FROM sqlite_master")? {
        0 => Ok(0),
        _ => Err(foreign(path)),
    }
}

/// Checks the two numbers in the file's header. An `application_id` of 0 is inconclusive.
pub(crate) fn check(application_id: i64, version: i64, path: &Path) -> Result<()> {
    check_version(application_id, version, VERSION, path)
}

fn check_version(application_id: i64, version: i64, newest: i64, path: &Path) -> Result<()> {
    if application_id != 0 && application_id != APPLICATION_ID {
        return Err(foreign(path));
    }
    if application_id == APPLICATION_ID && !(1..=newest).contains(&version) {
        let file = FileName(path);
        let message = format!(
            "{file} has layout version {version} of a newer Windlass; this one supports versions \
             up to {newest}"
        );
        return Err(Failure::Store(Error::Conflict(message)));
    }
    Ok(())
}

pub(crate) fn foreign(path: &Path) -> Failure {
    let message = format!("{} is the database of another program, not of Windlass", FileName(path));
    Failure::Store(Error::Conflict(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout of a later Windlass: one more step.
    const LATER: [&str; 2] = [STEPS[0], "ALTER TABLE type ADD COLUMN colour TEXT DEFAULT 'grey'"];

    fn file_of_today() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, Path::new("jobs.db")).unwrap();
        conn.execute("INSERT INTO type (id, tenant, name) VALUES (7, 'acme', 't')", []).unwrap();
        conn
    }

    fn version(conn: &Connection) -> i64 {
        conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn only_the_steps_that_are_missing_are_applied_and_the_rows_stay() {
        let mut conn = file_of_today();
        for _ in 0..2 {
            bring_up(&mut conn, &LATER, Path::new("jobs.db")).unwrap();
            assert_eq!(version(&conn), VERSION + 1);
        }
        let find = "SELECT name || colour FROM type WHERE id = 7";
        let found: String = conn.query_row(find, [], |row| row.get(0)).unwrap();
        assert_eq!(found, "tgrey");
        let refused = migrate(&mut conn, Path::new("jobs.db"));
        assert!(matches!(refused, Err(Failure::Store(Error::Conflict(_)))), "{refused:?}");
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let mut conn = file_of_today();
        let failing = [STEPS[0], "DROP TABLE type; DROP TABLE no_such_table"];
        assert!(bring_up(&mut conn, &failing, Path::new("jobs.db")).is_err());
        assert_eq!(version(&conn), VERSION);
        let types: i64 = conn.query_row("SELECT count(*) FROM type", [], |row| row.get(0)).unwrap();
        assert_eq!(types, 1);
    }
}
