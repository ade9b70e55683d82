//! The indexes that Disbatch needs, created if missing.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::IndexOptions;

use super::{Database, DbError};
use crate::dialect::Dialect;
use crate::doc::whole;

/// Time limit for building an index of a large collection; no other request takes that long.
const BUILD_TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// Server errors: a conflicting index, and missing rights.
const CONFLICT_OF_OPTIONS: i32 = 85;
const CONFLICT_OF_NAMES: i32 = 86;
const UNAUTHORIZED: i32 = 13;

/// Collections for which some versions of the original create no indexes, so that their users may
/// not either, and for which indexes are optional.
const OPTIONAL_COLLECTIONS: [&str; 2] = ["changelog", "config"];

struct Index {
    collection: &'static str,
    keys: Document,
    unique: bool,
    sparse: bool,
}

impl Index {
    fn plain(collection: &'static str, keys: Document) -> Self {
        Self { collection, keys, unique: false, sparse: false }
    }

    fn unique(collection: &'static str, keys: Document) -> Self {
        Self { unique: true, ..Self::plain(collection, keys) }
    }
}

/// The seed's dialect allows queues with the same name, so there the index is not unique.
fn wanted(dialect: Dialect) -> Vec<Index> {
    let mut indexes = vec![
        Index::plain("tasks", doc! { "node": 1, "status": 1, "queue": 1 }),
        Index::plain("tasks", doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 }),
        Index::plain("tasks", doc! { "node": 1, "status": 1, "queue": 1, "_id": -1 }),
        Index::plain("tasks", doc! { "queue": 1, "status": 1 }),
        Index::unique("nodes", doc! { "node": 1 }),
        Index::plain("changelog", doc! { "collection": 1 }),
        Index::unique("tasks.chunks", doc! { "files_id": 1, "n": 1 }),
        Index::plain("tasks.files", doc! { "filename": 1, "metadata.task_id": 1 }),
        Index::plain("tasks.files", doc! { "filename": 1, "uploadDate": 1 }),
    ];
    match dialect {
        Dialect::Released => indexes.push(Index::unique("queues", doc! { "name": 1 })),
        Dialect::Seed => {
            let active = Index::unique("config", doc! { "active": 1 });
            indexes.push(Index { sparse: true, ..active });
            indexes.push(Index::unique("config", doc! { "label": 1 }));
        }
    }
    indexes
}

impl Database {
    /// Creates missing indexes. An index with the same keys counts regardless of its name, but it
    /// must be unique if ours is.
    pub(crate) async fn ensure_indexes(&self) -> Result<(), DbError> {
        for index in wanted(self.dialect()) {
            self.ensure_index(&index).await.map_err(|error| describe(&index, error))?;
        }
        Ok(())
    }

    /// Creates it without listing first: the original's users may create but not list indexes, and
    /// creating an existing one is harmless.
    async fn ensure_index(&self, index: &Index) -> Result<(), DbError> {
        let Err(error) = self.create_index(index).await? else { return Ok(()) };
        match code(&error) {
            Some(CONFLICT_OF_OPTIONS | CONFLICT_OF_NAMES) => {
                self.accept_existing(index, error).await
            }
            Some(UNAUTHORIZED) if OPTIONAL_COLLECTIONS.contains(&index.collection) => {
                let Index { collection, keys, .. } = index;
                tracing::info!(
                    "this user is not allowed to create the index {keys} of {collection}"
                );
                Ok(())
            }
            _ => Err(error.into()),
        }
    }

    /// Accepts the conflicting index if it is equivalent.
    async fn accept_existing(&self, index: &Index, conflict: Error) -> Result<(), DbError> {
        let existing = match self.indexes(index.collection).await {
            Ok(existing) => existing,
            // Without the right to list indexes, the server's error stands.
            Err(DbError::Refused(_)) => return Err(conflict.into()),
            Err(error) => return Err(error),
        };
        match existing.iter().find(|existing| same_keys(&existing.keys, &index.keys)) {
            Some(existing) if index.unique && !is_unique(existing) => {
                Err(DbError::Refused("it exists, but is not unique".to_owned()))
            }
            Some(_) => Ok(()),
            None => Err(conflict.into()),
        }
    }

    /// The inner error comes from the server.
    async fn create_index(&self, index: &Index) -> Result<Result<(), Error>, DbError> {
        let options = IndexOptions::builder()
            .unique(index.unique.then_some(true))
            .sparse(index.sparse.then_some(true))
            .build();
        let model = IndexModel::builder().keys(index.keys.clone()).options(options).build();
        tracing::debug!("creating index {} of {} if missing", index.keys, index.collection);
        let collection = self.collection(index.collection);
        let building = collection.create_index(model).into_future();
        match tokio::time::timeout(BUILD_TIME_MAX, building).await {
            Ok(built) => Ok(built.map(drop)),
            Err(_) => Err(DbError::Away(format!(
                "index {} of {} was not created within {} seconds",
                index.keys,
                index.collection,
                BUILD_TIME_MAX.as_secs()
            ))),
        }
    }

    /// The indexes of a collection; none if it does not exist.
    pub(crate) async fn indexes(&self, collection: &str) -> Result<Vec<IndexModel>, DbError> {
        let collection = self.collection(collection);
        let named = doc! { "name": collection.name() };
        let all = async {
            let found = self.database.list_collections().filter(named).await?.try_next().await?;
            match found {
                Some(_) => collection.list_indexes().await?.try_collect().await,
                None => Ok(Vec::new()),
            }
        };
        self.ask(all).await
    }
}

fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        _ => None,
    }
}

fn describe(index: &Index, error: DbError) -> DbError {
    let why = |text: String| format!("index {} of {}: {text}", index.keys, index.collection);
    match error {
        DbError::Away(text) => DbError::Away(text),
        DbError::Refused(text) => DbError::Refused(why(text)),
        DbError::Duplicate(text) => DbError::Duplicate(why(text)),
    }
}

fn is_unique(index: &IndexModel) -> bool {
    index.options.as_ref().and_then(|options| options.unique) == Some(true)
}

/// Servers return directions as any numeric type.
fn same_keys(one: &Document, other: &Document) -> bool {
    let pairs = |keys: &Document| -> Vec<(String, Option<i64>)> {
        keys.iter().map(|(key, value): (&String, &Bson)| (key.clone(), whole(value))).collect()
    };
    pairs(one) == pairs(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_in_the_same_order_only() {
        assert!(same_keys(&doc! { "a": 1, "b": -1.0 }, &doc! { "a": 1_i64, "b": -1 }));
        assert!(!same_keys(&doc! { "a": 1, "b": 1 }, &doc! { "b": 1, "a": 1 }));
        assert!(!same_keys(&doc! { "a": 1 }, &doc! { "a": -1 }));
        assert!(!same_keys(&doc! { "a": 1 }, &doc! { "a": 1, "b": 1 }));
    }
}
