//! The counters of the seed's dialect in a queue: `count_todo` and `count_total`. Every program
//! updates them itself and some forget to, so they drift; lasting errors are corrected.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::{Database, DbError};
use crate::doc::Queue;

/// How long a difference must persist. Tasks and counters are updated one after the other, so short
/// differences are normal.
const DRIFT_TIME_MIN: Duration = Duration::from_secs(10);

/// The two counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    pub todo: i64,
    pub total: i64,
}

/// Observes the counters and decides which ones to correct.
#[derive(Debug, Default)]
pub(crate) struct CounterWatch {
    seen: HashMap<ObjectId, (Counters, Counters, Instant)>,
}

impl CounterWatch {
    /// Records an observation of a queue. True: stored and actual numbers have differed, unchanged,
    /// for long enough.
    pub(crate) fn observe(
        &mut self,
        queue: ObjectId,
        stored: Counters,
        real: Counters,
        at: Instant,
    ) -> bool {
        if stored == real {
            self.seen.remove(&queue);
            return false;
        }
        match self.seen.get(&queue) {
            Some((old_stored, old_real, since)) if (*old_stored, *old_real) == (stored, real) => {
                at.saturating_duration_since(*since) >= DRIFT_TIME_MIN
            }
            _ => {
                self.seen.insert(queue, (stored, real, at));
                false
            }
        }
    }

    /// Forgets queues that no longer exist.
    pub(crate) fn keep(&mut self, queues: &[ObjectId]) {
        self.seen.retain(|queue, _| queues.contains(queue));
    }
}

impl Database {
    /// Adds to existing counters. They are a convenience, so an error is only logged.
    pub(super) async fn counter_add(&self, queue: ObjectId, total: i64, todo: i64) {
        for (field, change) in [("count_total", total), ("count_todo", todo)] {
            if change == 0 {
                continue;
            }
            let filter = doc! { "_id": queue, field: { "$type": "number" } };
            let update = doc! { "$inc": { field: change } };
            if let Err(error) = self.ask(self.queues_collection().update_one(filter, update)).await
            {
                tracing::warn!(%queue, field, "cannot change the counter: {error}");
            }
        }
    }

    /// Sets counters that are missing, null or not numbers, because no program can increment those.
    /// True if there were any.
    pub(crate) async fn counters_fill(
        &self,
        queue: &Queue,
        real: Counters,
    ) -> Result<bool, DbError> {
        let mut changed = false;
        let fields = [
            ("count_total", queue.count_total, real.total),
            ("count_todo", queue.count_todo, real.todo),
        ];
        for (field, stored, value) in fields {
            if stored.is_some() {
                continue;
            }
            // Another program may have set it in the meantime.
            let counts = ["int", "long"]
                .map(|kind| doc! { field: { "$type": kind, "$not": { "$type": "array" } } });
            let filter = doc! { "_id": queue.id, "$nor": counts.to_vec() };
            let update = doc! { "$set": { field: value } };
            let result = self.ask(self.queues_collection().update_one(filter, update)).await?;
            changed |= result.matched_count == 1;
        }
        Ok(changed)
    }

    /// Corrects both counters, unless they changed since they were read.
    pub(crate) async fn counters_correct(
        &self,
        queue: ObjectId,
        stored: Counters,
        real: Counters,
    ) -> Result<bool, DbError> {
        let as_document = |counters: Counters| -> Document {
            doc! { "count_todo": counters.todo, "count_total": counters.total }
        };
        let mut filter = as_document(stored);
        filter.insert("_id", queue);
        let update = doc! { "$set": as_document(real) };
        let result = self.ask(self.queues_collection().update_one(filter, update)).await?;
        Ok(result.matched_count == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_lasts_is_put_right() {
        let queue = ObjectId::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let counters = |todo, total| Counters { todo, total };
        let mut watch = CounterWatch::default();
        assert!(!watch.observe(queue, counters(1, 1), counters(1, 1), at(0)));
        assert!(!watch.observe(queue, counters(1, 1), counters(0, 1), at(60)));
        assert!(!watch.observe(queue, counters(1, 1), counters(0, 1), at(69)));
        assert!(watch.observe(queue, counters(1, 1), counters(0, 1), at(70)));
        // Either side changed, so the time starts again.
        assert!(!watch.observe(queue, counters(2, 1), counters(0, 1), at(71)));
        assert!(!watch.observe(queue, counters(2, 1), counters(0, 2), at(82)));
        assert!(watch.observe(queue, counters(2, 1), counters(0, 2), at(92)));
        watch.keep(&[]);
        assert!(!watch.observe(queue, counters(2, 1), counters(0, 2), at(93)));
    }
}
