//! The table that a query sees: a view of one tenant's jobs with Bedrock's columns, and triggers
//! that record what a statement wants to change.
//!
//! `jobs` only selects from an inner view, and only the inner view may read the store's tables. It
//! and the triggers have random names: SQLite's authorizer identifies the reader of a table only by
//! name, and a common table expression may have the name of a view.
//!
//! SQLite does not ask the authorizer about everything (not about the columns of a NATURAL JOIN).
//! So a query must not even be able to name a table of the store: empty views of the same names
//! shadow them, and names that SQLite reserves for itself are refused wherever they stand.

use std::sync::{Arc, Mutex};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Null, Value, ValueRef};
use rusqlite::{Connection, Result};
use windlass_bedrock_rules::column::COLUMNS;
use windlass_bedrock_rules::date_text::{millis_text, seconds_text};
use windlass_core::name::Tenant;
use windlass_core::sync::lock;
use windlass_core::time::Timestamp;
use windlass_core::{JobId, State};

use crate::row::{self, part};

/// Functions that only the view and the triggers may call.
pub(super) const FUNCTIONS: [&str; 5] =
    ["windlass_seconds", "windlass_millis", "windlass_put", "windlass_delete", "windlass_insert"];

/// The schema with the store's tables. A query may not name it.
pub(super) const SCHEMA: &str = "main";

/// Tables that the view reads.
pub(super) const TABLES: [&str; 6] = ["job", "type", "lease", "extra", "payload", "piece"];

/// Rows that one statement may write, and the bytes of their values.
const WRITES_MAX: usize = 100_000;
const WRITES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The values of a row in the order of the columns; `None` for those that do not change or were not
/// named.
pub(super) type Values = [Option<Value>; COLUMNS.len()];

/// A change of one job that a statement asks for.
#[derive(Debug)]
pub(super) enum RowWrite {
    Put(Option<JobId>, Box<Values>),
    Delete(Option<JobId>),
    Insert(Box<Values>),
}

/// The writes of the current statement.
#[derive(Clone, Default)]
pub(super) struct RecordedWrites(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    writes: Vec<RowWrite>,
    bytes: usize,
}

impl RecordedWrites {
    /// The writes since the last call.
    pub(super) fn take(&self) -> Vec<RowWrite> {
        std::mem::take(&mut *self.recorded()).writes
    }

    /// Returns the result of the SQL function that records it.
    fn record(&self, write: RowWrite) -> Result<Null> {
        let mut recorded = self.recorded();
        recorded.bytes += write.bytes();
        if recorded.writes.len() >= WRITES_MAX || recorded.bytes > WRITES_BYTES_MAX {
            let words = format!(
                "one statement changes at most {WRITES_MAX} jobs, with {WRITES_BYTES_MAX} bytes"
            );
            return Err(rusqlite::Error::UserFunctionError(words.into()));
        }
        recorded.writes.push(write);
        Ok(Null)
    }

    fn recorded(&self) -> std::sync::MutexGuard<'_, Recorded> {
        // A panic cannot leave a list half-done.
        lock(&self.0)
    }
}

impl RowWrite {
    fn bytes(&self) -> usize {
        let (RowWrite::Put(_, values) | RowWrite::Insert(values)) = self else { return 0 };
        let bytes = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        size_of::<Values>() + values.iter().flatten().map(bytes).sum::<usize>()
    }
}

/// Creates the view of the tenant's jobs; `secret` is the name that queries must not know.
pub(super) fn make(
    conn: &Connection,
    tenant: &Tenant,
    secret: &str,
    writes: &RecordedWrites,
) -> Result<()> {
    add_functions(conn, writes)?;
    conn.execute_batch(&format!("{}{}", views(tenant, secret), triggers(secret)))
}

/// Tables that every file has, and that a view cannot shadow.
const SCHEMA_TABLES: [&str; 4] =
    ["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"];

/// Empty views that shadow every table and view of the store, and every table of SQLite itself that
/// can be shadowed.
pub(super) struct Screen {
    names: Vec<String>,
    /// Tables of SQLite itself that cannot be shadowed: their names are reserved.
    reserved: Vec<String>,
}

impl Screen {
    /// In force from now on.
    pub(super) fn set(conn: &Connection, except: &[&str]) -> Result<Screen> {
        let find = "SELECT lower(name) FROM main.sqlite_schema WHERE type IN ('table', 'view')
                    UNION SELECT lower(name) FROM pragma_module_list";
        let names: Vec<String> =
            conn.prepare(find)?.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
        let (mut reserved, mut names): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| name.starts_with("sqlite_"));
        reserved.extend(SCHEMA_TABLES.map(str::to_owned));
        names.retain(|name| !except.contains(&name.as_str()));
        let screen = Screen { names, reserved };
        screen.put(conn)?;
        Ok(screen)
    }

    /// The shadowed names, in lower case.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Names that a query may not contain, in lower case.
    pub(super) fn reserved(&self) -> &[String] {
        &self.reserved
    }

    /// Gives the store itself access to its tables.
    pub(super) fn lifted<T, E: From<rusqlite::Error>>(
        &self,
        conn: &Connection,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        conn.execute_batch(&self.each(|name| format!("DROP VIEW temp.\"{name}\";")))?;
        let done = work()?;
        self.put(conn)?;
        Ok(done)
    }

    fn put(&self, conn: &Connection) -> Result<()> {
        let put = |name: &str| format!("CREATE TEMP VIEW \"{name}\" AS SELECT NULL WHERE 0;");
        conn.execute_batch(&self.each(put))
    }

    fn each(&self, sql: impl Fn(&str) -> String) -> String {
        self.names.iter().map(|name| sql(name)).collect()
    }
}

/// Reads at least one column besides the id of every table: otherwise SQLite asks the authorizer
/// about the table again, without saying that the view reads it.
///
/// SQLite evaluates an expression of the query as soon as it has the columns that it names, perhaps
/// before it knows whose job it is, and an error in it (or the time that it takes) tells something
/// about a job of another tenant. So the value of a column depends on the tenant. Two columns must
/// stay plain for the indexes: the name, which is read from the row that has the tenant, after the
/// tenant was compared; and the ID, of which such an error tells only that it is taken.
///
/// The tenant is compared with `IS`: after an `=`, SQLite would replace the column by the constant
/// in every other condition, and nothing would depend on it any more.
fn views(tenant: &Tenant, secret: &str) -> String {
    let columns = COLUMNS.join(", ");
    let number = |state| row::state_number(state);
    let own = |value: &str| format!("CASE WHEN t.tenant IS '{tenant}' THEN {value} END");
    let state = format!(
        "CASE j.state
         WHEN {queued} THEN
             CASE WHEN (SELECT l.token FROM main.lease l WHERE l.id = j.id) THEN 'RUNNING'
                  WHEN j.parts & {LENT} THEN 'RUNQUEUED'
                  ELSE 'QUEUED' END
         WHEN {paused} THEN 'PAUSED'
         WHEN {finished} THEN 'FINISHED'
         WHEN {failed} THEN 'FAILED'
         WHEN {cancelled} THEN 'CANCELLED' END",
        queued = number(State::Queued),
        paused = number(State::Paused),
        finished = number(State::Finished),
        failed = number(State::Failed),
        cancelled = number(State::Cancelled),
        LENT = part::LENT,
    );
    let extra = |column: &str, otherwise: &str| {
        format!(
            "CASE WHEN j.parts & {EXTRA} THEN
                 coalesce((SELECT x.{column} FROM main.extra x WHERE x.id = j.id), {otherwise})
             ELSE {otherwise} END",
            EXTRA = part::EXTRA,
        )
    };
    let last_run = "windlass_seconds(
        coalesce((SELECT l.started_at FROM main.lease l WHERE l.id = j.id), j.started_at))";
    let data = format!(
        "CASE WHEN j.payload_bytes = 0 THEN '{{}}'
              WHEN j.parts & {PAYLOAD} THEN
                  (SELECT CAST(p.data AS TEXT) FROM main.payload p WHERE p.id = j.id)
              WHEN j.parts & {PIECES} THEN
                  (SELECT group_concat(CAST(p.data AS TEXT), '' ORDER BY p.position)
                     FROM main.piece p WHERE p.id = j.id)
              ELSE CAST(j.payload AS TEXT) END",
        PAYLOAD = part::PAYLOAD,
        PIECES = part::PIECES,
    );
    let values = [
        own("windlass_seconds(j.created_at)"),
        "j.id".into(),
        own(&state),
        "t.name".into(),
        own(&extra("run_at_text", "windlass_millis(j.run_at)")),
        own(last_run),
        own(&extra("repeat", "''")),
        own(&data),
        format!("CAST({} AS INTEGER)", own("j.priority")),
        format!("CAST({} AS INTEGER)", own("coalesce(j.parent_id, 0)")),
        own(&extra("door_text", "''")),
    ]
    .join(",\n");
    format!(
        "CREATE TEMP VIEW {secret} ({columns}) AS
         SELECT {values}
           FROM main.job j JOIN main.type t ON t.id = j.type_id
          WHERE t.tenant IS '{tenant}'
            AND (j.state NOT IN ({finished}, {cancelled}) OR j.parent_id IS NOT NULL);
         CREATE TEMP VIEW jobs ({columns}) AS SELECT * FROM {secret};",
        finished = number(State::Finished),
        cancelled = number(State::Cancelled),
    )
}

/// Unchanged values are passed as NULL; the bits of the second argument distinguish them from
/// values that become NULL.
fn triggers(secret: &str) -> String {
    let each = |sql: &dyn Fn(usize, &str) -> String, between: &str| {
        let parts: Vec<_> = (0..).zip(COLUMNS).map(|(index, column)| sql(index, column)).collect();
        parts.join(between)
    };
    let bits = each(&|index, c| format!("((NEW.{c} IS NOT OLD.{c}) << {index})"), " | ");
    let new = each(&|_, c| format!("iif(NEW.{c} IS NOT OLD.{c}, NEW.{c}, NULL)"), ", ");
    let all = each(&|_, c| format!("NEW.{c}"), ", ");
    format!(
        "CREATE TEMP TRIGGER {secret}_put INSTEAD OF UPDATE ON jobs
         BEGIN SELECT windlass_put(OLD.jobID, {bits}, {new}); END;
         CREATE TEMP TRIGGER {secret}_delete INSTEAD OF DELETE ON jobs
         BEGIN SELECT windlass_delete(OLD.jobID); END;
         CREATE TEMP TRIGGER {secret}_insert INSTEAD OF INSERT ON jobs
         BEGIN SELECT windlass_insert({all}); END;"
    )
}

fn add_functions(conn: &Connection, writes: &RecordedWrites) -> Result<()> {
    let [seconds, millis, put, delete, insert] = FUNCTIONS;
    let columns = COLUMNS.len();
    let pure = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    conn.create_scalar_function(seconds, 1, pure, |context| Ok(time(context)?.map(seconds_text)))?;
    conn.create_scalar_function(millis, 1, pure, |context| Ok(time(context)?.map(millis_text)))?;
    let noting = FunctionFlags::SQLITE_UTF8;
    let recorded = writes.clone();
    conn.create_scalar_function(put, columns as i32 + 2, noting, move |context| {
        let bits: i64 = context.get(1)?;
        let is_set = |index: usize| bits & (1 << index) != 0;
        recorded.record(RowWrite::Put(id(context)?, values(context, 2, is_set)?))
    })?;
    let recorded = writes.clone();
    conn.create_scalar_function(delete, 1, noting, move |context| {
        recorded.record(RowWrite::Delete(id(context)?))
    })?;
    let recorded = writes.clone();
    conn.create_scalar_function(insert, columns as i32, noting, move |context| {
        let is_set = |index: usize| context.get_raw(index) != ValueRef::Null;
        recorded.record(RowWrite::Insert(values(context, 0, is_set)?))
    })
}

fn time(context: &Context<'_>) -> Result<Option<Timestamp>> {
    Ok(context.get::<Option<i64>>(0)?.map(Timestamp))
}

fn id(context: &Context<'_>) -> Result<Option<JobId>> {
    Ok(JobId::new(context.get(0)?))
}

fn values(
    context: &Context<'_>,
    first: usize,
    is_set: impl Fn(usize) -> bool,
) -> Result<Box<Values>> {
    let mut values = Box::new(Values::default());
    for (index, value) in values.iter_mut().enumerate().filter(|(index, _)| is_set(*index)) {
        *value = Some(context.get(first + index)?);
    }
    Ok(values)
}
