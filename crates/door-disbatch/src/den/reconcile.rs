//! Compares the tasks that this node has in the database with those it knows: releases what a lost
//! answer has left behind, and ends tasks on request.

use std::collections::HashSet;

use mongodb::bson::Bson;

use super::refusal::Refusals;
use super::runs::{self, Runs};
use crate::database::{Clock, Database, DbError, Me};
use crate::doc::Hold;
use crate::status::{CLAIMED, ORPHANED};
use crate::task::Why;

#[derive(Debug, Default)]
pub(super) struct Held {
    /// In the database and unknown here, seen in the last pass.
    strange: HashSet<String>,
}

/// What a comparison has shown.
pub(super) struct Compared {
    /// What the database goes on to show as ours although it is not here: as long as it does, the
    /// holds of these tokens have to stay.
    pub(super) standing: HashSet<String>,
    /// Some of it could not be given back or ended.
    pub(super) refused: Result<(), DbError>,
}

impl Held {
    pub(super) async fn compare(
        &mut self,
        database: &Database,
        clock: &Clock,
        me: &Me,
        runs: &Runs,
    ) -> Result<Compared, DbError> {
        let mut standing = HashSet::new();
        let mut refusals = Refusals::default();
        for held in database.claimed_by(me).await? {
            let (run, token) = (&held.run, &held.run.token);
            if runs.knows(token) {
                if held.cancel {
                    runs.end(token, Why::Cancelled);
                }
                continue;
            }
            let gone = if held.status == CLAIMED {
                tracing::info!(task = %run.id, "claimed without a confirmation; released");
                runs::give_back(database, clock, run, me).await.map(|()| true)
            } else if self.strange.contains(token) {
                let ending = runs::ending(ORPHANED, "the node could not write how the task ended");
                tracing::error!(task = %run.id, "marked as running, but not here; orphaned");
                database.finish(run, me, &ending, clock.now()).await.map(|_| true)
            } else {
                // It may have ended just now.
                Ok(false)
            };
            match refusals.pass_over(gone)? {
                Some(true) => runs.answered(token),
                Some(false) | None => drop(standing.insert(token.clone())),
            }
        }
        self.strange.clone_from(&standing);
        Ok(Compared { standing, refused: refusals.told() })
    }
}

/// Drops those of all holds under our boot that no task has, neither here nor among the `standing`.
pub(super) async fn drop_stray_holds(
    database: &Database,
    holds: &[(Bson, Hold)],
    me: &Me,
    runs: &Runs,
    standing: &HashSet<String>,
) -> Result<(), DbError> {
    let mut refusals = Refusals::default();
    for (queue, hold) in holds.iter().filter(|(_, hold)| hold.boot == me.boot) {
        let needed = runs.needs_hold(&hold.id) || standing.contains(&hold.id);
        if let (Bson::ObjectId(queue), false) = (queue, needed) {
            refusals.pass_over(database.hold_drop(*queue, &hold.id).await)?;
        }
    }
    refusals.told()
}
