//! The layout of the file, in numbered steps that only go forward. `user_version` says how many
//! have been applied, `application_id` that the file is ours.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use windlass_core::store::Error;

use crate::error::{Failure, Result};

/// Step number n (from 1) leads to version n.
const STEPS: [&str; 3] = [
    include_str!("../sql/001_initial.sql"),
    include_str!("../sql/002_then.sql"),
    include_str!("../sql/003_family.sql"),
];

/// The version that this program reads and writes.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// `WNDL` in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x574E_444C;

/// Brings the file to `VERSION`. One that is newer or somebody else's is refused and stays as it
/// is.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    // One look in one transaction: another daemon may be making the file right now.
    if applied(&*connection.transaction()?, path)? == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another daemon may have been faster while this one waited for the lock.
    let from = applied(&transaction, path)?;
    for step in &STEPS[from as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// The file's version, 0 for an empty one, and never more than `VERSION`.
fn applied(connection: &Connection, path: &Path) -> Result<i64> {
    let number = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let application_id = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    check(application_id, version, path)?;
    if application_id == APPLICATION_ID {
        return Ok(version);
    }
    match number("SELECT count(*) FROM sqlite_master")? {
        0 => Ok(0),
        _ => Err(foreign(path)),
    }
}

/// What the two numbers of the file's header alone can say. An `application_id` of 0 says nothing.
pub(crate) fn check(application_id: i64, version: i64, path: &Path) -> Result<()> {
    if application_id != 0 && application_id != APPLICATION_ID {
        return Err(foreign(path));
    }
    if application_id == APPLICATION_ID && !(1..=VERSION).contains(&version) {
        let file = path.display();
        let message = format!(
            "{file} has the layout version {version} of a newer Windlass, this one knows versions \
             up to {VERSION}"
        );
        return Err(Failure::Store(Error::Conflict(message)));
    }
    Ok(())
}

fn foreign(path: &Path) -> Failure {
    let message = format!("{} is the database of another program, not of Windlass", path.display());
    Failure::Store(Error::Conflict(message))
}
