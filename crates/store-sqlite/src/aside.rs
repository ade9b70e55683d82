//! Children and hidden jobs are few, and are searched by parent or by type. Each has a second row
//! for that, so that other jobs need no such index.

use rusqlite::{Connection, params};
use windlass_core::{JobId, State};

use crate::error::Result;
use crate::row::{self, part};

const ASIDE: i64 = part::CHILD | part::HIDDEN;

/// The second row of a job. The parts say whether it has one.
pub(crate) struct Aside {
    pub(crate) id: i64,
    pub(crate) type_id: i64,
    /// The state in its own row, which says `queued` for a running job.
    pub(crate) state: State,
    pub(crate) parent: Option<JobId>,
    pub(crate) parts: i64,
}

impl Aside {
    /// Writes or removes it for a job that had these parts before.
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

/// Follows a change of the state in the job's row.
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
