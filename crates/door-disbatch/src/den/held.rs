//! What the database says that this node has, against what the node knows: what a lost answer has
//! left is given back, and what somebody wants ended is ended.

use std::collections::HashSet;

use mongodb::bson::{Bson, Document};

use super::runs::{self, Runs};
use crate::database::{Clock, Database, DbError, Me};
use crate::dialect::Dialect;
use crate::doc::at;
use crate::status::{CLAIMED, ORPHANED};
use crate::task::Why;

#[derive(Debug, Default)]
pub(super) struct Held {
    /// Running in the database and unknown here, seen in the last pass.
    strange: HashSet<String>,
}

impl Held {
    /// Answers which of them the database goes on to show as ours although they are not here: as
    /// long as it does, their holds have to stay.
    pub(super) async fn compare(
        &mut self,
        database: &Database,
        clock: &Clock,
        me: &Me,
        runs: &Runs,
        dialect: Dialect,
    ) -> Result<HashSet<String>, DbError> {
        let mut strange = HashSet::new();
        for held in database.claimed_by(me).await? {
            let (run, token) = (&held.run, &held.run.token);
            if runs.knows(token) {
                if held.cancel {
                    runs.end(token, Why::Cancelled);
                }
            } else if held.status == CLAIMED {
                tracing::info!(task = %run.id, "claimed without our knowing; given back");
                runs::give_back(database, clock, run, me, dialect).await?;
                runs.answered(token);
            } else if self.strange.contains(token) {
                let ending = runs::ending(ORPHANED, "the node lost track of the task");
                tracing::error!(task = %run.id, "runs without our knowing; orphaned");
                database.finish(run, me, &ending, dialect, clock.now()).await?;
            } else {
                // It may have ended just now.
                strange.insert(token.clone());
            }
        }
        self.strange.clone_from(&strange);
        Ok(strange)
    }
}

/// Drops the holds under our boot that no task has, neither here nor among the `standing`.
pub(super) async fn drop_stray_holds(
    database: &Database,
    queues: &[Document],
    me: &Me,
    runs: &Runs,
    standing: &HashSet<String>,
) -> Result<(), DbError> {
    for queue in queues {
        let (Some(Bson::Array(holds)), Ok(id)) =
            (at(queue, "windlass.holds"), queue.get_object_id("_id"))
        else {
            continue;
        };
        for hold in holds.iter().filter_map(Bson::as_document) {
            let mine = hold.get_str("boot").is_ok_and(|boot| boot == me.boot);
            if let (true, Ok(token)) = (mine, hold.get_str("id"))
                && !runs.needs_hold(token)
                && !standing.contains(token)
            {
                database.hold_drop(id, token).await?;
            }
        }
    }
    Ok(())
}
