//! A test's own database, filled and inspected through the wire protocol.

use std::sync::LazyLock;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::{ClientOptions, IndexOptions, WriteConcern};
use mongodb::{Client, Collection, IndexModel};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use windlass_test_kit::wait::in_time;
use windlass_test_servers::MongoDb;

/// The driver has only asynchronous calls; the tests wait for each of them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

static CLIENT: LazyLock<Client> = LazyLock::new(|| client(&mongohost()));

/// Some servers close idle connections after a while, and the driver does not repeat
/// every query when it notices.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

fn client(url: &str) -> Client {
    let mut options = block_on(ClientOptions::parse(url).into_future()).unwrap();
    options.max_idle_time = Some(IDLE_TIME_MAX);
    // Other writes may be lost when the server is killed, although they were acknowledged.
    options.write_concern = Some(WriteConcern::majority());
    let _driver = RUNTIME.enter();
    Client::with_options(options).unwrap()
}

/// `mongohost` of a config for the server that all tests share.
pub(crate) fn mongohost() -> String {
    windlass_test_servers::mongodb().url()
}

/// Waits for asynchronous calls of a test. The driver itself would wait for ever for a server that
/// keeps its connection and does not answer.
#[track_caller]
pub(crate) fn block_on<T>(asked: impl Future<Output = T>) -> T {
    RUNTIME.block_on(in_time("an answer", asked))
}

pub(crate) struct Mongo {
    name: String,
    client: Client,
    host: String,
    /// Whether other tests use the same server.
    is_shared: bool,
    own: Option<MongoDb>,
}

impl Mongo {
    pub(crate) fn new() -> Self {
        let name = windlass_test_servers::mongodb().new_database();
        Self { name, client: CLIENT.clone(), host: mongohost(), is_shared: true, own: None }
    }

    /// In its own server, to be killed and frozen.
    pub(crate) fn own() -> Self {
        let server = MongoDb::start();
        let client = client(&server.url());
        let (name, host) = (server.new_database(), server.url());
        Self { name, client, host, is_shared: false, own: Some(server) }
    }

    /// The same database, for another thread.
    pub(crate) fn handle(&self) -> Self {
        let (name, client, host) = (self.name.clone(), self.client.clone(), self.host.clone());
        Self { name, client, host, is_shared: self.is_shared, own: None }
    }

    /// Another database in the same server.
    pub(crate) fn beside(&self) -> Self {
        let name = windlass_test_servers::mongodb().new_database();
        Self { name, ..self.handle() }
    }

    /// `mongohost` of a config for its server.
    pub(crate) fn host(&self) -> String {
        self.host.clone()
    }

    #[track_caller]
    pub(crate) fn server(&self) -> &MongoDb {
        self.own.as_ref().expect("a server of its own")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a query of a test. If a shared server does not answer, the other tests learn of it
    /// at once.
    #[track_caller]
    fn ask<T>(&self, asked: impl Future<Output = T>) -> T {
        if self.is_shared {
            RUNTIME.block_on(windlass_test_servers::mongodb().answer(asked))
        } else {
            block_on(asked)
        }
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.client.database(&self.name).collection(name)
    }

    /// Inserts a document; returns its `_id`.
    pub(crate) fn insert(&self, collection: &str, document: Document) -> ObjectId {
        let done = self.ask(async { self.collection(collection).insert_one(document).await });
        done.unwrap().inserted_id.as_object_id().unwrap()
    }

    pub(crate) fn insert_many(&self, collection: &str, documents: Vec<Document>) {
        self.ask(async { self.collection(collection).insert_many(documents).await }).unwrap();
    }

    pub(crate) fn one(&self, collection: &str, filter: Document) -> Option<Document> {
        let collection = self.collection(collection).clone_with_type::<RawDocumentBuf>();
        let found = self.ask(async { collection.find_one(filter).await }).unwrap();
        found.map(whole)
    }

    #[track_caller]
    pub(crate) fn get(&self, collection: &str, id: ObjectId) -> Document {
        self.one(collection, doc! {"_id": id}).unwrap_or_else(|| panic!("no {id} in {collection}"))
    }

    /// All that match, ordered by id.
    pub(crate) fn all(&self, collection: &str, filter: Document) -> Vec<Document> {
        self.ask(async {
            let collection = self.collection(collection);
            let mut found = collection.find(filter).sort(doc! {"_id": 1}).await.unwrap();
            let mut documents = Vec::new();
            while found.advance().await.unwrap() {
                documents.push(whole(found.current().to_owned()));
            }
            documents
        })
    }

    pub(crate) fn count(&self, collection: &str, filter: Document) -> usize {
        self.all(collection, filter).len()
    }

    /// Sets fields of one document.
    pub(crate) fn set(&self, collection: &str, id: ObjectId, fields: Document) {
        self.update(collection, doc! {"_id": id}, doc! {"$set": fields});
    }

    pub(crate) fn update(&self, collection: &str, filter: Document, update: Document) {
        self.ask(async { self.collection(collection).update_one(filter, update).await }).unwrap();
    }

    pub(crate) fn update_many(&self, collection: &str, filter: Document, update: Document) -> u64 {
        let done =
            self.ask(async { self.collection(collection).update_many(filter, update).await });
        done.unwrap().matched_count
    }

    /// Changes the first match in this order; returns it as it was before.
    pub(crate) fn take(
        &self,
        collection: &str,
        filter: Document,
        update: Document,
        sort: Document,
    ) -> Option<Document> {
        self.ask(async {
            let collection = self.collection(collection);
            collection.find_one_and_update(filter, update).sort(sort).await.unwrap()
        })
    }

    pub(crate) fn upsert(&self, collection: &str, filter: Document, update: Document) {
        self.ask(async {
            let collection = self.collection(collection);
            collection.update_one(filter, update).upsert(true).await.unwrap();
        });
    }

    pub(crate) fn delete(&self, collection: &str, id: ObjectId) {
        self.ask(async {
            self.collection(collection).delete_one(doc! {"_id": id}).await.unwrap();
        });
    }

    /// Counted by the server, at one moment.
    pub(crate) fn count_now(&self, collection: &str, filter: Document) -> u64 {
        self.ask(async { self.collection(collection).count_documents(filter).await }).unwrap()
    }

    /// The keys of each index, and whether it is unique.
    pub(crate) fn indexes(&self, collection: &str) -> Vec<(Document, bool)> {
        self.ask(async {
            let mut listed = self.collection(collection).list_indexes().await.unwrap();
            let mut indexes = Vec::new();
            while listed.advance().await.unwrap() {
                let index = listed.deserialize_current().unwrap();
                let unique = index.options.and_then(|options| options.unique);
                indexes.push((index.keys, unique.unwrap_or_default()));
            }
            indexes
        })
    }

    pub(crate) fn index(&self, collection: &str, keys: Document, unique: bool) {
        let options = IndexOptions::builder().unique(unique.then_some(true)).build();
        let index = IndexModel::builder().keys(keys).options(options).build();
        self.ask(async { self.collection(collection).create_index(index).await }).unwrap();
    }
}

/// A document as stored, even if it looks like the written form of another type.
fn whole(raw: RawDocumentBuf) -> Document {
    Document::try_from(&*raw).unwrap()
}

/// A stored number of any integer type.
pub(crate) fn number(value: Option<&Bson>) -> Option<i64> {
    value.and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)))
}

/// A stored value as JSON; a missing field is null.
pub(crate) fn plain(value: Option<&Bson>) -> Value {
    match value {
        None | Some(Bson::Null) => Value::Null,
        Some(Bson::String(text)) => json!(text),
        Some(Bson::Boolean(truth)) => json!(truth),
        Some(Bson::Double(number)) => json!(number),
        Some(Bson::Array(values)) => values.iter().map(|value| plain(Some(value))).collect(),
        Some(Bson::Document(fields)) => {
            fields.iter().map(|(key, value)| (key.clone(), plain(Some(value)))).collect()
        }
        other => {
            number(other).map_or_else(|| panic!("no JSON for {other:?}"), |value| json!(value))
        }
    }
}
