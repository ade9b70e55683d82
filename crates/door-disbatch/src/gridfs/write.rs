//! Writes output inline or to files, as `output` decides.

use md5::{Digest, Md5};
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
    let numbered = form.chunks(text).zip(0i32..);
    let mut parts = numbered.map(|(data, n)| doc! { "files_id": id, "n": n, "data": data });
    loop {
        let batch: Vec<Document> = parts.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        database.ask(chunks(database).insert_many(batch)).await?;
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
    database.ask(files(database).insert_one(file)).await?;
    Ok(id)
}

/// A hexadecimal digest, as in GridFS.
pub(super) fn hex(md5: Md5) -> String {
    md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
