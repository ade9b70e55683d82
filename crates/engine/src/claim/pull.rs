//! Pull: outside workers claim jobs. A worker holds the leases of its jobs until it ends them
//! (`settle::worker`).

use std::sync::Arc;

use windlass_core::TypeKey;
use windlass_core::limit::{PULL_JOBS, PULL_PAYLOAD_BYTES_MAX};
use windlass_core::store::{
    Claimed, Durability, Hold, LeaseRef, NamedLook, NamedTypes, WaitingType,
};

use crate::api::PullClaim;
use crate::claim::interest::{Interest, Pattern};
use crate::claim::reserve::Reservation;
use crate::claim::wait::{self, Looked, Serving};
use crate::error::{Error, store_error};
use crate::follow_up;
use crate::settle::verdict;
use crate::shared::Shared;

/// Types that one claim chooses from; at least as many as it wants jobs.
const TYPES_MAX: u32 = 64;
/// Pages that one look reads in search of a matching type; the next one continues there.
const PAGES_MAX: usize = 100;
/// Claims that one look tries while others are faster; then the worker pauses.
const TRIES_MAX: usize = 16;

/// Claims jobs for a worker; waits when there are none.
pub(crate) async fn claim(shared: Arc<Shared>, wish: PullClaim) -> Result<Vec<Claimed>, Error> {
    PULL_JOBS.check("limit", wish.limit)?;
    shared.options.maxima.check_lease(wish.lease)?;
    let interest = Interest {
        tenant: wish.tenant.clone(),
        names: wish.types.iter().map(|text| Pattern::of(text)).collect(),
        priority: None,
        payload_bytes_max: u64::MAX,
        hidden: false,
    };
    let (wait, wish) = (wish.wait, Arc::new(wish));
    let look = move |shared| claim_now(shared, wish.clone());
    let has = |claimed: &Vec<Claimed>, key: &TypeKey| {
        claimed.iter().any(|claimed| claimed.job.key == *key)
    };
    let serving = Serving { look, has, back: hand_back };
    let claimed = wait::serve(&shared, interest, wait, serving).await?.unwrap_or_default();
    follow_up::pulled(&shared, claimed.iter().map(|claimed| &claimed.job));
    Ok(claimed)
}

async fn claim_now(
    shared: Arc<Shared>,
    wish: Arc<PullClaim>,
) -> Result<Looked<Vec<Claimed>>, Error> {
    for _ in 0..TRIES_MAX {
        let types = match types(&shared, &wish).await? {
            Looked::Found(types) => types,
            Looked::Nothing => return Ok(Looked::Nothing),
            Looked::CutShort => return Ok(Looked::CutShort),
        };
        let reservations = reserve(&shared, &wish, types);
        if reservations.is_empty() {
            // Others have just used up the rates of these types.
            continue;
        }
        let hold = Hold::For(wish.lease);
        let claimed = super::claim(&shared, reservations, hold, PULL_PAYLOAD_BYTES_MAX).await;
        // These leases are not on the beat, so it does not check them against the running table.
        let (filled, _) = claimed.map_err(store_error)?;
        let claimed: Vec<Claimed> = filled.into_iter().flat_map(|(jobs, _)| jobs).collect();
        if !claimed.is_empty() {
            return Ok(Looked::Found(claimed));
        }
    }
    Ok(Looked::CutShort)
}

/// Reserves jobs of these types, in random order, up to the limit.
fn reserve(
    shared: &Arc<Shared>,
    wish: &PullClaim,
    mut types: Vec<WaitingType>,
) -> Vec<Reservation> {
    shared.rng().shuffle(&mut types);
    let mut left = wish.limit;
    let mut reservations = Vec::new();
    for of_type in types {
        if left == 0 {
            break;
        }
        if let Some(reservation) = Reservation::of_type(shared, &of_type, left) {
            left -= reservation.jobs();
            reservations.push(reservation);
        }
    }
    reservations
}

/// Some of the matching open types, at least one of which may start a job. If there are very many,
/// each look gets the next page.
async fn types(shared: &Shared, wish: &PullClaim) -> Result<Looked<Vec<WaitingType>>, Error> {
    let mut after = shared.cursors.get(&wish.tenant, &wish.types);
    let mut from_start = after.is_none();
    let mut looked_again = false;
    for _ in 0..PAGES_MAX {
        let look = NamedLook {
            tenant: wish.tenant.clone(),
            names: wish.types.clone(),
            after: after.clone(),
            limit: wish.limit.max(TYPES_MAX) as usize,
        };
        let found = shared.store.type_named(look).await.map_err(store_error)?;
        let NamedTypes { types, next, full } = found;
        if full && shared.ready.set_limit_hit() && !looked_again {
            // Room that came before this was not announced: look again. Room that comes from now on
            // is announced to those who wait.
            looked_again = true;
            continue;
        }
        let at_end = next.is_none();
        after = next;
        let now = shared.clock.steady();
        let startable =
            types.iter().any(|of| shared.ready.scheduler().may_start(&of.key, &of.settings, now));
        if !startable && !types.is_empty() {
            // These types rest. If their rates have changed, that is over earlier than the
            // dispatcher knows, which wakes workers then.
            shared.ready.dispatch_wake.notify_one();
        }
        if startable || (at_end && from_start) {
            shared.cursors.set(&wish.tenant, &wish.types, after);
            return Ok(if startable { Looked::Found(types) } else { Looked::Nothing });
        }
        from_start |= at_end;
    }
    shared.cursors.set(&wish.tenant, &wish.types, after);
    Ok(Looked::CutShort)
}

/// Releases jobs of a worker that disconnected.
async fn hand_back(shared: Arc<Shared>, claimed: Vec<Claimed>) {
    let leases = claimed.iter().filter_map(|claimed| LeaseRef::of(&claimed.job));
    let releases = leases.clone().map(|lease| verdict::release(lease, None));
    match shared.store.job_settle(releases.collect(), Durability::Relaxed).await {
        Ok(_) => shared.ready.announce(claimed.into_iter().map(|claimed| (claimed.job.key, 1))),
        Err(error) => {
            leases.for_each(|lease| shared.daemon.abandoned.note(lease.token));
            tracing::warn!(%error, "jobs of a disconnected worker are released later");
        }
    }
}
