//! Settle: stores the settlements of ended attempts, each with the jobs that the attempt emitted,
//! and announces what follows from them.
//!
//! ```text
//!   dispatch ─► verdict ─► queue ─► service (outbox) ─┐
//!   outside workers: worker ─► verdict ───────────────┼─► store ─► follow_up
//!   reap, beat ─► verdict ─► settle_each ─────────────┘
//! ```
//!
//! An attempt that runs here stays in the running table, and its lease is renewed, until its
//! settlement is stored.

mod outbox;
pub(crate) mod queue;
pub(crate) mod service;
pub(crate) mod verdict;
pub(crate) mod worker;

use std::sync::Arc;

use windlass_core::store::{self, Durability, Settled, Settlement};

use crate::shared::Shared;

/// Stores settlements that do not come through the queue. If the store fails at the batch, they are
/// stored one by one, so that one damaged job does not block the others. Returns the answers, and
/// the first error.
pub(crate) async fn settle_each(
    shared: &Shared,
    settlements: Arc<[Settlement]>,
) -> (Vec<Option<Settled>>, Result<(), store::Error>) {
    let settle = |batch| shared.store.job_settle(batch, Durability::Relaxed);
    match settle(settlements.clone()).await {
        Ok(answer) => return (answer.settled.into_iter().map(Some).collect(), Ok(())),
        Err(error @ store::Error::Unavailable(_)) => return (Vec::new(), Err(error)),
        Err(_) => {}
    }
    let (mut answers, mut all) = (Vec::with_capacity(settlements.len()), Ok(()));
    for settlement in &*settlements {
        let settled = settle([settlement.clone()].into()).await;
        answers.push(settled.as_ref().ok().and_then(|answer| answer.settled.first().copied()));
        all = all.and(settled.map(drop));
    }
    (answers, all)
}
