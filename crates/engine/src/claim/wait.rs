//! Wait: a caller asks for jobs, waits when there are none, and may disconnect at any moment. Jobs
//! claimed for a caller that disconnected are handed back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::TypeKey;

use crate::claim::waitlist::Interest;
use crate::detach::to_its_end;
use crate::error::Error;
use crate::ingest::freshness::FRESH_CLAIM;
use crate::shared::Shared;

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
    let mut serving = pin!(to_its_end(async move {
        let Serving { attempt, has, back } = serving;
        let attempt = {
            let shared = shared.clone();
            move || attempt(shared.clone())
        };
        match search(&shared, interest, wait, (attempt, has), &gone).await? {
            Some(found) if gone.is_cancelled() => {
                back(shared, found).await;
                Ok(None)
            }
            found => Ok(found),
        }
    }));
    // Dropped before the search is: the rest of the search knows that its caller is gone.
    let _leaving = leaving.drop_guard();
    serving.as_mut().await
}

async fn search<T, Found>(
    shared: &Shared,
    interest: Interest,
    wait: Duration,
    (attempt, has): (impl Fn() -> Found, fn(&T, &TypeKey) -> bool),
    gone: &CancellationToken,
) -> Result<Option<T>, Error>
where
    Found: Future<Output = Result<Option<T>, Error>>,
{
    let deadline = Instant::now() + wait;
    shared.fresh.all(FRESH_CLAIM).await;
    if wait.is_zero() {
        return attempt().await;
    }
    let mut waiting = shared.ready.waitlist.enter(interest);
    loop {
        // Boxed: while it waits, a worker needs no memory for an attempt.
        let found = Box::pin(attempt()).await;
        match &found {
            Ok(None) => waiting.checked(|_| true),
            Ok(Some(found)) => waiting.checked(|key| has(found, key)),
            Err(_) => {}
        }
        if !matches!(found, Ok(None)) {
            return found;
        }
        tokio::select! {
            () = waiting.woken() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(None),
            () = gone.cancelled() => return Ok(None),
        }
        if gone.is_cancelled() {
            return Ok(None);
        }
    }
}
