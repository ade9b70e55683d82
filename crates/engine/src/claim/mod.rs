//! Claim: takes waiting jobs under leases. The dispatcher, pulling workers, and doors with a
//! decision of their own all come through here.
//!
//! ```text
//!   dispatcher ── picks of the scheduler ─┐
//!   pull ──────── types found by name ────┴─► Reservation ─► job_claim ─► answered, or given back
//!   take ──────── names and a decision ─────► Reservation ─► job_take  ─► answered, or given back
//! ```
//!
//! **Limits.** The store counts a type's `concurrency` within the claim, so it holds for all kinds
//! of claims and all daemons. The scheduler counts a type's `rate`: a claim reserves its starts
//! before it asks the store. A `Reservation` holds what a claim may use of a type (starts, and a
//! slot for a batch). Dropping it returns what was not used, whatever happened to the claim.
//!
//! **What a claim sees.** Every job whose add this daemon answered before: the claim of a worker
//! waits until our journal is ingested that far (for `FRESH_CLAIM` at most, if the store is slow),
//! and then asks the store, not the scheduler's estimates.
//!
//! **Waiting.** A worker that finds nothing waits in the `Waitlist`. It enters the list before it
//! looks, so it misses nothing. Jobs claimed for a caller that disconnected are released.

pub(crate) mod cursor;
pub(crate) mod pull;
pub(crate) mod reserve;
pub(crate) mod take;
pub(crate) mod token;
pub(crate) mod wait;
pub(crate) mod waitlist;

use std::collections::HashMap;

use windlass_core::TypeKey;
use windlass_core::store::{Claim, Claimed, Error, Hold, Pick};

use crate::shared::Shared;
use reserve::{Reservation, Slot};
use token::UnderWay;

/// The jobs that one reservation got, and its slot if it had one.
pub(crate) type Filled = (Vec<Claimed>, Option<Slot>);

/// Claims what was reserved, in one call of the store. Each reservation gets up to as many jobs as
/// it reserved. The claim is under way until the guard is dropped.
pub(crate) async fn claim(
    shared: &Shared,
    reservations: Vec<Reservation>,
    hold: Hold,
) -> Result<(Vec<Filled>, UnderWay<'_>), Error> {
    let (claimed, under_way) = claim_picks(shared, picks(&reservations), hold).await?;
    let mut left: HashMap<TypeKey, u64> = HashMap::new();
    let mut by_type: HashMap<TypeKey, Vec<Claimed>> = HashMap::new();
    for job in claimed {
        left.insert(job.job.key.clone(), job.left);
        by_type.entry(job.job.key.clone()).or_default().push(job);
    }
    let fill = |reservation: Reservation| {
        let of_type = by_type.get_mut(reservation.key());
        let take = |jobs: &mut Vec<Claimed>| {
            jobs.drain(..jobs.len().min(reservation.jobs() as usize)).collect()
        };
        let jobs: Vec<Claimed> = of_type.map(take).unwrap_or_default();
        let left = left.get(reservation.key()).copied().unwrap_or(0);
        let slot = reservation.answered(&jobs, left);
        (jobs, slot)
    };
    Ok((reservations.into_iter().map(fill).collect(), under_way))
}

async fn claim_picks(
    shared: &Shared,
    picks: Vec<Pick>,
    hold: Hold,
) -> Result<(Vec<Claimed>, UnderWay<'_>), Error> {
    let (store, owner) = (shared.store.as_ref(), shared.daemon.sysid());
    let tokens = &shared.daemon.tokens;
    let claim = |token| {
        let under_way = tokens.under_way(token);
        let claimed = store.job_claim(Claim { picks: picks.clone(), owner, token, hold });
        async move { Ok((claimed.await?, under_way)) }
    };
    tokens.claim(store, claim).await
}

/// One pick per type, however many reservations it has.
fn picks(reservations: &[Reservation]) -> Vec<Pick> {
    let mut picks: Vec<Pick> = Vec::with_capacity(reservations.len());
    let mut places: HashMap<&TypeKey, usize> = HashMap::new();
    for reservation in reservations {
        let place = *places.entry(reservation.key()).or_insert(picks.len());
        if place == picks.len() {
            let key = reservation.key().clone();
            picks.push(Pick { key, limit: 0, floor: None });
        }
        picks[place].limit += reservation.jobs();
        picks[place].floor = picks[place].floor.or(reservation.floor());
    }
    picks
}
