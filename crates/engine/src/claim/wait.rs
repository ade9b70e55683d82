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
use crate::house::service::Backoff;
use crate::ingest::freshness::FRESH_CLAIM;
use crate::shared::Shared;

/// What a caller wants is in its wish, in the waitlist and in the call of the store.
const COPIES: usize = 3;
/// Pauses before a caller whose look was cut short looks again. They grow, because such looks read
/// much: many callers may wait for very many types that rest.
const AGAIN_MIN: Duration = Duration::from_millis(10);
const AGAIN_MAX: Duration = Duration::from_secs(10);

/// What one look for jobs has shown.
pub(crate) enum Looked<T> {
    Found(T),
    /// No job was there that the caller may have. One that comes later is announced.
    Nothing,
    /// The look reached one of its bounds first: there may be a job, and nothing announces it.
    CutShort,
}

/// How one kind of caller is served.
pub(crate) struct Serving<T, Look, Back> {
    /// Looks for jobs once.
    pub look: Look,
    /// Whether jobs of this type were found.
    pub has: fn(&T, &TypeKey) -> bool,
    /// Hands back what was found for a caller that disconnected.
    pub back: Back,
}

/// Calls `look` until it finds something: at once, and then whenever jobs that match `interest`
/// may be ready, for up to `wait`.
pub(crate) async fn serve<T, Look, Looking, Back, Returned>(
    shared: &Arc<Shared>,
    interest: Interest,
    wait: Duration,
    serving: Serving<T, Look, Back>,
) -> Result<Option<T>, Error>
where
    T: Send + 'static,
    Look: Fn(Arc<Shared>) -> Looking + Send + 'static,
    Looking: Future<Output = Result<Looked<T>, Error>> + Send + 'static,
    Back: Fn(Arc<Shared>, T) -> Returned + Send + 'static,
    Returned: Future<Output = ()> + Send + 'static,
{
    let (gone, shared) = (CancellationToken::new(), shared.clone());
    let leaving = gone.clone();
    let Serving { look, has, back } = serving;
    let look = {
        let shared = shared.clone();
        move || look(shared.clone())
    };
    let deliver = |shared, found, gone: CancellationToken| async move {
        if gone.is_cancelled() {
            Box::pin(back(shared, found)).await;
            return Ok(None);
        }
        Ok(Some(found))
    };
    let bytes = COPIES * interest.bytes();
    // Two futures, so that one that waits has no memory for a look.
    let serving = match wait.is_zero() {
        true => to_its_end(async move {
            shared.fresh.all(FRESH_CLAIM).await;
            let Some(_room) = room(&shared, bytes, &gone).await else { return Ok(None) };
            let Looked::Found(found) = look().await? else { return Ok(None) };
            deliver(shared, found, gone).await
        }),
        false => to_its_end(async move {
            let found = search(&shared, (interest, bytes), wait, (look, has), &gone).await?;
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
        room = shared.rooms.look.take(bytes) => room,
    }
}

async fn search<T, Looking>(
    shared: &Shared,
    (interest, bytes): (Interest, usize),
    wait: Duration,
    (look, has): (impl Fn() -> Looking, fn(&T, &TypeKey) -> bool),
    gone: &CancellationToken,
) -> Result<Option<(T, OwnedSemaphorePermit)>, Error>
where
    Looking: Future<Output = Result<Looked<T>, Error>>,
{
    let deadline = Instant::now() + wait;
    let mut again = Backoff::new(AGAIN_MIN, AGAIN_MAX);
    shared.fresh.all(FRESH_CLAIM).await;
    let mut waiting = shared.ready.waitlist.enter(interest)?;
    loop {
        let Some(room) = room(shared, bytes, gone).await else { return Ok(None) };
        // Boxed: while it waits, there is no memory for a look.
        let again_at = match Box::pin(look()).await? {
            Looked::Found(found) => {
                waiting.checked(|key| has(&found, key));
                return Ok(Some((found, room)));
            }
            Looked::Nothing => {
                waiting.checked(|_| true);
                again.reset();
                deadline
            }
            // Its wake-up is not used up, and goes to another worker if this one leaves.
            Looked::CutShort => deadline.min(Instant::now() + again.pause()),
        };
        drop(room);
        tokio::select! {
            biased;
            () = gone.cancelled() => return Ok(None),
            () = tokio::time::sleep_until(again_at) => {
                if again_at == deadline {
                    return Ok(None);
                }
            }
            () = waiting.woken() => {}
        }
    }
}
