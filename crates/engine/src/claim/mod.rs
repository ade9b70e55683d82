//! Claim: how waiting jobs are taken under leases. There is one way for all: the dispatcher,
//! workers that pull, and doors whose decision says what becomes of each job.
//!
//! ```text
//!   dispatcher ── picks of the scheduler ─┐
//!   pull ──────── types found by name ────┴─► Reservation ─► job_claim ─► answered, or given back
//!   take ──────── names and a decision ─────► Reservation ─► job_take  ─► answered, or given back
//! ```
//!
//! **Limits.** A type's `concurrency` is counted in one place, the store, within the claim itself:
//! so it holds for claims of all kinds at once, of this daemon and of others. A type's `rate` is
//! counted by the scheduler: a claim reserves its starts before it asks the store. A `Reservation`
//! holds what a claim may use of a type (starts, and a slot for a batch); what is not used goes
//! back when it is dropped, whatever happened to the claim.
//!
//! **What a claim sees.** Every job whose add was answered before: the claim waits until our own
//! journal is in the store that far, and then asks the store, not the scheduler's estimates.
//!
//! **Waiting.** A worker that finds nothing waits in the `Waitlist`. It enters the list before it
//! looks, so that it misses nothing. Jobs claimed for a caller that disconnected are released.

pub(crate) mod cursor;
pub(crate) mod pull;
pub(crate) mod reserve;
pub(crate) mod take;
pub(crate) mod token;
pub(crate) mod wait;
pub(crate) mod waitlist;

use std::collections::HashMap;
use std::sync::Arc;

use windlass_core::TypeKey;
use windlass_core::store::{Claim, Claimed, Error, Hold, Pick};

use crate::shared::Shared;
use reserve::{Reservation, Slot};
use token::UnderWay;

/// Tokens that one claim tries: a new boot number is larger than all before it, so only daemons
/// that got one in the meantime can be in the way.
const TOKENS_TRIED_MAX: usize = 4;

/// What one reservation got: its jobs, and its slot if it had one.
pub(crate) type Filled = (Vec<Claimed>, Option<Slot>);

/// Claims what was reserved, in one call of the store; each reservation gets what it reserved, or
/// as much as there is. The claim is under way until the guard is dropped.
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
    for tried in 0..TOKENS_TRIED_MAX {
        let token = shared.daemon.tokens.next(store).await?;
        let under_way = shared.daemon.tokens.under_way(token);
        let claim = Claim { picks: picks.clone(), owner, token, hold };
        match store.job_claim(claim).await {
            // A later claim of ours was faster, or another daemon's has a newer boot number.
            Err(Error::Conflict(_)) if tried == 0 => {}
            Err(Error::Conflict(_)) => shared.daemon.tokens.refresh(store).await?,
            answer => return Ok((answer?, under_way)),
        }
    }
    Err(Error::Conflict("other daemons have had the jobs under larger tokens".into()))
}

/// One pick for each type, however many reservations there are of it.
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

/// The shared state that reservations give back to.
pub(crate) type Owner = Arc<Shared>;
