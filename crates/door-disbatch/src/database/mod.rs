//! The database: every change that we make to Disbatch's collections, each safe with foreign
//! programs that change them at the same time.
//!
//! Nothing here reads a clock: `now` is the database's own time, as [`Clock`] knows it. Nothing
//! waits without a bound either. A task that one of our nodes has is only ever changed under a
//! filter with the node, its boot and the claim, so a node that has lost a task cannot change it.

mod balance;
mod cancel;
mod changelog;
mod claim;
mod clock;
mod connect;
mod counter;
mod create;
mod due;
mod error;
mod finish;
mod hold;
mod index;
mod invalid;
mod node;
mod orphan;
mod queue;
mod task;

pub(crate) use crate::config::User;
pub(crate) use cancel::{Cancelled, Retried};
pub(crate) use claim::Claim;
pub(crate) use clock::Clock;
pub(crate) use counter::{CounterWatch, Counters};
pub(crate) use create::{NewTask, PartialInsert};
pub(crate) use due::DUE_BATCH_MAX;
pub(crate) use error::DbError;
pub(crate) use finish::{Ending, Finished};
#[cfg(test)]
pub(crate) use hold::last_position;
pub(crate) use node::{Entered, Process};
pub(crate) use orphan::Owner;
pub(crate) use queue::{Counts, NewQueue, QueueChange};
pub(crate) use task::{Run, token};

use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::action::{Aggregate, Find};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, Utf8Lossy, doc};

use crate::config::Config;
use crate::dialect::{CurrentDialect, DEFAULT_DIALECT, Dialect};
use crate::doc::at;

/// Time limit for one database request.
pub(crate) const OPERATION_TIME_MAX: Duration = Duration::from_secs(10);

/// Number of recent tasks that are checked to detect the dialect.
const DIALECT_TASKS_MAX: i64 = 1000;

/// One boot of one of our nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeBoot {
    pub node: String,
    /// Random, new at every start.
    pub boot: String,
}

/// A connection, cheap to clone.
#[derive(Clone)]
pub(crate) struct Database {
    database: mongodb::Database,
    hosts: Vec<(String, u16)>,
    /// Shared by all clones.
    dialect: Arc<CurrentDialect>,
    /// Too many queues are logged only once.
    too_many_queues: Arc<Once>,
}

impl Database {
    /// Prepares the connection; does not wait for the server.
    pub(crate) async fn connect(config: &Config, user: User) -> Result<Self, DbError> {
        let connection = &config.connection;
        let options = connect::options(connection, user).await?;
        let hosts = connect::hosts(&options);
        let client = mongodb::Client::with_options(options)?;
        let database = client.database(&connection.database);
        let dialect = Arc::new(CurrentDialect::new(config.dialect));
        Ok(Self { database, hosts, dialect, too_many_queues: Arc::new(Once::new()) })
    }

    /// The driver's handle, for requests that only one caller needs. Run each of them through
    /// [`Self::ask`].
    pub(crate) fn raw(&self) -> &mongodb::Database {
        &self.database
    }

    /// The servers of the configured address.
    pub(crate) fn hosts(&self) -> Vec<(String, u16)> {
        self.hosts.clone()
    }

    /// Runs a request with the usual time limit.
    pub(crate) async fn ask<T>(
        &self,
        question: impl IntoFuture<Output = mongodb::error::Result<T>>,
    ) -> Result<T, DbError> {
        self.ask_within(OPERATION_TIME_MAX, question).await
    }

    /// Runs a request with its own time limit.
    async fn ask_within<T>(
        &self,
        time_max: Duration,
        question: impl IntoFuture<Output = mongodb::error::Result<T>>,
    ) -> Result<T, DbError> {
        match tokio::time::timeout(time_max, question.into_future()).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(DbError::unanswered(time_max)),
        }
    }

    /// The server's description of itself.
    pub(crate) async fn hello(&self) -> Result<Document, DbError> {
        self.ask(self.database.run_command(doc! { "hello": 1 })).await
    }

    /// The database's time.
    pub(crate) async fn server_time(&self) -> Result<DateTime, DbError> {
        self.hello()
            .await?
            .get_datetime("localTime")
            .copied()
            .map_err(|_| DbError::Refused("the server does not say what time it is".to_owned()))
    }

    /// The current dialect, used for all writes: the configured one, or else the one detected last.
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect.get()
    }

    /// Detects the dialect from the documents, unless it is configured. False if there is nothing
    /// to detect it from, so that it may still change.
    pub(crate) async fn learn_dialect(&self) -> Result<bool, DbError> {
        if self.dialect.is_set {
            return Ok(true);
        }
        let shown = self.shown_dialect().await?;
        self.dialect.learn(shown.unwrap_or(DEFAULT_DIALECT));
        Ok(shown.is_some())
    }

    /// The same database for another user; both share the detected dialect.
    #[must_use]
    pub(crate) fn with_dialect_of(self, other: &Database) -> Database {
        Database { dialect: Arc::clone(&other.dialect), ..self }
    }

    /// The same database with a fixed dialect.
    #[cfg(test)]
    pub(crate) fn speaking(&self, dialect: Dialect) -> Database {
        Database { dialect: Arc::new(CurrentDialect::new(Some(dialect))), ..self.clone() }
    }

    async fn shown_dialect(&self) -> Result<Option<Dialect>, DbError> {
        let has = |field: &str| doc! { field: { "$exists": true } };
        let queue = doc! { "$or": [has("constructor"), has("count_todo")] };
        if self.some_queue(queue).await? || self.some_task(has("parameters")).await? {
            return Ok(Some(Dialect::Seed));
        }
        let queue = doc! { "$or": [has("plugin"), has("threads")] };
        if self.some_queue(queue).await? || self.some_task(has("params")).await? {
            return Ok(Some(Dialect::Released));
        }
        Ok(None)
    }

    async fn some_queue(&self, filter: Document) -> Result<bool, DbError> {
        let find = self.queues_collection();
        Ok(self.one(find.find_one(filter).projection(doc! { "_id": 1 })).await?.is_some())
    }

    /// Whether one of the newest tasks matches; no index could find it among all tasks.
    async fn some_task(&self, filter: Document) -> Result<bool, DbError> {
        let tasks = self.tasks_collection();
        let look = tasks.aggregate([
            doc! { "$sort": { "_id": -1 } },
            doc! { "$limit": DIALECT_TASKS_MAX },
            doc! { "$match": filter },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 1 } },
        ]);
        Ok(!self.aggregated(look).await?.is_empty())
    }

    /// A collection for reading, by [`Self::one`], [`Self::all`] and [`Self::aggregated`].
    pub(crate) fn collection(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.database.collection(name)
    }

    fn nodes_collection(&self) -> Collection<RawDocumentBuf> {
        self.collection("nodes")
    }

    fn queues_collection(&self) -> Collection<RawDocumentBuf> {
        self.collection("queues")
    }

    fn tasks_collection(&self) -> Collection<RawDocumentBuf> {
        self.collection("tasks")
    }

    /// The document that is found or changed, if any.
    pub(crate) async fn one(
        &self,
        question: impl IntoFuture<Output = mongodb::error::Result<Option<RawDocumentBuf>>>,
    ) -> Result<Option<Document>, DbError> {
        self.ask(question).await?.as_deref().map(stored).transpose()
    }

    /// All results, up to `max` documents.
    pub(crate) async fn all(
        &self,
        find: Find<'_, RawDocumentBuf>,
        max: usize,
    ) -> Result<Vec<Document>, DbError> {
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        let found = async { find.limit(limit).await?.try_collect().await };
        let found: Vec<RawDocumentBuf> = self.ask(found).await?;
        found.iter().map(|document| stored(document)).collect()
    }

    /// All results of a pipeline.
    pub(crate) async fn aggregated(
        &self,
        pipeline: Aggregate<'_>,
    ) -> Result<Vec<Document>, DbError> {
        self.aggregated_within(pipeline, OPERATION_TIME_MAX).await
    }

    async fn aggregated_within(
        &self,
        pipeline: Aggregate<'_>,
        time_max: Duration,
    ) -> Result<Vec<Document>, DbError> {
        let pipeline = pipeline.with_type::<RawDocumentBuf>();
        let groups = async { pipeline.await?.try_collect().await };
        let groups: Vec<RawDocumentBuf> = self.ask_within(time_max, groups).await?;
        groups.iter().map(|document| stored(document)).collect()
    }

    async fn insert(&self, collection: &str, document: &Document) -> Result<(), DbError> {
        let collection = self.database.collection::<Document>(collection);
        self.ask(collection.insert_one(document)).await?;
        Ok(())
    }
}

/// A document exactly as stored. The driver's own deserializer would take a field named `$oid` for
/// a value of another type and fail, and so would invalid UTF-8.
pub(crate) fn stored(document: &RawDocument) -> Result<Document, DbError> {
    let Utf8Lossy(read) = Utf8Lossy::<Document>::try_from(document)
        .map_err(|error| DbError::Refused(format!("a document cannot be read: {error}")))?;
    Ok(read)
}

/// A filter by name or id: 24 hexadecimal digits are an id.
fn by_name_or_id(field: &str, name_or_id: &str) -> Document {
    match ObjectId::parse_str(name_or_id) {
        Ok(id) => doc! { "_id": id },
        Err(_) => doc! { field: name_or_id },
    }
}

/// The value of `windlass.boot` in an entry that belongs to none of our nodes.
fn no_boot() -> Bson {
    Bson::from(doc! { "$not": { "$type": "string" } })
}

/// A filter for tasks of this node that are ours. A user who resets a task by hand leaves our
/// fields in it; they are void once another node has claimed it.
fn owned_by_us(node: &str) -> Document {
    doc! { "windlass.boot": { "$type": "string" }, "windlass.node": node }
}

/// The boot of ours that owns the task, if any.
pub(crate) fn owning_boot(task: &Document) -> Option<&str> {
    let text = |path| at(task, path).and_then(Bson::as_str);
    let node = text("node")?;
    text("windlass.boot").filter(|_| text("windlass.node") == Some(node))
}
