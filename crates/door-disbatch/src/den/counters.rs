//! Maintains the seed's counters: sets missing ones and corrects lasting errors.

use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;

use crate::database::{CounterWatch, Counters, Database, DbError};
use crate::doc::Queue;

/// Shortest pause between two full counts.
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// Counting takes at most one part in this many of the time, however many tasks there are.
const SHARE: u32 = 50;

#[derive(Debug, Default)]
pub(super) struct CounterUpkeep {
    watch: CounterWatch,
    next: Option<Instant>,
    /// When to look for missing counters next.
    fill: Option<Instant>,
}

impl CounterUpkeep {
    pub(super) async fn step(
        &mut self,
        database: &Database,
        queues: &[Queue],
    ) -> Result<(), DbError> {
        let missing = |queue: &&Queue| queue.count_todo.is_none() || queue.count_total.is_none();
        let empty: Vec<&Queue> = queues.iter().filter(missing).collect();
        let begin = Instant::now();
        if !empty.is_empty() && self.fill.is_none_or(|next| begin >= next) {
            let ids: Vec<ObjectId> = empty.iter().map(|queue| queue.id).collect();
            let counted = database.queue_counts(&ids).await;
            self.fill = Some(Instant::now() + begin.elapsed() * SHARE);
            let counts = counted?;
            for queue in empty {
                let real = real(counts.get(&queue.id).copied().unwrap_or_default());
                if database.counters_fill(queue, real).await? {
                    tracing::info!(queue = queue.name, "missing counters were set");
                }
            }
        }
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(());
        }
        let ids: Vec<ObjectId> = queues.iter().map(|queue| queue.id).collect();
        let counted = database.queue_counts(&ids).await;
        self.next = Some(Instant::now() + PAUSE_MIN.max(begin.elapsed() * SHARE));
        let counts = counted?;
        self.watch.keep(&ids);
        for queue in queues {
            let (Some(todo), Some(total)) = (queue.count_todo, queue.count_total) else { continue };
            let stored = Counters { todo, total };
            let real = real(counts.get(&queue.id).copied().unwrap_or_default());
            if self.watch.observe(queue.id, stored, real, begin)
                && database.counters_correct(queue.id, stored, real).await?
            {
                let (queue, count_todo, count_total) = (&queue.name, real.todo, real.total);
                tracing::info!(queue, count_todo, count_total, "wrong counters were corrected");
            }
        }
        Ok(())
    }
}

fn real(counts: crate::database::Counts) -> Counters {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    Counters { todo: number(counts.todo()), total: number(counts.total) }
}
