//! Queues waiting tasks when their time has come and their dependencies have succeeded.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document};

use crate::database::{DUE_BATCH_MAX, Database, DbError};
use crate::doc::Task;
use crate::status::{CANCELLED, FAILED, ORPHANED, SUCCEEDED};

/// Scans the waiting tasks page by page, over and over.
#[derive(Debug, Default)]
pub(super) struct WaitingTaskScan {
    behind: Option<ObjectId>,
}

impl WaitingTaskScan {
    /// Processes one page.
    pub(super) async fn step(&mut self, database: &Database, now: DateTime) -> Result<(), DbError> {
        let page = database.tasks_due(self.behind, now).await?;
        let last = page.last().and_then(|task| task.get_object_id("_id").ok());
        self.behind = last.filter(|_| page.len() >= DUE_BATCH_MAX);
        // Invalid tasks are left alone.
        let read = |task: &Document| Some((Task::read(task).ok()?, task.get("stderr").cloned()));
        let tasks: Vec<(Task, Option<Bson>)> = page.iter().filter_map(read).collect();
        let mut wanted: Vec<ObjectId> =
            tasks.iter().flat_map(|(task, _)| task.after.clone()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let statuses = match wanted.is_empty() {
            true => HashMap::new(),
            false => database.task_statuses(&wanted).await?,
        };
        for (task, stderr) in &tasks {
            let done = match judge(&task.after, &statuses) {
                Dependencies::Met => database.task_release(task.id, now).await,
                Dependencies::Pending => continue,
                Dependencies::Failed(why)
                    if stderr.as_ref().and_then(Bson::as_str) == Some(&why) =>
                {
                    continue;
                }
                Dependencies::Failed(why) => database.task_keep_waiting(task.id, &why, now).await,
            };
            // A refused change must not delay the other tasks.
            if let Err(error @ DbError::Away(_)) = done {
                return Err(error);
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Dependencies {
    Met,
    Pending,
    Failed(String),
}

/// It keeps waiting while any of its dependencies may still succeed.
fn judge(after: &[ObjectId], statuses: &HashMap<ObjectId, Option<i64>>) -> Dependencies {
    let mut waits = false;
    for id in after {
        let what = match statuses.get(id) {
            None => "does not exist",
            Some(None) => "has no status that is a number",
            Some(Some(status)) if *status == i64::from(SUCCEEDED) => continue,
            Some(Some(status)) if *status >= i64::from(FAILED) => "failed",
            Some(Some(status)) if *status == i64::from(CANCELLED) => "was cancelled",
            Some(Some(status)) if *status == i64::from(ORPHANED) => "was orphaned",
            Some(Some(_)) => {
                waits = true;
                continue;
            }
        };
        return Dependencies::Failed(format!("it waits for the task {id}, which {what}"));
    }
    if waits { Dependencies::Pending } else { Dependencies::Met }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_others_must_have_succeeded() {
        let (a, b) = (ObjectId::new(), ObjectId::new());
        let with = |of_a, of_b| judge(&[a, b], &HashMap::from([(a, Some(of_a)), (b, Some(of_b))]));
        assert_eq!(judge(&[], &HashMap::new()), Dependencies::Met);
        assert_eq!(with(1, 1), Dependencies::Met);
        for status in [-4, -2, -1, 0] {
            assert_eq!(with(1, status), Dependencies::Pending, "{status}");
        }
        for (status, what) in
            [(2, "failed"), (77, "failed"), (-5, "was cancelled"), (-6, "was orphaned")]
        {
            let why = format!("it waits for the task {b}, which {what}");
            assert_eq!(with(0, status), Dependencies::Failed(why));
        }
        let mut statuses = HashMap::from([(a, Some(1))]);
        let gone = format!("it waits for the task {b}, which does not exist");
        assert_eq!(judge(&[a, b], &statuses), Dependencies::Failed(gone));
        statuses.insert(b, None);
        let odd = format!("it waits for the task {b}, which has no status that is a number");
        assert_eq!(judge(&[a, b], &statuses), Dependencies::Failed(odd));
    }
}
