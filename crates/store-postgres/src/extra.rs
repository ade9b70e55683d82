//! Rare fields of jobs: flags in `parts`, and a row in `extra`.

use std::sync::Arc;

use tokio_postgres::Row;
use windlass_core::{Extra, State};

use crate::error::Result;
use crate::row::{self, part};
use crate::tx::Tx;

/// The fields that are flags, for a job in this state; those in the row are not included.
pub(crate) fn of_parts(parts: i32, state: State) -> Extra {
    let has = |part: i32| parts & part != 0;
    let lent = has(part::LENT) && state == State::Queued;
    Extra { lent, hidden: has(part::HIDDEN), ..Extra::default() }
}

/// The flags for these fields.
pub(crate) fn parts(extra: &Extra) -> i32 {
    let flag = |set: bool, part: i32| if set { part } else { 0 };
    flag(extra.hidden, part::HIDDEN)
        | flag(extra.lent, part::LENT)
        | flag(has_row(extra), part::EXTRA)
}

fn has_row(extra: &Extra) -> bool {
    let Extra { repeat, door_text, run_at_text, order_key, .. } = extra;
    repeat.is_some() || door_text.is_some() || run_at_text.is_some() || *order_key != 0
}

/// Adds the fields in the row, from the columns with these numbers: `order_key`, and `repeat`,
/// `door_text` and `run_at_text`.
pub(crate) fn decode(
    row: &Row,
    order_key: usize,
    texts: [usize; 3],
    extra: &mut Extra,
) -> Result<()> {
    let text = |column| -> Result<Option<Arc<str>>> {
        let bytes: Option<&[u8]> = row.try_get(column)?;
        Ok(bytes.map(row::text).transpose()?.map(Arc::from))
    };
    extra.order_key = row.try_get::<_, Option<i64>>(order_key)?.unwrap_or(0);
    (extra.repeat, extra.door_text, extra.run_at_text) =
        (text(texts[0])?, text(texts[1])?, text(texts[2])?);
    Ok(())
}

const PUT: &str = "
    INSERT INTO extra (id, order_key, repeat, door_text, run_at_text) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id) DO UPDATE
       SET order_key = excluded.order_key, repeat = excluded.repeat,
           door_text = excluded.door_text, run_at_text = excluded.run_at_text";

/// Writes or removes the row of a job that had these parts before.
pub(crate) async fn write(tx: &Tx<'_>, id: i64, extra: &Extra, parts: i32) -> Result<()> {
    if has_row(extra) {
        let bytes = |text: &Option<Arc<str>>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let Extra { repeat, door_text, run_at_text, order_key, .. } = extra;
        let (repeat, door, run_at) = (bytes(repeat), bytes(door_text), bytes(run_at_text));
        tx.execute(PUT, &[&id, order_key, &repeat, &door, &run_at]).await?;
    } else if parts & part::EXTRA != 0 {
        tx.execute("DELETE FROM extra WHERE id = $1", &[&id]).await?;
    }
    Ok(())
}

/// `Extra::retime` for a job with these parts; returns its new parts.
pub(crate) async fn retimed(tx: &Tx<'_>, id: i64, parts: i32) -> Result<i32> {
    let parts = parts & !part::LENT;
    if parts & part::EXTRA == 0 {
        return Ok(parts);
    }
    let drop = "DELETE FROM extra WHERE id = $1 AND repeat IS NULL AND door_text IS NULL";
    if tx.execute(drop, &[&id]).await? > 0 {
        return Ok(parts & !part::EXTRA);
    }
    tx.execute("UPDATE extra SET run_at_text = NULL, order_key = 0 WHERE id = $1", &[&id]).await?;
    Ok(parts)
}
