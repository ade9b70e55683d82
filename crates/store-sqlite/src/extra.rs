//! What only few jobs have: flags in `parts`, and a row of texts beside the job's own.

use rusqlite::{Connection, params};
use windlass_core::{Extra, State};

use crate::error::Result;
use crate::row::part;

/// What the flags say of a job in this state; its texts are not in it.
pub(crate) fn of_parts(parts: i64, state: State) -> Extra {
    let has = |part: i64| parts & part != 0;
    let lent = has(part::LENT) && state == State::Queued;
    Extra { lent, mock: has(part::MOCK), ..Extra::default() }
}

/// The flags of a job with this.
pub(crate) fn parts(extra: &Extra) -> i64 {
    let flag = |set: bool, part: i64| if set { part } else { 0 };
    flag(extra.mock, part::MOCK)
        | flag(extra.lent, part::LENT)
        | flag(has_texts(extra), part::EXTRA)
}

fn has_texts(extra: &Extra) -> bool {
    extra.repeat.is_some() || extra.retry_after.is_some() || extra.next_run.is_some()
}

/// Adds the texts of a job that has some.
pub(crate) fn read(conn: &Connection, id: i64, extra: &mut Extra) -> Result<()> {
    let find = "SELECT repeat, retry_after, next_run FROM extra WHERE id = ?1";
    let mut find = conn.prepare_cached(find)?;
    (extra.repeat, extra.retry_after, extra.next_run) =
        find.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(())
}

/// Keeps the texts of a job that had these parts before.
pub(crate) fn write(conn: &Connection, id: i64, extra: &Extra, parts: i64) -> Result<()> {
    if has_texts(extra) {
        let put = "INSERT OR REPLACE INTO extra (id, repeat, retry_after, next_run)
                   VALUES (?1, ?2, ?3, ?4)";
        let Extra { repeat, retry_after, next_run, .. } = extra;
        conn.prepare_cached(put)?.execute(params![id, repeat, retry_after, next_run])?;
    } else if parts & part::EXTRA != 0 {
        conn.prepare_cached("DELETE FROM extra WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

/// A job gets a new time to run: the words for the old one go, and nobody has it any more.
/// Answers with its parts as they are then.
pub(crate) fn retimed(conn: &Connection, id: i64, parts: i64) -> Result<i64> {
    let parts = parts & !part::LENT;
    if parts & part::EXTRA == 0 {
        return Ok(parts);
    }
    let drop = "DELETE FROM extra WHERE id = ?1 AND repeat IS NULL AND retry_after IS NULL";
    if conn.prepare_cached(drop)?.execute([id])? > 0 {
        return Ok(parts & !part::EXTRA);
    }
    conn.prepare_cached("UPDATE extra SET next_run = NULL WHERE id = ?1")?.execute([id])?;
    Ok(parts)
}
