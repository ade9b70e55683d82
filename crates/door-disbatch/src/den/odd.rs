//! Tasks that no node will ever take because of the types of their fields: of each of them the
//! operator is told once.

use std::time::Duration;

use tokio::time::Instant;

use super::said::Said;
use crate::database::{Database, DbError};
use crate::doc::Queue;

/// Between two looks for them.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct OddTasks {
    looked_at: Option<Instant>,
}

impl OddTasks {
    pub(super) async fn step(
        &mut self,
        database: &Database,
        queues: &[Queue],
        said: &mut Said,
    ) -> Result<(), DbError> {
        if self.looked_at.is_some_and(|looked_at| looked_at.elapsed() < LOOK_PAUSE) {
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        let ids: Vec<_> = queues.iter().map(|queue| queue.id).collect();
        for (id, odd) in database.tasks_odd(&ids).await? {
            let text = odd.to_string();
            if said.is_news(&format!("task {id}"), &text) {
                tracing::warn!(task = id, "a task is passed over: {text}");
            }
        }
        Ok(())
    }
}
