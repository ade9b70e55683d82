//! Children and hidden jobs are few, and looked for by parent or by type: each has a row for that
//! beside its own, so that the other jobs need no index for it.

use rusqlite::{Connection, params};
use windlass_core::{JobId, State};

use crate::error::Result;
use crate::row::{self, part};

const ASIDE: i64 = part::CHILD | part::HIDDEN;

/// A job as far as it is looked for here. The parts say whether it is.
pub(crate) struct Aside {
    pub(crate) id: i64,
    pub(crate) type_id: i64,
    /// In its row, where a running job is queued.
    pub(crate) state: State,
    pub(crate) parent: Option<JobId>,
    pub(crate) parts: i64,
}

impl Aside {
    /// Keeps it for a job that had these parts before.
    pub(crate) fn write(&self, conn: &Connection, parts_before: i64) -> Result<()> {
        if self.parts & ASIDE != 0 {
            let put = "INSERT OR REPLACE INTO aside (id, type_id, hidden, state, parent_id)
                       VALUES (?1, ?2, ?3, ?4, ?5)";
            let Aside { id, type_id, parts, .. } = self;
            let (hidden, state) = (parts & part::HIDDEN != 0, row::state_number(self.state));
            let parent = self.parent.map(JobId::get);
            conn.prepare_cached(put)?.execute(params![id, type_id, hidden, state, parent])?;
        } else if parts_before & ASIDE != 0 {
            remove(conn, self.id, parts_before)?;
        }
        Ok(())
    }
}

/// The state in a job's row has changed.
pub(crate) fn set_state(conn: &Connection, id: i64, parts: i64, state: State) -> Result<()> {
    if parts & ASIDE != 0 {
        let set = "UPDATE aside SET state = ?2 WHERE id = ?1";
        conn.prepare_cached(set)?.execute([id, row::state_number(state)])?;
    }
    Ok(())
}

pub(crate) fn remove(conn: &Connection, id: i64, parts: i64) -> Result<()> {
    if parts & ASIDE != 0 {
        conn.prepare_cached("DELETE FROM aside WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}
