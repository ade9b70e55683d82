//! What a query may do: read and change the view, call harmless functions, and nothing else, within
//! bounds of size and time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

use windlass_core::sync::lock;

use super::view;

/// Instructions of SQLite's virtual machine between two checks of the clock. Each may take a while:
/// it may make the longest value.
const STEPS: i32 = 20;

/// Longest value, including intermediate ones: that of the longest header, in which clients send
/// data.
pub(super) const VALUE_BYTES_MAX: i32 = 16 * 1024 * 1024;
/// Longest statement.
pub(super) const TEXT_BYTES_MAX: usize = 1024 * 1024;

const LIMITS: [(Limit, i32); 9] = [
    (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, TEXT_BYTES_MAX as i32),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 1000),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (Limit::SQLITE_LIMIT_VDBE_OP, 5_000_000),
    // Each operand of a JSON function is searched or copied in the same instruction.
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 32),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 2),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Functions that depend only on their arguments, the clock and random numbers. Functions whose
/// names begin with `json` are allowed too, except those below.
const FUNCTIONS: &str = "
    abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood
    likely lower ltrim max min nullif octet_length printf quote random randomblob replace round
    rtrim sign soundex substr substring trim typeof unhex unicode unistr unistr_quote unlikely upper
    zeroblob
    date time datetime julianday unixepoch strftime timediff
    current_date current_time current_timestamp
    avg count group_concat string_agg sum total median percentile percentile_cont percentile_disc
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value
    nth_value
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2
    mod pi pow power radians sin sinh sqrt tan tanh trunc
    sqlite_version -> ->>";

/// They take time by the product of their operands' lengths, or memory for all rows.
const JSON_DENIED: [&str; 6] = [
    "json_group_array",
    "json_group_object",
    "jsonb_group_array",
    "jsonb_group_object",
    "json_patch",
    "jsonb_patch",
];

/// Table-valued functions.
pub(super) const TABLE_FUNCTIONS: [&str; 4] =
    ["json_each", "json_tree", "jsonb_each", "jsonb_tree"];

/// The authorizer: SQLite calls it for each access while it compiles a statement.
pub(super) struct Guard {
    /// The name of the inner view, and the prefix of the triggers' names.
    secret: String,
    functions: HashSet<&'static str>,
    /// Names that no query may use, in lower case.
    hidden: HashSet<String>,
    /// Off while the store itself uses the connection.
    on: AtomicBool,
    effects: Mutex<Effects>,
}

/// What a statement does, as far as the authorizer has seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Effects {
    /// Changes jobs.
    pub(super) writes: bool,
    /// Changes existing jobs.
    pub(super) needs_where: bool,
    /// The first name that was denied.
    pub(super) denied: Option<String>,
}

impl Guard {
    /// Sets the limits, and guards every statement that is compiled from now on.
    pub(super) fn set(
        conn: &mut Connection,
        secret: String,
        hidden: &[String],
    ) -> rusqlite::Result<Arc<Guard>> {
        for (limit, most) in LIMITS {
            conn.set_limit(limit, most)?;
        }
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        let guard = Arc::new(Guard {
            secret,
            functions: FUNCTIONS.split_whitespace().collect(),
            hidden: hidden.iter().cloned().collect(),
            on: AtomicBool::new(true),
            effects: Mutex::default(),
        });
        let asked = guard.clone();
        conn.authorizer(Some(move |context: AuthContext<'_>| asked.answer(&context)))?;
        Ok(guard)
    }

    /// Runs work of the store itself without the guard.
    pub(super) fn unguarded<T>(&self, work: impl FnOnce() -> T) -> T {
        self.on.store(false, Ordering::Relaxed);
        let done = work();
        self.on.store(true, Ordering::Relaxed);
        done
    }

    /// The effects of the statements compiled since the last call.
    pub(super) fn take(&self) -> Effects {
        std::mem::take(&mut *self.effects())
    }

    fn effects(&self) -> std::sync::MutexGuard<'_, Effects> {
        // A panic cannot leave flags half-done.
        lock(&self.effects)
    }

    fn answer(&self, context: &AuthContext<'_>) -> Authorization {
        if !self.on.load(Ordering::Relaxed) || self.allows(context) {
            return Authorization::Allow;
        }
        let name = match context.action {
            AuthAction::Read { table_name, .. }
            | AuthAction::Insert { table_name }
            | AuthAction::Update { table_name, .. }
            | AuthAction::Delete { table_name } => table_name,
            AuthAction::Function { function_name } => function_name,
            _ => "",
        };
        self.effects().denied.get_or_insert_with(|| name.to_owned());
        Authorization::Deny
    }

    fn allows(&self, context: &AuthContext<'_>) -> bool {
        match context.action {
            AuthAction::Select | AuthAction::Recursive => true,
            AuthAction::Read { table_name, column_name } => {
                self.allows_read(table_name, column_name, context.accessor)
            }
            AuthAction::Function { function_name } => {
                self.functions.contains(function_name)
                    || (function_name.starts_with("json") && !JSON_DENIED.contains(&function_name))
                    || (view::FUNCTIONS.contains(&function_name) && self.is_ours(context.accessor))
            }
            AuthAction::Insert { table_name } if is_jobs(table_name) => {
                self.effects().writes = true;
                true
            }
            AuthAction::Update { table_name, .. } | AuthAction::Delete { table_name }
                if is_jobs(table_name) =>
            {
                let mut effects = self.effects();
                (effects.writes, effects.needs_where) = (true, true);
                true
            }
            _ => false,
        }
    }

    fn allows_read(&self, table: &str, column: &str, accessor: Option<&str>) -> bool {
        if is_jobs(table) || table == self.secret || TABLE_FUNCTIONS.contains(&table) {
            return true;
        }
        if view::TABLES.contains(&table) && accessor == Some(&self.secret) {
            return true;
        }
        // If only rows are counted, no column is read. That may be a common table expression, which
        // has no other name than the one that the query gave it.
        let name = table.to_ascii_lowercase();
        column.is_empty() && !self.hidden.contains(&name) && !is_built_in(&name)
    }

    /// Whether the inner view or a trigger makes the access.
    fn is_ours(&self, accessor: Option<&str>) -> bool {
        accessor.is_some_and(|name| name.starts_with(&self.secret))
    }
}

fn is_jobs(table: &str) -> bool {
    table.eq_ignore_ascii_case("jobs")
}

fn is_built_in(name: &str) -> bool {
    name.starts_with("sqlite_") || name.starts_with("pragma_")
}

/// Interrupts everything on the connection at the deadline.
pub(super) fn end_at(conn: &mut Connection, deadline: Instant) -> rusqlite::Result<()> {
    conn.progress_handler(STEPS, Some(move || Instant::now() >= deadline))
}
