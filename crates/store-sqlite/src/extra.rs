//! Rare fields of jobs: flags in `parts`, and a row in `extra`.

use rusqlite::{Connection, params};
use windlass_core::{Extra, State};

use crate::error::Result;
use crate::row::part;

/// The fields that are flags, for a job in this state; those in the row are not included.
pub(crate) fn of_parts(parts: i64, state: State) -> Extra {
    let has = |part: i64| parts & part != 0;
    let lent = has(part::LENT) && state == State::Queued;
    Extra { lent, hidden: has(part::HIDDEN), ..Extra::default() }
}

/// The flags for these fields.
pub(crate) fn parts(extra: &Extra) -> i64 {
    let flag = |set: bool, part: i64| if set { part } else { 0 };
    flag(extra.hidden, part::HIDDEN)
        | flag(extra.lent, part::LENT)
        | flag(has_row(extra), part::EXTRA)
}

fn has_row(extra: &Extra) -> bool {
    let Extra { repeat, door_text, run_at_text, order_key, .. } = extra;
    repeat.is_some() || door_text.is_some() || run_at_text.is_some() || *order_key != 0
}

/// Adds the fields in the row.
pub(crate) fn read(conn: &Connection, id: i64, extra: &mut Extra) -> Result<()> {
    let find = "SELECT repeat, door_text, run_at_text, order_key FROM extra WHERE id = ?1";
    let mut find = conn.prepare_cached(find)?;
    (extra.repeat, extra.door_text, extra.run_at_text, extra.order_key) =
        find.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    Ok(())
}

/// The order of a queued job with these parts among those with the same time.
pub(crate) fn tie(conn: &Connection, id: i64, parts: i64) -> Result<i64> {
    let mut extra = of_parts(parts, State::Queued);
    if parts & part::EXTRA != 0 {
        read(conn, id, &mut extra)?;
    }
    Ok(extra.tie())
}

/// Writes or removes the row of a job that had these parts before.
pub(crate) fn write(conn: &Connection, id: i64, extra: &Extra, parts: i64) -> Result<()> {
    if has_row(extra) {
        let put = "INSERT OR REPLACE INTO extra (id, repeat, door_text, run_at_text, order_key)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let Extra { repeat, door_text, run_at_text, order_key, .. } = extra;
        let values = params![id, repeat, door_text, run_at_text, order_key];
        conn.prepare_cached(put)?.execute(values)?;
    } else if parts & part::EXTRA != 0 {
        conn.prepare_cached("DELETE FROM extra WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

/// `Extra::retime` for a job with these parts; returns its new parts.
pub(crate) fn retimed(conn: &Connection, id: i64, parts: i64) -> Result<i64> {
    let parts = parts & !part::LENT;
    if parts & part::EXTRA == 0 {
        return Ok(parts);
    }
    let drop = "DELETE FROM extra WHERE id = ?1 AND repeat IS NULL AND door_text IS NULL";
    if conn.prepare_cached(drop)?.execute([id])? > 0 {
        return Ok(parts & !part::EXTRA);
    }
    let clear = "UPDATE extra SET run_at_text = NULL, order_key = 0 WHERE id = ?1";
    conn.prepare_cached(clear)?.execute([id])?;
    Ok(parts)
}
