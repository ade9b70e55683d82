//! Tasks that no node will ever take because of the types of their fields: of each of them the
//! operator is told once.

use std::time::Duration;

use tokio::time::Instant;

use super::said::Said;
use crate::database::{Database, DbError};
use crate::doc::Queue;

/// Between two looks for them.
const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// Looking takes at most this part of the time, however many tasks there are.
const SHARE: u32 = 50;

#[derive(Debug, Default)]
pub(super) struct OddTasks {
    next: Option<Instant>,
}

impl OddTasks {
    pub(super) async fn step(
        &mut self,
        database: &Database,
        queues: &[Queue],
        said: &mut Said,
    ) -> Result<(), DbError> {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(());
        }
        let ids: Vec<_> = queues.iter().map(|queue| queue.id).collect();
        let found = database.tasks_odd(&ids).await;
        self.next = Some(Instant::now() + LOOK_PAUSE.max(begin.elapsed() * SHARE));
        for (id, odd) in found? {
            let text = odd.to_string();
            if said.is_news(&format!("task {id}"), &text) {
                tracing::warn!(task = id, "a task is passed over: {text}");
            }
        }
        Ok(())
    }
}
