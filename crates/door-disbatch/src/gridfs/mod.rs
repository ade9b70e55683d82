//! Task output outside of documents: GridFS in the bucket `tasks`, in Disbatch's own form with
//! strings and in the standard one with bytes. Both are read everywhere.
//!
//! The chunks of a file are written before its document in `tasks.files`, and the task refers to it
//! last: readers never see incomplete files, and leftovers of a crash are found and removed.

mod clean;
mod cut;
mod output;
mod read;
mod write;

pub(crate) use clean::{Cleaner, remove, remove_old};
#[cfg(test)]
pub(crate) use cut::CHUNK_SIZE;
pub(crate) use cut::ChunkForm;
pub(crate) use output::fits;
pub(crate) use read::{LoadError, Reader, verify};
pub(crate) use write::{Output, store};

use mongodb::Collection;
use mongodb::bson::Document;

use crate::database::Database;

/// The names of a task's output files.
const NAMES: [&str; 2] = ["stdout", "stderr"];

fn files(database: &Database) -> Collection<Document> {
    database.raw().collection("tasks.files")
}

fn chunks(database: &Database) -> Collection<Document> {
    database.raw().collection("tasks.chunks")
}
