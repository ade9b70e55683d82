//! Wait: a caller asks for jobs, waits when there are none, and may disconnect at any moment. Jobs
//! claimed for a caller that disconnected are handed back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::TypeKey;

use crate::claim::interest::Interest;
use crate::detach::to_its_end;
use crate::error::Error;
use crate::ingest::freshness::FRESH_CLAIM;
use crate::shared::Shared;

/// What a caller wants is in its wish, in the waitlist and in the call of the store.
const COPIES: usize = 3;

/// How one kind of caller is served.
pub(crate) struct Serving<T, Attempt, Back> {
    /// Looks for jobs once.
    pub attempt: Attempt,
    /// Whether jobs of this type were found.
    pub has: fn(&T, &TypeKey) -> bool,
    /// Hands back what was found for a caller that disconnected.
    pub back: Back,
}

/// Calls `attempt` until it finds something: at once, and then whenever jobs that match `interest`
/// may be ready, for up to `wait`.
pub(crate) async fn serve<T, Attempt, Found, Back, Returned>(
    shared: &Arc<Shared>,
    interest: Interest,
    wait: Duration,
    serving: Serving<T, Attempt, Back>,
) -> Result<Option<T>, Error>
where
    T: Send + 'static,
    Attempt: Fn(Arc<Shared>) -> Found + Send + 'static,
    Found: Future<Output = Result<Option<T>, Error>> + Send + 'static,
    Back: Fn(Arc<Shared>, T) -> Returned + Send + 'static,
    Returned: Future<Output = ()> + Send + 'static,
{
    let (gone, shared) = (CancellationToken::new(), shared.clone());
    let leaving = gone.clone();
    let Serving { attempt, has, back } = serving;
    let attempt = {
        let shared = shared.clone();
        move || attempt(shared.clone())
    };
    let deliver = |shared, found, gone: CancellationToken| async move {
        if gone.is_cancelled() {
            Box::pin(back(shared, found)).await;
            return Ok(None);
        }
        Ok(Some(found))
    };
    let bytes = COPIES * interest.bytes();
    // Two futures, so that one that waits has no memory for an attempt.
    let serving = match wait.is_zero() {
        true => to_its_end(async move {
            shared.fresh.all(FRESH_CLAIM).await;
            let Some(_room) = room(&shared, bytes, &gone).await else { return Ok(None) };
            let Some(found) = attempt().await? else { return Ok(None) };
            deliver(shared, found, gone).await
        }),
        false => to_its_end(async move {
            let found = search(&shared, (interest, bytes), wait, (attempt, has), &gone).await?;
            let Some((found, _room)) = found else { return Ok(None) };
            deliver(shared, found, gone).await
        }),
    };
    let mut serving = pin!(serving);
    // Dropped before the search is: the rest of the search knows that its caller is gone.
    let _leaving = leaving.drop_guard();
    serving.as_mut().await
}

/// Waits for room to look for jobs, which is held until they are delivered or handed back. `None`
/// if the caller disconnects before.
async fn room(
    shared: &Shared,
    bytes: usize,
    gone: &CancellationToken,
) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        () = gone.cancelled() => None,
        room = shared.look_room.take(bytes) => room,
    }
}

async fn search<T, Found>(
    shared: &Shared,
    (interest, bytes): (Interest, usize),
    wait: Duration,
    (attempt, has): (impl Fn() -> Found, fn(&T, &TypeKey) -> bool),
    gone: &CancellationToken,
) -> Result<Option<(T, OwnedSemaphorePermit)>, Error>
where
    Found: Future<Output = Result<Option<T>, Error>>,
{
    let deadline = Instant::now() + wait;
    shared.fresh.all(FRESH_CLAIM).await;
    let mut waiting = shared.ready.waitlist.enter(interest)?;
    loop {
        let Some(room) = room(shared, bytes, gone).await else { return Ok(None) };
        // Boxed: while it waits, there is no memory for an attempt.
        let found = Box::pin(attempt()).await;
        match &found {
            Ok(None) => waiting.checked(|_| true),
            Ok(Some(found)) => waiting.checked(|key| has(found, key)),
            Err(_) => {}
        }
        if let Some(found) = found? {
            return Ok(Some((found, room)));
        }
        drop(room);
        tokio::select! {
            biased;
            () = gone.cancelled() => return Ok(None),
            () = tokio::time::sleep_until(deadline) => return Ok(None),
            () = waiting.woken() => {}
        }
    }
}
