//! `POST /tasks`: new tasks from a list, or from the documents of a collection. Either is written
//! in batches, so that a collection of any size needs little memory.

use axum::extract::State;
use futures_util::TryStreamExt as _;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, serialize_to_vec};
use serde_json::{Value, json};

use super::create_request::{self, CreateRequest, Source};
use super::list::READ_BATCH;
use super::{extra, filter, plain};
use crate::database::{Database, DbError, NewTask, PartialInsert};
use crate::dci::Dci;
use crate::dci::answer::{JsonAnswer, inserted_many};
use crate::dci::error::Failure;
use crate::dci::param::Params;

/// Tasks per insert.
const BATCH_TASKS_MAX: usize = 500;
/// Bytes per insert; a single task may be larger.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum size of a task's arguments: a document's limit minus the other fields.
const PARAMS_BYTES_MAX: usize = 16 * 1024 * 1024 - 64 * 1024;
/// Ids listed in the answer to a list of tasks; their memory was reserved with the body.
const IDS_SHOWN_MAX: usize = 100_000;
/// The same for a collection of any size. All tasks are counted.
const IDS_OF_COLLECTION_SHOWN_MAX: usize = 10_000;

const NO_QUEUE: &str = "queue not found";
/// The result's name in an answer.
pub(crate) const RESULT: &str = "MongoDB::InsertManyResult";

pub(crate) async fn create(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    // A bare list names no queue.
    let queue = params.sent.get("queue").filter(|_| params.sent.is_object());
    let queue = queue_id(&dci, queue).await?;
    let queue = queue.ok_or_else(|| Failure::bad(NO_QUEUE))?;
    let request = create_request::read(params.fields()?).map_err(Failure::bad)?;
    let like = extra::read(&params.options, dci.now().await?).map_err(Failure::bad)?;
    known(&dci, &like.after).await?;
    let made =
        create_tasks(&dci, queue, request, like).await.map_err(CreateFailure::into_failure)?;
    answer(&made).map(|value| params.answer(value))
}

/// The id of an existing queue, given by id or name.
pub(crate) async fn queue_id(
    dci: &Dci,
    queue: Option<&Value>,
) -> Result<Option<ObjectId>, DbError> {
    let name = match queue {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(object @ Value::Object(_)) => match filter::id(object) {
            Ok(id) => id.to_hex(),
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    };
    let found = dci.database().queue(&name).await?;
    Ok(found.and_then(|queue| queue.get_object_id("_id").ok()))
}

/// Refuses unknown dependencies, for which a task would wait forever.
async fn known(dci: &Dci, after: &[ObjectId]) -> Result<(), Failure> {
    if after.is_empty() {
        return Ok(());
    }
    let found = dci.database().task_statuses(after).await?;
    match after.iter().find(|id| !found.contains_key(id)) {
        Some(missing) => Err(Failure::bad(format!("no task with id {missing}"))),
        None => Ok(()),
    }
}

/// The created tasks.
#[derive(Debug, Default)]
pub(crate) struct CreatedTasks {
    /// The first ids.
    pub(crate) ids: Vec<ObjectId>,
    pub(crate) count: u64,
}

/// The tasks created before a failure.
#[derive(Debug)]
pub(crate) struct CreateFailure {
    pub(crate) made: CreatedTasks,
    pub(crate) failure: Failure,
}

impl CreateFailure {
    /// The failure, with the tasks created before it.
    pub(crate) fn into_failure(self) -> Failure {
        if self.made.count == 0 {
            return self.failure;
        }
        let mut result = result(&self.made);
        self.failure.with(RESULT, result[RESULT].take())
    }
}

/// The driver's result, or an error if nothing was created.
pub(crate) fn answer(made: &CreatedTasks) -> Result<Value, Failure> {
    let mut result = result(made);
    if made.count == 0 {
        return Err(Failure::bad("Unknown error").with(RESULT, result[RESULT].take()));
    }
    Ok(result)
}

fn result(made: &CreatedTasks) -> Value {
    let mut result = inserted_many(&made.ids);
    result[RESULT]["inserted_count"] = json!(made.count);
    result
}

/// Creates tasks that equal `like` except for their arguments.
pub(crate) async fn create_tasks(
    dci: &Dci,
    queue: ObjectId,
    request: CreateRequest,
    like: NewTask,
) -> Result<CreatedTasks, CreateFailure> {
    let refused =
        |error: DbError| CreateFailure { made: CreatedTasks::default(), failure: error.into() };
    let database = dci.writable().await.map_err(refused)?;
    let (batch, made) = (Batch::default(), CreatedTasks::default());
    let ids_max = match request {
        CreateRequest::List(_) => IDS_SHOWN_MAX,
        CreateRequest::Collection(_) => IDS_OF_COLLECTION_SHOWN_MAX,
    };
    let mut creator = TaskCreator { dci, database, queue, like, ids_max, batch, made };
    let worked = match request {
        CreateRequest::List(list) => creator.list(list).await,
        CreateRequest::Collection(source) => creator.collection(source).await,
    };
    match worked {
        Ok(()) => Ok(creator.made),
        Err(failure) => Err(CreateFailure { made: creator.made, failure }),
    }
}

struct TaskCreator<'a> {
    dci: &'a Dci,
    database: &'a Database,
    queue: ObjectId,
    like: NewTask,
    ids_max: usize,
    batch: Batch,
    made: CreatedTasks,
}

#[derive(Default)]
struct Batch {
    tasks: Vec<NewTask>,
    bytes: usize,
}

impl TaskCreator<'_> {
    async fn list(&mut self, list: Vec<Document>) -> Result<(), Failure> {
        // All or none, as far as this can be checked in advance.
        let sizes = list.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        for (params, bytes) in list.into_iter().zip(sizes) {
            self.add(params, bytes).await?;
        }
        self.write().await
    }

    async fn collection(&mut self, source: Source) -> Result<(), Failure> {
        let Source { collection: name, filter, template } = source;
        let allowed = self.dci.config().task_collections.as_deref();
        if !create_request::may_read(allowed, &name) {
            return Err(Failure::bad("collection not allowed").with("collection", name));
        }
        let database = self.dci.database();
        let failed = |error: DbError| {
            Failure::database(&format!("Could not iterate on collection {name}"), &error)
        };
        let documents = database.collection(&name);
        let find = documents.find(filter).projection(template.projection()).batch_size(READ_BATCH);
        let mut cursor = database.ask(find).await.map_err(failed)?;
        while let Some(document) = database.one(cursor.try_next()).await.map_err(failed)? {
            let params = template.params(&document);
            plain::check(&params).map_err(Failure::bad)?;
            let bytes = size(&params)?;
            self.add(params, bytes).await?;
        }
        self.write().await
    }

    async fn add(&mut self, params: Document, bytes: usize) -> Result<(), Failure> {
        if self.batch.bytes + bytes > BATCH_BYTES_MAX {
            self.write().await?;
        }
        self.batch.bytes += bytes;
        self.batch.tasks.push(NewTask { params, ..self.like.clone() });
        if self.batch.tasks.len() == BATCH_TASKS_MAX {
            self.write().await?;
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        let now = self.dci.now().await?;
        let database = self.database;
        let made = database.tasks_create(self.queue, &batch.tasks, now).await;
        let (ids, failed) = match made {
            Ok(ids) => (ids, None),
            Err(PartialInsert { made, error }) => (made, Some(error)),
        };
        self.made.count += ids.len() as u64;
        let shown = self.made.ids.len();
        self.made.ids.extend(ids.iter().take(self.ids_max - shown));
        // Deleting a queue checks for tasks after the queue is gone, and we check for the queue
        // after the tasks exist: one of the two sees the other.
        if database.queue(&self.queue.to_hex()).await?.is_none() {
            database.tasks_take_back(&ids).await?;
            self.made.count -= ids.len() as u64;
            self.made.ids.truncate(shown);
            return Err(Failure::bad(NO_QUEUE));
        }
        match failed {
            Some(error) => Err(Failure::database("Could not create tasks", &error)),
            None => Ok(()),
        }
    }
}

/// The stored size of a task's arguments, or an error if they do not fit into a document.
fn size(params: &Document) -> Result<usize, Failure> {
    let bytes = serialize_to_vec(params).map_err(|error| Failure::bad(error.to_string()))?.len();
    if bytes > PARAMS_BYTES_MAX {
        let message = format!("the params of a task have at most {PARAMS_BYTES_MAX} bytes");
        return Err(Failure::bad(message));
    }
    Ok(bytes)
}
