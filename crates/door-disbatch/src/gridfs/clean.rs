//! Removes files: those of given tasks, and unreferenced ones.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};

use super::{NAMES, chunks, files};
use crate::database::{Database, DbError, stored};
use crate::status;

/// Younger files may still be in use by a writer.
const AGE_MIN: Duration = Duration::from_secs(24 * 3600);

/// Files per step; small, so as not to burden a busy server.
const STEP: i64 = 200;

/// Tasks per delete request.
const REMOVE_BATCH: usize = 500;

/// Removes the files of tasks. File documents go first, so that a crash leaves only chunks without
/// a file.
///
/// # Errors
///
/// If the database is unavailable or refuses. Repeating it completes the rest.
pub(crate) async fn remove(database: &Database, tasks: &[ObjectId]) -> Result<u64, DbError> {
    let mut removed = 0;
    for batch in tasks.chunks(REMOVE_BATCH) {
        let of_tasks = doc! {
            "filename": { "$in": &NAMES[..] },
            "metadata.task_id": { "$in": batch },
        };
        let ids = find(database, &files(database), of_tasks, doc! { "_id": 1 }, None).await?;
        let ids: Vec<ObjectId> = object_ids(&ids, "_id").collect();
        removed += delete(database, &ids).await?;
    }
    Ok(removed)
}

/// Removes only these files of a task: it may already have new ones.
///
/// # Errors
///
/// If the database is unavailable or refuses. Repeating it completes the rest.
pub(crate) async fn remove_old(
    database: &Database,
    task: ObjectId,
    old: &[ObjectId],
) -> Result<u64, DbError> {
    let of_task = doc! { "_id": { "$in": old }, "metadata.task_id": task };
    let ids = find(database, &files(database), of_task, doc! { "_id": 1 }, None).await?;
    let ids: Vec<ObjectId> = object_ids(&ids, "_id").collect();
    delete(database, &ids).await
}

/// Scans the bucket step by step, over and over.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// The last file and chunk that were checked.
    file: Option<ObjectId>,
    chunk: Option<ObjectId>,
}

impl Cleaner {
    /// One step: removes old files whose task is gone or refers to another file, and old chunks
    /// without a file. Files that are not task output stay. Returns how many were removed.
    ///
    /// # Errors
    ///
    /// If the database is unavailable or refuses. The next step continues.
    pub(crate) async fn step(
        &mut self,
        database: &Database,
        now: DateTime,
    ) -> Result<u64, DbError> {
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
        let used = used(database, &found).await?;
        let free = found.iter().map(|(id, _)| *id).filter(|id| !used.contains(id));
        let free: Vec<ObjectId> = free.collect();
        let removed = delete(database, &free).await?;
        self.file = found.last().map(|(id, _)| *id);
        Ok(removed)
    }

    /// The first chunk of a file is written first, so first chunks reveal every file.
    async fn chunks(&mut self, database: &Database, before: DateTime) -> Result<u64, DbError> {
        let filter = doc! { "files_id": behind(self.chunk), "n": 0 };
        let fields = doc! { "files_id": 1, "_id": 0 };
        let found = find(database, &chunks(database), filter, fields, Some("files_id")).await?;
        let found: Vec<ObjectId> = object_ids(&found, "files_id").collect();
        let old: Vec<ObjectId> =
            found.iter().copied().filter(|id| id.timestamp() < before).collect();
        let wanted = doc! { "_id": { "$in": &old } };
        let known = find(database, &files(database), wanted, doc! { "_id": 1 }, None).await?;
        let known: HashSet<ObjectId> = object_ids(&known, "_id").collect();
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

/// The files that their tasks refer to. A task in progress may be about to do so. Inline output may
/// be large and is not read.
async fn used(
    database: &Database,
    found: &[(ObjectId, ObjectId)],
) -> Result<HashSet<ObjectId>, DbError> {
    let collection = database.raw().collection("tasks");
    let (ids, tasks): (Vec<ObjectId>, Vec<ObjectId>) = found.iter().copied().unzip();
    let of_them = doc! { "_id": { "$in": &tasks } };
    let mut active = of_them.clone();
    active.insert("status", doc! { "$in": status::ACTIVE.to_vec() });
    let active = find(database, &collection, active, doc! { "_id": 1 }, None).await?;
    let active: HashSet<ObjectId> = object_ids(&active, "_id").collect();
    let of_active = found.iter().filter(|(_, task)| active.contains(task)).map(|(id, _)| *id);
    let mut used: HashSet<ObjectId> = of_active.collect();
    for name in NAMES {
        let mut points = of_them.clone();
        points.insert(name, doc! { "$in": &ids });
        let pointing = find(database, &collection, points, doc! { name: 1 }, None).await?;
        let points: HashSet<(ObjectId, ObjectId)> = pointing
            .iter()
            .filter_map(|task| {
                Some((task.get_object_id(name).ok()?, task.get_object_id("_id").ok()?))
            })
            .collect();
        used.extend(found.iter().filter(|pair| points.contains(pair)).map(|(id, _)| *id));
    }
    Ok(used)
}

fn object_ids<'a>(found: &'a [Document], field: &'a str) -> impl Iterator<Item = ObjectId> + 'a {
    found.iter().filter_map(move |document| document.get_object_id(field).ok())
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

/// The first chunk of each file goes last, because it is how the others are found after an
/// interruption.
async fn delete_chunks(database: &Database, ids: &[ObjectId]) -> Result<(), DbError> {
    let all = doc! { "files_id": { "$in": ids } };
    let mut behind = all.clone();
    behind.insert("n", doc! { "$gt": 0 });
    for which in [behind, all] {
        database.ask(chunks(database).delete_many(which)).await?;
    }
    Ok(())
}
