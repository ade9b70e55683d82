//! The counters of the seed's dialect in a queue: `count_todo` and `count_total`. Every program
//! updates them itself and some forget to, so they drift; lasting errors are corrected.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::{Database, DbError};
use crate::doc::Queue;

/// How long a difference has to last. Tasks and counters are changed one after the other, so for
/// a moment they differ rightly.
const DRIFT_TIME_MIN: Duration = Duration::from_secs(10);

/// The two counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    pub todo: i64,
    pub total: i64,
}

/// Remembers what was seen, and says what is to be put right.
#[derive(Debug, Default)]
pub(crate) struct CounterWatch {
    seen: HashMap<ObjectId, (Counters, Counters, Instant)>,
}

impl CounterWatch {
    /// Takes in one look at a queue. True: the same stored and the same true numbers were seen long
    /// enough, and they differ.
    pub(crate) fn look(
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

    /// Forgets the queues that are gone.
    pub(crate) fn keep(&mut self, queues: &[ObjectId]) {
        self.seen.retain(|queue, _| queues.contains(queue));
    }
}

impl Database {
    /// Adds to the counters that are set. They are a convenience, so an error is only told.
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

    /// Sets counters that are missing, null or not numbers: no program could add to them.
    /// True: some were not as they should be.
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
            // It may have been set since.
            let counts = ["int", "long"]
                .map(|kind| doc! { field: { "$type": kind, "$not": { "$type": "array" } } });
            let filter = doc! { "_id": queue.id, "$nor": counts.to_vec() };
            let update = doc! { "$set": { field: value } };
            let result = self.ask(self.queues_collection().update_one(filter, update)).await?;
            changed |= result.matched_count == 1;
        }
        Ok(changed)
    }

    /// Puts both counters right, unless they changed since they were seen.
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
        assert!(!watch.look(queue, counters(1, 1), counters(1, 1), at(0)));
        assert!(!watch.look(queue, counters(1, 1), counters(0, 1), at(60)));
        assert!(!watch.look(queue, counters(1, 1), counters(0, 1), at(69)));
        assert!(watch.look(queue, counters(1, 1), counters(0, 1), at(70)));
        // Either side changed: start the time again.
        assert!(!watch.look(queue, counters(2, 1), counters(0, 1), at(71)));
        assert!(!watch.look(queue, counters(2, 1), counters(0, 2), at(82)));
        assert!(watch.look(queue, counters(2, 1), counters(0, 2), at(92)));
        watch.keep(&[]);
        assert!(!watch.look(queue, counters(2, 1), counters(0, 2), at(93)));
    }
}
