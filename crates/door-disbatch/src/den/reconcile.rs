//! Compares the tasks that this node has in the database with those it knows: releases what a lost
//! answer has left behind, and ends tasks on request.

use std::collections::HashSet;

use mongodb::bson::Bson;

use super::refusal::Refusals;
use super::runs::{self, Runs};
use crate::database::{Clock, Database, DbError, NodeBoot};
use crate::doc::Hold;
use crate::status::{CLAIMED, ORPHANED};
use crate::task::StopReason;

#[derive(Debug, Default)]
pub(super) struct Reconciler {
    /// Tokens that the last pass found in the database but not here.
    strange: HashSet<String>,
}

/// The result of a comparison.
pub(super) struct Differences {
    /// Tokens that the database still shows as ours although their tasks are not here. Their holds
    /// must stay until then.
    pub(super) standing: HashSet<String>,
    /// The first refusal to release or end one of them.
    pub(super) refused: Result<(), DbError>,
}

impl Reconciler {
    pub(super) async fn compare(
        &mut self,
        database: &Database,
        clock: &Clock,
        me: &NodeBoot,
        runs: &Runs,
    ) -> Result<Differences, DbError> {
        let mut standing = HashSet::new();
        let mut refusals = Refusals::default();
        for held in database.claimed_by(me).await? {
            let (run, token) = (&held.run, &held.run.token);
            if runs.knows(run) {
                if held.cancel {
                    runs.end(token, StopReason::Cancelled);
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
                // It may have ended a moment ago.
                Ok(false)
            };
            match refusals.skip_refused(gone)? {
                Some(true) => runs.claim_answered(token),
                Some(false) | None => drop(standing.insert(token.clone())),
            }
        }
        self.strange.clone_from(&standing);
        Ok(Differences { standing, refused: refusals.into_result() })
    }
}

/// Drops our holds that belong to no task, neither here nor among `standing`.
pub(super) async fn drop_stray_holds(
    database: &Database,
    holds: &[(Bson, Hold)],
    me: &NodeBoot,
    runs: &Runs,
    standing: &HashSet<String>,
) -> Result<(), DbError> {
    let mut refusals = Refusals::default();
    for (queue, hold) in holds.iter().filter(|(_, hold)| hold.boot == me.boot) {
        let needed = runs.needs_hold(&hold.id) || standing.contains(&hold.id);
        if let (Bson::ObjectId(queue), false) = (queue, needed) {
            refusals.skip_refused(database.hold_drop(*queue, &hold.id).await)?;
        }
    }
    refusals.into_result()
}
