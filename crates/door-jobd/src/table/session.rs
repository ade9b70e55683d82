//! The interface between the table's operations and a database client: transactions of statements,
//! with the few kinds of values that the table has.

use async_trait::async_trait;

use super::TableError;
use super::fit::TableLimits;

/// A parameter or a result of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
}

impl Value {
    pub(super) fn id(&self) -> Option<u64> {
        match self {
            Self::Null => None,
            Self::Int(number) => u64::try_from(*number).ok(),
            Self::Text(text) => text.parse().ok(),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Int(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or_else(|_| Self::Text(number.to_string()), Self::Int)
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }
}

/// Why a statement failed, grouped by the reaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// A conflict: the whole transaction is retried at once.
    Clash(String),
    Away(String),
    Refused(String),
}

impl From<Fault> for TableError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Clash(told) | Fault::Away(told) => Self::Away(told),
            Fault::Refused(told) => Self::Refused(told),
        }
    }
}

/// The SQL dialect of a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    /// Quotes names.
    pub quote: char,
    /// Ends a SELECT that locks its rows.
    pub lock: &'static str,
    /// The server's time, in milliseconds since 1970.
    pub now: &'static str,
    /// Converts a column of any type to text; `{}` is its name.
    pub as_text: &'static str,
    /// Makes INSERT replace a row with the same id.
    pub or_replace: &'static str,
    /// Column types of the table of marks: an integer, and text of 255 characters.
    pub number: &'static str,
    pub name: &'static str,
}

/// A transaction in progress. Statements use `?` for values. Dropping it rolls it back.
#[async_trait]
pub(super) trait Session: Send {
    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Fault>;

    async fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<(), Fault>;

    async fn commit(self: Box<Self>) -> Result<(), Fault>;
}

/// The client of one database.
#[async_trait]
pub(super) trait Backend: Send + Sync + 'static {
    fn dialect(&self) -> Dialect;

    async fn begin(&self) -> Result<Box<dyn Session>, Fault>;

    /// Reads the limits of the columns. `schema` as in `schema.table`.
    async fn inspect(&self, schema: Option<&str>, table: &str) -> Result<TableLimits, Fault>;

    async fn close(&self);
}
