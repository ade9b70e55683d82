//! Claim: takes waiting jobs under leases. This module serves the dispatcher, pulling workers, and
//! doors with a decision of their own (see `take`); takes do not use `claim`.
//!
//! ```text
//!   dispatcher ── picks of the scheduler ─┐
//!   pull ──────── types found by name ────┴─► Reservation ─► job_claim ─► answered, or given back
//!   take ──────── names and a decision ──────────────────► job_take
//! ```
//!
//! **Limits.** The store counts a type's `concurrency` and `rate` within the claim, so they hold
//! for all kinds of claims and all daemons. Its answer says which types rest now, and the scheduler
//! leaves these alone until then. A `Reservation` is a claim's share of a type: jobs that no other
//! claim counts on, and a slot for a batch. Dropping it returns what was not used, whatever
//! happened to the claim. A take has none: the store finds its types, so there is nothing to
//! reserve before it is answered. The payloads of all of them together are bounded by `room`.
//!
//! **What a claim sees.** Every job whose add this daemon answered before: the claim of a worker
//! waits until our journal is ingested that far (for `FRESH_CLAIM` at most, if the store is slow),
//! and then asks the store, not the scheduler's estimates.
//!
//! **Waiting.** A worker that finds nothing waits in the `Waitlist`. It enters the list before it
//! looks, so it misses nothing. A look has bounds: one that reaches them is repeated after a pause.
//!
//! **Giving back.** Jobs claimed for a caller that disconnected are released. Jobs of a take are
//! restored (`untake`), also if their door reports that they did not reach the worker.
//! If that fails, or the answer of a claim or take is lost, the beat releases their leases later
//! (`abandoned`); a job that a take has lent, without a lease, waits until its `run_at`.

pub(crate) mod abandoned;
pub(crate) mod cursor;
pub(crate) mod interest;
pub(crate) mod pull;
pub(crate) mod reserve;
pub(crate) mod room;
pub(crate) mod take;
pub(crate) mod token;
pub(crate) mod untake;
pub(crate) mod wait;
pub(crate) mod waitlist;

use std::collections::{HashMap, HashSet};

use windlass_core::TypeKey;
use windlass_core::store::{Claim, ClaimAnswer, Claimed, Error, Hold, Pick};

use crate::shared::Shared;
use reserve::{Reservation, Slot};
use token::UnderWay;

/// The jobs that one reservation got, and its slot if it had one.
pub(crate) type Filled = (Vec<Claimed>, Option<Slot>);

/// Claims what was reserved, in one call of the store. Each reservation gets up to as many jobs as
/// it reserved; all together no more inline payloads than `bytes_max`, except for the last job. The
/// claim is under way until the guard is dropped.
pub(crate) async fn claim(
    shared: &Shared,
    reservations: Vec<Reservation>,
    hold: Hold,
    bytes_max: u64,
) -> Result<(Vec<Filled>, UnderWay<'_>), Error> {
    let jobs = reservations.iter().map(|reservation| u64::from(reservation.jobs())).sum();
    let share = shared.rooms.claim.share(jobs, bytes_max);
    let (ClaimAnswer { jobs: claimed, rests }, under_way) =
        claim_picks(shared, picks(&reservations), hold, share.bytes()).await?;
    shared.ready.rest(&rests, shared.clock.steady());
    let rests: HashSet<TypeKey> = rests.into_iter().map(|rest| rest.key).collect();
    let bytes: u64 = claimed.iter().map(|claimed| claimed.payload.inline_len()).sum();
    let was_cut = bytes >= share.bytes();
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
        if jobs.is_empty() && (was_cut || rests.contains(reservation.key())) {
            // The store did not get to this type, or it rests; the reservation is given back.
            return (jobs, None);
        }
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
    payload_bytes_max: u64,
) -> Result<(ClaimAnswer, UnderWay<'_>), Error> {
    let (store, owner) = (shared.store.as_ref(), shared.daemon.sysid());
    let tokens = &shared.daemon.tokens;
    let claim = |token| {
        let under_way = tokens.under_way(token);
        let picks = picks.clone();
        let claimed = store.job_claim(Claim { picks, owner, token, hold, payload_bytes_max });
        async move {
            let claimed = claimed.await;
            let claimed = match hold {
                Hold::For(_) => shared.daemon.abandoned.note_unanswered(token, claimed),
                // The beat finds them by itself.
                Hold::Beat(_) => claimed,
            };
            Ok((claimed?, under_way))
        }
    };
    tokens.with_token(store, claim).await
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
