//! Logs once each task that no node can ever take because of the types of its fields.

use std::time::Duration;

use tokio::time::Instant;

use super::log_once::LogOnce;
use crate::database::{Database, DbError};
use crate::doc::Queue;

/// Shortest pause between two searches.
const LOOK_PAUSE: Duration = Duration::from_secs(10);
/// Searching takes at most one part in this many of the time, however many tasks there are.
const SHARE: u32 = 50;

#[derive(Debug, Default)]
pub(super) struct InvalidTasks {
    next: Option<Instant>,
}

impl InvalidTasks {
    pub(super) async fn step(
        &mut self,
        database: &Database,
        queues: &[Queue],
        logged: &mut LogOnce,
    ) -> Result<(), DbError> {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(());
        }
        let ids: Vec<_> = queues.iter().map(|queue| queue.id).collect();
        let found = database.tasks_invalid(&ids).await;
        self.next = Some(Instant::now() + LOOK_PAUSE.max(begin.elapsed() * SHARE));
        for (id, invalid) in found? {
            let text = invalid.to_string();
            if logged.is_news(&format!("task {id}"), &text) {
                tracing::warn!(task = id, "skipping a task: {text}");
            }
        }
        Ok(())
    }
}
