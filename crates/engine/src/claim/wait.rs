//! Wait: a caller asks for jobs, waits when there are none, and may disconnect at any moment. Jobs
//! claimed for a caller that disconnected are handed back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use windlass_core::TypeKey;

use crate::claim::waitlist::Interest;
use crate::error::Error;
use crate::ingest::freshness::FRESH_CLAIM;
use crate::shared::Shared;

/// How one kind of caller is served.
pub(crate) struct Serving<T, A, B> {
    /// Looks for jobs once.
    pub attempt: A,
    /// Whether jobs of this type were found.
    pub has: fn(&T, &TypeKey) -> bool,
    /// Hands back what was found for a caller that disconnected.
    pub back: B,
}

/// Calls `attempt` until it finds something: at once, and then whenever jobs that match `interest`
/// may be ready, for up to `wait`.
pub(crate) async fn serve<T, A, B, Attempt, Back>(
    shared: &Arc<Shared>,
    interest: Interest,
    wait: Duration,
    serving: Serving<T, Attempt, Back>,
) -> Result<Option<T>, Error>
where
    T: Send + 'static,
    A: Future<Output = Result<Option<T>, Error>> + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
    Attempt: Fn(Arc<Shared>) -> A + Send + 'static,
    Back: Fn(Arc<Shared>, T) -> B + Clone + Send + 'static,
{
    let Serving { attempt, has, back } = serving;
    let gone = CancellationToken::new();
    let (answer, answered) = oneshot::channel();
    let working = search(shared.clone(), interest, wait, (attempt, has), gone.clone());
    let hand_back = {
        let (shared, back) = (shared.clone(), back);
        move |found| drop(tokio::spawn(back(shared.clone(), found)))
    };
    tokio::spawn({
        let hand_back = hand_back.clone();
        async move {
            if let Err(Ok(Some(found))) = answer.send(working.await) {
                hand_back(found);
            }
        }
    });
    let mut asking = Asking { gone, answered, hand_back };
    let closed = |_| Err(Error::Unavailable("the daemon stops".into()));
    (&mut asking.answered).await.unwrap_or_else(closed)
}

async fn search<T, A>(
    shared: Arc<Shared>,
    interest: Interest,
    wait: Duration,
    (attempt, has): (impl Fn(Arc<Shared>) -> A, fn(&T, &TypeKey) -> bool),
    gone: CancellationToken,
) -> Result<Option<T>, Error>
where
    A: Future<Output = Result<Option<T>, Error>>,
{
    let deadline = tokio::time::Instant::now() + wait;
    shared.fresh.all(FRESH_CLAIM).await;
    if wait.is_zero() {
        return attempt(shared).await;
    }
    let mut waiting = shared.ready.waitlist.enter(interest);
    loop {
        let found = attempt(shared.clone()).await;
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

/// A caller's request, until it is answered or the caller disconnects.
struct Asking<T, F: Fn(T)> {
    gone: CancellationToken,
    answered: oneshot::Receiver<Result<Option<T>, Error>>,
    hand_back: F,
}

impl<T, F: Fn(T)> Drop for Asking<T, F> {
    fn drop(&mut self) {
        self.gone.cancel();
        self.answered.close();
        if let Ok(Ok(Some(found))) = self.answered.try_recv() {
            (self.hand_back)(found);
        }
    }
}
