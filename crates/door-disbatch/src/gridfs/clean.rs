//! Removing files: those of given tasks, and those that nothing points to.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};

use super::{NAMES, chunks, files};
use crate::database::{Database, DbError, stored};
use crate::doc::whole;
use crate::status;

/// Younger ones may belong to somebody who is still writing.
const AGE_MIN: Duration = Duration::from_secs(24 * 3600);

/// Looked at in one step, so that it takes no noticeable time of a busy server.
const STEP: i64 = 200;

/// Tasks whose files are removed by one request.
const REMOVE_BATCH: usize = 500;

/// Removes the files of tasks, the files first: what a crash leaves is chunks without a file.
///
/// # Errors
///
/// When the database is away or refuses; doing it again does the rest.
pub async fn remove(database: &Database, tasks: &[ObjectId]) -> Result<u64, DbError> {
    let mut removed = 0;
    for batch in tasks.chunks(REMOVE_BATCH) {
        let of_tasks = doc! {
            "filename": { "$in": &NAMES[..] },
            "metadata.task_id": { "$in": batch },
        };
        let ids = find(database, &files(database), of_tasks, doc! { "_id": 1 }, None).await?;
        let ids: Vec<ObjectId> =
            ids.iter().filter_map(|file| file.get_object_id("_id").ok()).collect();
        removed += delete(database, &ids).await?;
    }
    Ok(removed)
}

/// Removes these files of a task, and no others: it may have new ones already.
///
/// # Errors
///
/// When the database is away or refuses; doing it again does the rest.
pub async fn remove_old(
    database: &Database,
    task: ObjectId,
    old: &[ObjectId],
) -> Result<u64, DbError> {
    let of_task = doc! { "_id": { "$in": old }, "metadata.task_id": task };
    let ids = find(database, &files(database), of_task, doc! { "_id": 1 }, None).await?;
    let ids: Vec<ObjectId> = ids.iter().filter_map(|file| file.get_object_id("_id").ok()).collect();
    delete(database, &ids).await
}

/// Looks through the bucket step by step, round and round.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// The last file and the last chunks that were looked at.
    file: Option<ObjectId>,
    chunk: Option<ObjectId>,
}

impl Cleaner {
    /// One step: removes old files whose task is gone or points elsewhere, and old chunks without
    /// a file. Files that are nobody's output are left alone. Answers how many went.
    ///
    /// # Errors
    ///
    /// When the database is away or refuses; the next step goes on.
    pub async fn step(&mut self, database: &Database, now: DateTime) -> Result<u64, DbError> {
        let before = DateTime::from_millis(now.timestamp_millis() - AGE_MIN.as_millis() as i64);
        Ok(self.files(database, before).await? + self.chunks(database, before).await?)
    }

    async fn files(&mut self, database: &Database, before: DateTime) -> Result<u64, DbError> {
        let mut filter = doc! {
            "filename": { "$in": &NAMES[..] },
            "uploadDate": { "$lt": before },
            "metadata.task_id": { "$type": "objectId" },
        };
        filter.insert("_id", behind(self.file));
        let fields = doc! { "metadata.task_id": 1 };
        let found = find(database, &files(database), filter, fields, Some("_id")).await?;
        let found: Vec<(ObjectId, ObjectId)> = found.iter().filter_map(owner).collect();
        let tasks: Vec<ObjectId> = found.iter().map(|(_, task)| *task).collect();
        let wanted = doc! { "_id": { "$in": &tasks } };
        let fields = doc! { "status": 1, "stdout": 1, "stderr": 1 };
        let tasks = database.raw().collection("tasks");
        let tasks = find(database, &tasks, wanted, fields, None).await?;
        let tasks: HashMap<ObjectId, Document> = tasks
            .into_iter()
            .filter_map(|task| Some((task.get_object_id("_id").ok()?, task)))
            .collect();
        let free = found.iter().filter(|(id, task)| !is_used(*id, tasks.get(task)));
        let free: Vec<ObjectId> = free.map(|(id, _)| *id).collect();
        let removed = delete(database, &free).await?;
        self.file = found.last().map(|(id, _)| *id);
        Ok(removed)
    }

    /// A file's first chunk is written first, so that those tell of every file.
    async fn chunks(&mut self, database: &Database, before: DateTime) -> Result<u64, DbError> {
        let filter = doc! { "files_id": behind(self.chunk), "n": 0 };
        let fields = doc! { "files_id": 1, "_id": 0 };
        let found = find(database, &chunks(database), filter, fields, Some("files_id")).await?;
        let found: Vec<ObjectId> =
            found.iter().filter_map(|chunk| chunk.get_object_id("files_id").ok()).collect();
        let old: Vec<ObjectId> =
            found.iter().copied().filter(|id| id.timestamp() < before).collect();
        let wanted = doc! { "_id": { "$in": &old } };
        let known = find(database, &files(database), wanted, doc! { "_id": 1 }, None).await?;
        let known: HashSet<ObjectId> =
            known.iter().filter_map(|file| file.get_object_id("_id").ok()).collect();
        let free: Vec<ObjectId> = old.into_iter().filter(|id| !known.contains(id)).collect();
        if !free.is_empty() {
            delete_chunks(database, &free).await?;
        }
        self.chunk = found.last().copied();
        Ok(free.len() as u64)
    }
}

fn behind(last: Option<ObjectId>) -> Document {
    match last {
        Some(last) => doc! { "$gt": last },
        None => doc! { "$type": "objectId" },
    }
}

fn owner(file: &Document) -> Option<(ObjectId, ObjectId)> {
    let task = file.get_document("metadata").ok()?.get_object_id("task_id").ok()?;
    Some((file.get_object_id("_id").ok()?, task))
}

/// A task that is being worked on may be about to point to it.
fn is_used(file: ObjectId, task: Option<&Document>) -> bool {
    let Some(task) = task else { return false };
    let file = Bson::ObjectId(file);
    let is_active = |task: &Document| {
        let status = task.get("status").and_then(whole);
        status::ACTIVE.into_iter().any(|active| status == Some(active.into()))
    };
    is_active(task) || NAMES.iter().any(|name| task.get(name) == Some(&file))
}

async fn find(
    database: &Database,
    collection: &Collection<Document>,
    filter: Document,
    fields: Document,
    step_by: Option<&str>,
) -> Result<Vec<Document>, DbError> {
    let collection = collection.clone_with_type::<RawDocumentBuf>();
    let mut query = collection.find(filter).projection(fields);
    if let Some(field) = step_by {
        query = query.sort(doc! { field: 1 }).limit(STEP);
    }
    let found = async { query.await?.try_collect().await };
    let found: Vec<RawDocumentBuf> = database.ask(found).await?;
    found.iter().map(|document| stored(document)).collect()
}

async fn delete(database: &Database, ids: &[ObjectId]) -> Result<u64, DbError> {
    if ids.is_empty() {
        return Ok(0);
    }
    let which = doc! { "_id": { "$in": ids } };
    let gone = database.ask(files(database).delete_many(which)).await?;
    delete_chunks(database, ids).await?;
    Ok(gone.deleted_count)
}

async fn delete_chunks(database: &Database, ids: &[ObjectId]) -> Result<(), DbError> {
    let which = doc! { "files_id": { "$in": ids } };
    database.ask(chunks(database).delete_many(which)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_used_while_its_task_points_to_it_or_may_soon() {
        let (file, other) = (ObjectId::new(), ObjectId::new());
        assert!(!is_used(file, None));
        let used = |task: Document| is_used(file, Some(&task));
        assert!(used(doc! { "status": 1, "stdout": file, "stderr": "" }));
        assert!(used(doc! { "status": 1, "stdout": null, "stderr": file }));
        assert!(!used(doc! { "status": 1, "stdout": other, "stderr": "" }));
        for running in [Bson::Int32(0), Bson::Int64(-1), Bson::Double(0.0)] {
            assert!(used(doc! { "status": running, "stdout": null }));
        }
        assert!(!used(doc! { "status": -2, "stdout": null }));
    }
}
