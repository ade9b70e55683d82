//! `POST /tasks`: new tasks from a list, or from the documents of a collection. Either is written
//! in batches, so that a collection of any size needs little memory.

use axum::extract::State;
use futures_util::TryStreamExt as _;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, serialize_to_vec};
use serde_json::{Value, json};

use super::ask::{self, Ask, Source};
use super::list::READ_BATCH;
use super::{extra, filter, plain};
use crate::database::{Database, DbError, NewTask, Unmade};
use crate::dci::Dci;
use crate::dci::answer::{Answer, inserted_many};
use crate::dci::error::Failure;
use crate::dci::param::Params;

/// Tasks that are written at once.
const BATCH_TASKS_MAX: usize = 500;
/// And their size; one task may be larger.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The arguments of one task: what a document may have, less what a task has beside them.
const PARAMS_BYTES_MAX: usize = 16 * 1024 * 1024 - 64 * 1024;
/// Ids that an answer to a list of tasks names; the memory for them was asked for with the body.
const IDS_SHOWN_MAX: usize = 100_000;
/// The same for a collection of any size. All are counted.
const IDS_OF_COLLECTION_SHOWN_MAX: usize = 10_000;

const NO_QUEUE: &str = "queue not found";
/// The name of what was made, in an answer.
pub(crate) const RESULT: &str = "MongoDB::InsertManyResult";

pub(crate) async fn create(State(dci): State<Dci>, params: Params) -> Result<Answer, Failure> {
    // A list alone names no queue.
    let queue = params.sent.get("queue").filter(|_| params.sent.is_object());
    let queue = queue_id(&dci, queue).await?;
    let queue = queue.ok_or_else(|| Failure::bad(NO_QUEUE))?;
    let ask = ask::read(params.fields()?).map_err(Failure::bad)?;
    let like = extra::read(&params.options, dci.now().await?).map_err(Failure::bad)?;
    known(&dci, &like.after).await?;
    let made = make(&dci, queue, ask, like).await.map_err(Broken::into_failure)?;
    answer(&made).map(|value| params.answer(value))
}

/// The id of a queue that is there, by its id or its name.
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

/// A task that waits for one that is not there would wait forever.
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

/// What was made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The first of them.
    pub(crate) ids: Vec<ObjectId>,
    pub(crate) count: u64,
}

/// What was made before it could not go on.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) made: Made,
    pub(crate) failure: Failure,
}

impl Broken {
    /// The refusal, with what was made in spite of it.
    pub(crate) fn into_failure(self) -> Failure {
        if self.made.count == 0 {
            return self.failure;
        }
        let mut result = result(&self.made);
        self.failure.with(RESULT, result[RESULT].take())
    }
}

/// What the driver would have answered, or that nothing was made.
pub(crate) fn answer(made: &Made) -> Result<Value, Failure> {
    let mut result = result(made);
    if made.count == 0 {
        return Err(Failure::bad("Unknown error").with(RESULT, result[RESULT].take()));
    }
    Ok(result)
}

fn result(made: &Made) -> Value {
    let mut result = inserted_many(&made.ids);
    result[RESULT]["inserted_count"] = json!(made.count);
    result
}

/// Makes tasks that are `like` one in everything but their arguments.
pub(crate) async fn make(
    dci: &Dci,
    queue: ObjectId,
    ask: Ask,
    like: NewTask,
) -> Result<Made, Broken> {
    let refused = |error: DbError| Broken { made: Made::default(), failure: error.into() };
    let database = dci.writable().await.map_err(refused)?;
    let (batch, made) = (Batch::default(), Made::default());
    let ids_max = match ask {
        Ask::List(_) => IDS_SHOWN_MAX,
        Ask::Collection(_) => IDS_OF_COLLECTION_SHOWN_MAX,
    };
    let mut maker = Maker { dci, database, queue, like, ids_max, batch, made };
    let worked = match ask {
        Ask::List(list) => maker.list(list).await,
        Ask::Collection(source) => maker.collection(source).await,
    };
    match worked {
        Ok(()) => Ok(maker.made),
        Err(failure) => Err(Broken { made: maker.made, failure }),
    }
}

struct Maker<'a> {
    dci: &'a Dci,
    database: &'a Database,
    queue: ObjectId,
    like: NewTask,
    ids_max: usize,
    batch: Batch,
    made: Made,
}

#[derive(Default)]
struct Batch {
    tasks: Vec<NewTask>,
    bytes: usize,
}

impl Maker<'_> {
    async fn list(&mut self, list: Vec<Document>) -> Result<(), Failure> {
        // All of them or none, as far as it can be known before.
        let sizes = list.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        for (params, bytes) in list.into_iter().zip(sizes) {
            self.add(params, bytes).await?;
        }
        self.write().await
    }

    async fn collection(&mut self, source: Source) -> Result<(), Failure> {
        let Source { collection: name, filter, template } = source;
        let allowed = self.dci.config().task_collections.as_deref();
        if !ask::may_read(allowed, &name) {
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
            Err(Unmade { made, error }) => (made, Some(error)),
        };
        self.made.count += ids.len() as u64;
        let shown = self.made.ids.len();
        self.made.ids.extend(ids.iter().take(self.ids_max - shown));
        // Who deletes a queue looks for tasks after it is gone, and we look for the queue after
        // the tasks are there: one of us sees the other.
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

/// The stored size of a task's arguments, if there is room for them in a document.
fn size(params: &Document) -> Result<usize, Failure> {
    let bytes = serialize_to_vec(params).map_err(|error| Failure::bad(error.to_string()))?.len();
    if bytes > PARAMS_BYTES_MAX {
        let message = format!("the params of a task have at most {PARAMS_BYTES_MAX} bytes");
        return Err(Failure::bad(message));
    }
    Ok(bytes)
}
