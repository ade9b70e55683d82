//! Writes output inline or to files, as `output` decides.

use md5::{Digest, Md5};
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::cut::{CHUNK_SIZE, ChunkForm};
use super::output::{Placement, decide};
use super::{chunks, files};
use crate::config::Gfs;
use crate::database::{Database, DbError};

/// Chunks per message to the server: at most 4 MiB, even with four bytes per character.
const BATCH: usize = 4;

/// The output of a task, and the size of its document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    pub task: ObjectId,
    /// Size of the task's document without output, in bytes.
    pub held: usize,
    pub stdout: &'a str,
    pub stderr: &'a str,
}

/// Stores output that does not fit into the document in files. Returns the values of `stdout` and
/// `stderr`, which the caller writes together with the status.
///
/// # Errors
///
/// If the database does not accept them. Nothing refers to the files written until then.
pub(crate) async fn store(
    database: &Database,
    form: ChunkForm,
    gfs: Gfs,
    output: Output<'_>,
    now: DateTime,
) -> Result<(Bson, Bson), DbError> {
    let (stdout, stderr) = decide(gfs, output.held, output.stdout, output.stderr);
    let file = async |name: &str, placement: Placement<'_>| match placement {
        Placement::Inline(text) => Ok(Bson::String(text.into_owned())),
        Placement::File(text) => {
            write(database, form, output.task, name, text, now).await.map(Bson::ObjectId)
        }
    };
    Ok((file("stdout", stdout).await?, file("stderr", stderr).await?))
}

async fn write(
    database: &Database,
    form: ChunkForm,
    task: ObjectId,
    name: &str,
    text: &str,
    now: DateTime,
) -> Result<ObjectId, DbError> {
    let id = ObjectId::new();
    let mut numbered = form.chunks(text).zip(0i32..);
    loop {
        let batch: Vec<(Bson, i32)> = numbered.by_ref().take(BATCH).collect();
        let Some((_, first)) = batch.first() else { break };
        let ours = doc! { "files_id": id, "n": { "$gte": first } };
        let chunk = |(data, n)| doc! { "files_id": id, "n": n, "data": data };
        let batch = batch.into_iter().map(chunk).collect();
        insert(database, chunks(database), batch, ours).await?;
    }
    let file = doc! {
        "_id": id,
        "filename": name,
        "chunkSize": CHUNK_SIZE as i32,
        "length": text.len() as i64,
        "md5": hex(Md5::new_with_prefix(text)),
        "uploadDate": now,
        "metadata": { "task_id": task },
    };
    insert(database, files(database), vec![file], doc! { "_id": id }).await?;
    Ok(id)
}

/// Inserts documents that nothing else inserts; `ours` finds them. The driver repeats an insert
/// whose answer it did not get, and a server that is still busy with the first may carry out both.
async fn insert(
    database: &Database,
    collection: Collection<Document>,
    documents: Vec<Document>,
    ours: Document,
) -> Result<(), DbError> {
    let count = documents.len() as u64;
    // Not in order, so that those behind a duplicate are inserted too.
    match database.ask(collection.insert_many(documents).ordered(false)).await {
        Err(duplicate @ DbError::Duplicate(_)) => {
            let found = database.ask(collection.count_documents(ours)).await?;
            if found == count { Ok(()) } else { Err(duplicate) }
        }
        inserted => inserted.map(drop),
    }
}

/// A hexadecimal digest, as in GridFS.
pub(super) fn hex(md5: Md5) -> String {
    md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
