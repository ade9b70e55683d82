//! Writing output: inline or to files, by the rule.

use md5::{Digest, Md5};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::cut::{CHUNK_SIZE, Form};
use super::output::{Place, place};
use super::{chunks, files};
use crate::config::Gfs;
use crate::database::{Database, DbError};

/// In one message to the server: at most 4 MiB, also when every character has four bytes.
const BATCH: usize = 4;

/// What a task said, and for how large a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    pub task: ObjectId,
    /// The bytes of the task's document without output.
    pub held: usize,
    pub stdout: &'a str,
    pub stderr: &'a str,
}

/// Puts what does not stand in the task's document into files. Answers the values of the fields
/// `stdout` and `stderr`, which the caller writes together with the status.
///
/// # Errors
///
/// When the database does not take them. Nothing points to what was written until then.
pub(crate) async fn store(
    database: &Database,
    form: Form,
    gfs: Gfs,
    output: Output<'_>,
    now: DateTime,
) -> Result<(Bson, Bson), DbError> {
    let (stdout, stderr) = place(gfs, output.held, output.stdout, output.stderr);
    let file = async |name: &str, place: Place<'_>| match place {
        Place::Inline(text) => Ok(Bson::String(text.into_owned())),
        Place::File(text) => {
            write(database, form, output.task, name, text, now).await.map(Bson::ObjectId)
        }
    };
    Ok((file("stdout", stdout).await?, file("stderr", stderr).await?))
}

async fn write(
    database: &Database,
    form: Form,
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

/// A digest in hexadecimal digits, as GridFS has it.
pub(super) fn hex(md5: Md5) -> String {
    md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
