//! SQL queries. Each query has its own connection, which is closed afterwards, so that nothing of
//! one query or tenant is visible to the next.
//!
//! | module | owns |
//! |---|---|
//! | `text` | statements in a text, and messages that point into them |
//! | `view` | the table that a query sees, and the triggers that record its writes |
//! | `guard` | what a query may do, and for how long |
//! | `function` | bounded functions instead of SQLite's own |
//! | `write` | turns recorded writes into edits of the store |
//! | `fuzz` | rules for any query, for the fuzzer and the tests |

mod function;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guard;
#[cfg(test)]
mod plan;
mod text;
mod view;
mod write;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::Semaphore;
use windlass_core::store::Error;
use windlass_core::store::sql::{SqlAnswer, SqlAsk, SqlValue};

use crate::doubt::Doubt;
use crate::error::{Failure, closed};
use crate::heap;
use crate::open::{self, Options};
use crate::turn::Turnstile;
use crate::tx::Tx;
use crate::type_row::TypeCache;

use guard::{Guard, TABLE_FUNCTIONS, TEXT_BYTES_MAX};
use text::Statement;
use view::{RecordedWrites, Screen};

/// Queries that run at the same time; others wait.
const QUERIES_MAX: u32 = 4;
/// Longest time that a query may take, however patient its caller is.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// A query may block other writers for half of the time that they are willing to wait, or for this
/// if it is longer.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// Rows of one answer, and the memory that they take.
const ANSWER_ROWS_MAX: usize = 1_000_000;
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory that SQLite may take for one query, besides its answer.
const HEAP_BYTES_MAX: i64 = 128 * 1024 * 1024;

pub(crate) struct Queries {
    options: Arc<Options>,
    doubt: Arc<Doubt>,
    permits: Arc<Semaphore>,
}

impl Queries {
    pub(crate) fn new(options: Options, doubt: Arc<Doubt>) -> Queries {
        let permits = Arc::new(Semaphore::new(QUERIES_MAX as usize));
        Queries { options: Arc::new(options), doubt, permits }
    }

    /// What a query wrote is durable after the next flush.
    pub(crate) async fn ask(&self, ask: SqlAsk) -> Result<SqlAnswer, Error> {
        let patience = ask.patience.min(PATIENCE_MAX);
        let deadline = Instant::now() + patience;
        let permit = self.permits.clone().acquire_owned();
        let Ok(permit) = tokio::time::timeout(patience, permit).await else {
            return Ok(SqlAnswer::TimedOut);
        };
        let permit = permit.map_err(|_| closed())?;
        let (options, doubt) = (self.options.clone(), self.doubt.clone());
        let work = move || {
            // Anything that a panic left half-done is undone when the query's connection closes.
            let bounded =
                || heap::within(HEAP_BYTES_MAX, || answer(&options, &doubt, &ask, deadline));
            let answer = Error::caught("a query", bounded)
                .and_then(|answer| answer.map_err(|failure| failure.translate(&options.path)));
            drop(permit);
            answer
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer,
            Err(ended) => Err(Error::Internal(format!("a query did not end: {ended}").into())),
        }
    }

    /// Waits for running queries.
    pub(crate) async fn stop(&self) {
        // An error means that another call has already closed them.
        if let Ok(_permits) = self.permits.acquire_many(QUERIES_MAX).await {
            self.permits.close();
        }
    }
}

/// Why a query was stopped. Nothing has changed in that case.
enum Stop {
    Bad(String),
    Failed(String),
    Aborted,
    TimedOut,
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        match failure {
            Failure::Store(Error::Conflict(words)) => Stop::Failed(words),
            Failure::Sqlite(error) => Stop::from(error),
            failure => Stop::Failure(failure),
        }
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Stop {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted | ErrorCode::TooBig) => Stop::TimedOut,
            _ => Stop::Failure(error.into()),
        }
    }
}

type Step<T> = Result<T, Stop>;

fn answer(
    options: &Options,
    doubt: &Doubt,
    ask: &SqlAsk,
    deadline: Instant,
) -> Result<SqlAnswer, Failure> {
    match Query::open(options, doubt, ask, deadline).and_then(Query::answer) {
        Ok(answer) => Ok(answer),
        Err(Stop::Bad(message)) => Ok(SqlAnswer::Bad(message)),
        Err(Stop::Failed(words)) => Ok(SqlAnswer::Failed(words)),
        Err(Stop::Aborted) => Ok(SqlAnswer::Aborted),
        Err(Stop::TimedOut) => Ok(SqlAnswer::TimedOut),
        Err(Stop::Failure(failure)) => Err(failure),
    }
}

struct Query<'a> {
    options: &'a Options,
    doubt: &'a Doubt,
    ask: &'a SqlAsk,
    conn: Connection,
    screen: Screen,
    guard: Arc<Guard>,
    recorded: RecordedWrites,
    deadline: Instant,
}

/// What the statements have done so far.
#[derive(Default)]
struct Done {
    columns: Vec<String>,
    rows: Vec<Vec<SqlValue>>,
    written: write::Written,
}

impl<'a> Query<'a> {
    fn open(
        options: &'a Options,
        doubt: &'a Doubt,
        ask: &'a SqlAsk,
        deadline: Instant,
    ) -> Step<Query<'a>> {
        let mut conn = open::query(options)?;
        // SQLite's random numbers are seeded by the operating system, and none reveals another.
        let secret = "SELECT 'jobs_' || lower(hex(randomblob(16)))";
        let secret: String = conn.query_row(secret, [], |row| row.get(0))?;
        let recorded = RecordedWrites::default();
        view::make(&conn, &ask.tenant, &secret, &recorded)?;
        function::replace_slow(&conn)?;
        let screen = Screen::set(&conn, &TABLE_FUNCTIONS)?;
        let guard = Guard::set(&mut conn, secret, screen.names())?;
        guard::end_at(&mut conn, deadline)?;
        Ok(Query { options, doubt, ask, conn, screen, guard, recorded, deadline })
    }

    fn answer(mut self) -> Step<SqlAnswer> {
        let text = &self.ask.text;
        if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
            let words = format!("a query has at most {TEXT_BYTES_MAX} bytes, none of them NUL");
            return Err(Stop::Bad(words));
        }
        let statements = text::statements(text);
        let mut writes = false;
        for statement in &statements {
            writes |= self.check(statement)?;
        }
        let done = self.in_transaction(&statements, writes)?;
        let Done { columns, rows, written } = done;
        if !writes {
            return Ok(SqlAnswer::Rows { columns, rows });
        }
        let write::Written { changed, last_id, mut moved } = written;
        moved.tidy();
        Ok(SqlAnswer::Wrote { changed, last_id, moved })
    }

    /// Compiles a statement, so that an invalid one is refused before any of them runs. Returns
    /// whether it changes jobs.
    fn check(&self, statement: &Statement<'_>) -> Step<bool> {
        self.guard.take();
        let prepared = self.conn.prepare(statement.text);
        let effects = self.guard.take();
        let prepared =
            prepared.map_err(|error| bad(error, statement, effects.denied.as_deref()))?;
        let refuse = |words: &str, place: usize| {
            let message = format!("Parse error: {words}");
            Err(Stop::Bad(text::pointed(&message, statement.text, place)))
        };
        if prepared.parameter_count() > 0 {
            return refuse("a query has no parameters", 0);
        }
        if let Some(place) = text::place_of_schema(view::SCHEMA, statement.text) {
            return refuse("not authorized", place);
        }
        if let Some(place) = text::place_of_any(self.screen.reserved(), statement.text) {
            return refuse("not authorized", place);
        }
        if !prepared.readonly() && !effects.writes {
            return refuse("not authorized", 0);
        }
        let writes = effects.writes && prepared.is_explain() == 0;
        if writes && effects.needs_where && !statement.has_where && !self.ask.without_where {
            return Err(Stop::Aborted);
        }
        Ok(writes)
    }

    /// Runs the statements, all or none. A query that changes jobs takes the file's lock first,
    /// because SQLite does not let a read that becomes a write wait for the lock.
    fn in_transaction(&mut self, statements: &[Statement<'_>], writes: bool) -> Step<Done> {
        if writes {
            self.doubt.check_all().map_err(Failure::Store)?;
        }
        if writes {
            Turnstile::open(self.options).pass(|| self.store_does("BEGIN IMMEDIATE"))?;
        } else {
            self.store_does("BEGIN")?;
        }
        if writes {
            let hold_max = (self.options.busy_timeout / 2).max(HOLD_MIN);
            guard::end_at(&mut self.conn, self.deadline.min(Instant::now() + hold_max))?;
        }
        let mut done = Done::default();
        for statement in statements {
            self.run(statement, writes, &mut done)?;
        }
        // A query that is stopped before this is undone: its connection is closed.
        let began = Instant::now();
        self.store_does("COMMIT").map_err(|stop| match stop {
            Stop::Failure(failure) if writes => Stop::Failure(self.doubt.judge(failure)),
            stop => stop,
        })?;
        if let Some(on_commit) = self.options.on_commit.as_ref().filter(|_| writes) {
            on_commit(began.elapsed(), false);
        }
        Ok(done)
    }

    fn store_does(&self, sql: &str) -> Step<()> {
        Ok(self.guard.unguarded(|| self.conn.execute_batch(sql))?)
    }

    fn run(&self, statement: &Statement<'_>, writes: bool, done: &mut Done) -> Step<()> {
        let stopped = |error: rusqlite::Error| if writes { failed(error) } else { wrong(error) };
        let mut prepared = self.conn.prepare(statement.text).map_err(stopped)?;
        let columns: Vec<_> = prepared.column_names().map(str::to_owned).collect();
        let width = columns.len();
        let mut rows = Vec::new();
        let mut bytes = 0;
        let mut found = prepared.raw_query();
        while let Some(row) = found.next().map_err(stopped)? {
            let mut values = Vec::with_capacity(width);
            for index in 0..width {
                let value = row.get_ref(index).map_err(stopped)?;
                bytes += size_of::<SqlValue>() + length(value);
                if bytes > ANSWER_BYTES_MAX {
                    return Err(Stop::TimedOut);
                }
                values.push(sql_value(value));
            }
            rows.push(values);
            if rows.len() > ANSWER_ROWS_MAX {
                return Err(Stop::TimedOut);
            }
        }
        drop(found);
        drop(prepared);
        if width > 0 {
            (done.columns, done.rows) = (columns, rows);
        }
        let recorded = self.recorded.take();
        if recorded.is_empty() {
            return Ok(());
        }
        let carry_out = || {
            let mut types = TypeCache::default();
            let mut tx = Tx::begin(&self.conn, &mut types, self.options.clock.as_ref())?;
            write::carry_out(&mut tx, self.ask, &recorded, &mut done.written)?;
            tx.apply_counts()
        };
        Ok(self.guard.unguarded(|| self.screen.lifted(&self.conn, carry_out))?)
    }
}

/// The error of a statement that could not be compiled.
fn bad(error: rusqlite::Error, statement: &Statement<'_>, denied: Option<&str>) -> Stop {
    let of_query = |message: &str, offset: usize| {
        Stop::Bad(text::pointed(&format!("Parse error: {message}"), statement.text, offset))
    };
    match &error {
        rusqlite::Error::SqlInputError { msg, offset, .. } => {
            of_query(msg, usize::try_from(*offset).unwrap_or(0))
        }
        rusqlite::Error::SqliteFailure(code, Some(message)) if is_of_query(code.code) => {
            // SQLite gives the position of some errors only; other messages end with the name in
            // question.
            let named = message.rsplit_once(": ").map_or("", |(_, name)| name);
            let name = denied.unwrap_or(named);
            of_query(message, text::place_of(name, statement.text))
        }
        rusqlite::Error::MultipleStatement => of_query(&error.to_string(), 0),
        _ => Stop::from(error),
    }
}

/// The error of a read that failed while it ran.
fn wrong(error: rusqlite::Error) -> Stop {
    words_of(error, |words| Stop::Bad(format!("Runtime error: {words}")))
}

/// The error of a write that failed while it ran.
fn failed(error: rusqlite::Error) -> Stop {
    words_of(error, Stop::Failed)
}

fn words_of(error: rusqlite::Error, stop: impl FnOnce(String) -> Stop) -> Stop {
    if error.sqlite_error_code() == Some(ErrorCode::OutOfMemory) {
        return stop(format!("a query takes at most {HEAP_BYTES_MAX} bytes of memory"));
    }
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => stop(msg),
        rusqlite::Error::SqliteFailure(code, Some(message)) if is_of_query(code.code) => {
            stop(message)
        }
        error => Stop::from(error),
    }
}

/// Whether the query itself is at fault, not the store.
fn is_of_query(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Unknown
            | ErrorCode::AuthorizationForStatementDenied
            | ErrorCode::ConstraintViolation
            | ErrorCode::TypeMismatch
            | ErrorCode::ParameterOutOfRange
    )
}

fn length(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        _ => 0,
    }
}

/// Text that is not UTF-8 comes from a payload; invalid bytes are replaced.
fn sql_value(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(number) => SqlValue::Integer(number),
        ValueRef::Real(number) => SqlValue::Real(number),
        ValueRef::Text(bytes) => SqlValue::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
    }
}
