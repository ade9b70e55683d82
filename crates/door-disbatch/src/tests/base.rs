//! A private database for each test.

use std::borrow::Borrow;
use std::path::Path;
use std::pin::Pin;

use crate::config::Config;
use crate::database::{Database, User};
use futures_util::TryStreamExt as _;
use mongodb::bson::Document;
use mongodb::error::Result;
use mongodb::options::UpdateModifications;
use mongodb::results::{
    CreateIndexResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
};
use mongodb::{Collection, IndexModel};
use tokio::task::{JoinError, JoinHandle};
use windlass_test_kit::wait::in_time;
use windlass_test_servers::{mongodb, mongodb_answer};

/// A new, empty database in the server that all tests share.
pub(crate) async fn fresh() -> Database {
    let server = mongodb();
    connect(&server.url(), &server.new_database()).await
}

pub(crate) async fn connect(url: &str, name: &str) -> Database {
    let text = format!(r#"{{"mongohost": "{url}", "database": "{name}"}}"#);
    let (config, _) = Config::parse(&text, Path::new("config.json")).unwrap();
    Database::connect(&config, User::Den).await.unwrap()
}

pub(crate) fn collection(database: &Database, name: &str) -> Documents {
    let port = database.hosts().first().map_or(0, |(_, port)| *port);
    Documents { port, documents: database.raw().collection(name) }
}

/// A driver's collection with time limits: the driver itself would wait forever for a server that
/// keeps its connection but does not answer.
pub(crate) struct Documents {
    port: u16,
    documents: Collection<Document>,
}

impl Documents {
    pub(crate) async fn insert_one(&self, one: impl Borrow<Document>) -> Result<InsertOneResult> {
        self.answer(self.documents.insert_one(one)).await
    }

    pub(crate) async fn insert_many(
        &self,
        many: impl IntoIterator<Item = impl Borrow<Document>>,
    ) -> Result<InsertManyResult> {
        self.answer(self.documents.insert_many(many)).await
    }

    pub(crate) async fn update_one(
        &self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<UpdateResult> {
        self.answer(self.documents.update_one(filter, update)).await
    }

    pub(crate) async fn delete_one(&self, filter: Document) -> Result<DeleteResult> {
        self.answer(self.documents.delete_one(filter)).await
    }

    pub(crate) async fn find_one(&self, filter: Document) -> Result<Option<Document>> {
        self.answer(self.documents.find_one(filter)).await
    }

    pub(crate) async fn all(&self, filter: Document, sort: Document) -> Result<Vec<Document>> {
        let all = async { self.documents.find(filter).sort(sort).await?.try_collect().await };
        self.answer(all).await
    }

    pub(crate) async fn count_documents(&self, filter: Document) -> Result<u64> {
        self.answer(self.documents.count_documents(filter)).await
    }

    pub(crate) async fn create_index(&self, index: IndexModel) -> Result<CreateIndexResult> {
        self.answer(self.documents.create_index(index)).await
    }

    async fn answer<T>(&self, asked: impl IntoFuture<Output = Result<T>>) -> Result<T> {
        mongodb_answer(self.port, asked.into_future()).await
    }
}

/// A background task of a test. Waiting for its end is bounded.
pub(crate) struct Background<T>(JoinHandle<T>);

impl<T: Send + 'static> Background<T> {
    pub(crate) fn spawn(going: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(going))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T: Send + 'static> IntoFuture for Background<T> {
    type Output = std::result::Result<T, JoinError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(in_time("what goes on beside the test ends", self.0))
    }
}
