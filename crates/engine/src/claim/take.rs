//! Take: workers ask for jobs by name, and a pure decision of their door says what becomes of each.
//! A worker gets the best job of all types that it names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::edit::{Claimant, Take, TakeAnswer, TakenJob};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::{Invalid, Payload, TypeKey};

use crate::claim::interest::{Interest, Pattern};
use crate::claim::untake::{self, PayloadBefore, Starts, Taken};
use crate::claim::wait::{self, Looked, Serving};
use crate::error::{Error, store_error};
use crate::follow_up;
use crate::shared::Shared;

/// Store calls of one search among very many types.
const PIECES_MAX: usize = 1000;

/// Takes jobs; waits when there are none.
pub(crate) async fn take(
    shared: Arc<Shared>,
    take: Take,
    wait: Duration,
) -> Result<TakeAnswer, Error> {
    if take.limit == 0 || take.limit as usize > BATCH_JOBS_MAX {
        let reason = format!("a worker takes 1 to {BATCH_JOBS_MAX} jobs");
        return Err(Invalid::new("limit", reason).into());
    }
    let interest = Interest {
        tenant: take.tenant.clone(),
        names: Pattern::of_names(&take.names),
        priority: take.priority,
        payload_bytes_max: take.payload_bytes_max,
        hidden: take.hidden,
    };
    let look = move |shared| take_now(shared, take.clone());
    let has = |answer: &TakeAnswer, key: &TypeKey| {
        answer.given.iter().any(|taken| taken.before.job.key == *key)
    };
    let serving = Serving { look, has, back: hand_back };
    let answer = wait::serve(&shared, interest, wait, serving).await?.unwrap_or_default();
    follow_up::pulled(&shared, answer.given.iter().map(|taken| &taken.job));
    Ok(answer)
}

async fn take_now(shared: Arc<Shared>, mut take: Take) -> Result<Looked<TakeAnswer>, Error> {
    let (mut looked_again, mut alone) = (false, None);
    for _ in 0..PIECES_MAX {
        let share = shared.rooms.claim.share(u64::from(take.limit), take.payload_bytes_max);
        take.bytes_max = if alone.is_some() { u64::MAX } else { share.bytes() };
        let store = shared.store.as_ref();
        let owner = shared.daemon.sysid();
        let under = |token| {
            let took = store.job_take(Take { claimant: Claimant { owner, token }, ..take.clone() });
            let abandoned = &shared.daemon.abandoned;
            async move { abandoned.note_unanswered(token, took.await) }
        };
        let answer = shared.daemon.tokens.with_token(store, under).await.map_err(store_error)?;
        taken(&shared, &answer);
        if !answer.given.is_empty() || answer.kept > 0 {
            return Ok(Looked::Found(answer));
        }
        if answer.oversized {
            alone = shared.rooms.claim.oversized().await;
            take.limit = 1;
            continue;
        }
        if answer.full && shared.ready.set_limit_hit() && !looked_again {
            // Room that came before this was not announced: look again. Room that comes from now on
            // is announced to those who wait.
            looked_again = true;
            continue;
        }
        take.after = answer.next;
        if take.after.is_none() {
            return Ok(Looked::Nothing);
        }
    }
    Ok(Looked::CutShort)
}

/// Updates the scheduler and announces what changed.
fn taken(shared: &Shared, answer: &TakeAnswer) {
    let mut given: BTreeMap<&TypeKey, u32> = BTreeMap::new();
    for taken in &answer.given {
        *given.entry(&taken.before.job.key).or_default() += 1;
    }
    shared.ready.rest(&answer.rests, shared.clock.steady());
    {
        let mut scheduler = shared.ready.scheduler();
        given.iter().for_each(|(key, jobs)| scheduler.taken(key, u64::from(*jobs)));
    }
    follow_up::announce(shared, &answer.moved);
}

/// Jobs of a caller that disconnected are released unchanged.
async fn hand_back(shared: Arc<Shared>, answer: TakeAnswer) {
    let of_one = |TakenJob { before, job, payload, .. }: TakenJob| {
        (Taken { before: before.job, after: job }, (before.payload, payload))
    };
    let (taken, payloads): (Vec<Taken>, Vec<_>) = answer.given.into_iter().map(of_one).unzip();
    let payload_before: PayloadBefore = Arc::new(move |index, now| match (&payloads[index], now) {
        ((Payload::Inline(was), Some(written)), Payload::Inline(now)) if now == written => {
            Some(was.clone())
        }
        _ => None,
    });
    let undone = untake::untake(&shared, taken, payload_before, Starts::NotLogged).await;
    if let Err(error) = undone {
        tracing::warn!(%error, "jobs of a disconnected worker come back later");
    }
}
