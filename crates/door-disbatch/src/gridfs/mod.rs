//! Output of tasks outside of their documents: GridFS in the bucket `tasks`, in Disbatch's own form
//! with strings and in the standard one with bytes. Both are read everywhere.
//!
//! The chunks of a file are written before its document in `tasks.files`, and the task points to it
//! last: readers never see half a file, and what a crash leaves is found and removed.

mod clean;
mod cut;
mod output;
mod read;
mod write;

pub(crate) use clean::{Cleaner, remove, remove_old};
#[cfg(test)]
pub(crate) use cut::CHUNK_SIZE;
pub(crate) use cut::Form;
pub(crate) use output::fits;
pub(crate) use read::{LoadError, Reader, verify};
pub(crate) use write::{Output, store};

use mongodb::Collection;
use mongodb::bson::Document;

use crate::database::Database;

/// The names of the two files that a task may have.
const NAMES: [&str; 2] = ["stdout", "stderr"];

fn files(database: &Database) -> Collection<Document> {
    database.raw().collection("tasks.files")
}

fn chunks(database: &Database) -> Collection<Document> {
    database.raw().collection("tasks.chunks")
}
