//! All queues with their counts. Counting reads every task, so only one count runs at a time:
//! requests that arrive meanwhile share the next one. No answer is older than its request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mongodb::bson::Document;
use mongodb::bson::oid::ObjectId;
use tokio::sync::Mutex;

use crate::database::{Counts, Database, DbError};

/// How long a count may take. A request that waits for a previous count waits twice as long.
const COUNT_TIME_MAX: Duration = Duration::from_secs(25);

/// Queues with their counts.
#[derive(Debug)]
pub(crate) struct CountedQueues {
    pub(crate) queues: Vec<Document>,
    counts: HashMap<ObjectId, Counts>,
}

impl CountedQueues {
    /// The counts of one queue.
    pub(crate) fn of(&self, queue: &Document) -> Counts {
        let id = queue.get_object_id("_id").ok();
        id.and_then(|id| self.counts.get(&id).copied()).unwrap_or_default()
    }

    /// Counts the tasks of these queues.
    pub(crate) async fn load(
        database: &Database,
        queues: Vec<Document>,
    ) -> Result<CountedQueues, DbError> {
        let ids: Vec<ObjectId> =
            queues.iter().filter_map(|queue| queue.get_object_id("_id").ok()).collect();
        let counts = database.queue_counts_within(&ids, COUNT_TIME_MAX).await?;
        Ok(CountedQueues { queues, counts })
    }
}

#[derive(Default)]
pub(crate) struct Queues(Coalesced<Result<Arc<CountedQueues>, DbError>>);

impl Queues {
    pub(crate) async fn counted(&self, database: &Database) -> Result<Arc<CountedQueues>, DbError> {
        let look =
            async || CountedQueues::load(database, database.queues().await?).await.map(Arc::new);
        self.0.get(look).await
    }
}

/// One answer for all concurrent requests.
struct Coalesced<T> {
    asked: AtomicU64,
    /// The last answer, and the number of requests when it was started.
    last: Mutex<Option<(u64, T)>>,
}

impl<T> Default for Coalesced<T> {
    fn default() -> Self {
        Self { asked: AtomicU64::new(0), last: Mutex::default() }
    }
}

impl<T: Clone> Coalesced<T> {
    /// An answer that was computed after this call began.
    async fn get(&self, look: impl AsyncFnOnce() -> T) -> T {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some((before, answer)) = &*last
            && mine < *before
        {
            return answer.clone();
        }
        let before = self.asked.load(Ordering::SeqCst);
        let answer = look().await;
        *last = Some((before, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use futures_util::poll;
    use std::pin::pin;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn who_asks_meanwhile_shares_the_next_look() {
        let (shared, looks, gate) = (Coalesced::default(), AtomicU64::new(0), Semaphore::new(0));
        let ask = || {
            shared.get(async || {
                let look = looks.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                look
            })
        };
        let mut first = pin!(ask());
        assert!(poll!(first.as_mut()).is_pending());
        let mut others = pin!(join_all((0..5).map(|_| ask())));
        assert!(poll!(others.as_mut()).is_pending());
        gate.add_permits(2);
        let (first, others) = tokio::join!(first, others);
        assert_eq!((first, others), (0, vec![1; 5]));
        gate.add_permits(1);
        assert_eq!(ask().await, 2, "a later request gets a count of its own");
    }

    #[tokio::test]
    async fn who_goes_away_keeps_nobody_waiting() {
        let shared = Coalesced::default();
        let mut gone = Box::pin(shared.get(async || std::future::pending::<u8>().await));
        assert!(poll!(gone.as_mut()).is_pending());
        let mut waiting = pin!(shared.get(async || 7));
        assert!(poll!(waiting.as_mut()).is_pending());
        drop(gone);
        assert_eq!(waiting.await, 7);
    }
}
