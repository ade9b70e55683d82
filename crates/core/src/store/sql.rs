//! SQL queries, for stores that support them: a table `jobs` shows one tenant's jobs. The store
//! defines its columns; the caller has to know them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::edit::MovedJobs;
use crate::id::{JobId, Sysid};
use crate::job::Token;
use crate::name::Tenant;

use super::Error;

/// The optional SQL interface of a store.
#[async_trait]
pub trait SqlStore: Send + Sync {
    async fn query(&self, ask: SqlAsk) -> Result<SqlAnswer, Error>;
}

#[derive(Clone)]
pub struct SqlAsk {
    pub tenant: Tenant,
    /// One or more statements.
    pub text: String,
    /// Whether an UPDATE or DELETE may lack a WHERE.
    pub without_where: bool,
    /// The time limit.
    pub patience: Duration,
    /// The owner of leases of jobs that are set to running.
    pub owner: Sysid,
    pub token: Token,
    /// The retention of ended jobs.
    pub keep: Duration,
    /// Makes ids for inserted jobs.
    pub ids: Arc<dyn Fn() -> Option<JobId> + Send + Sync>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SqlAnswer {
    Rows {
        columns: Vec<String>,
        rows: Vec<Vec<SqlValue>>,
    },
    /// Durable.
    Wrote {
        changed: u64,
        last_id: Option<JobId>,
        moved: MovedJobs,
    },
    /// A syntax error, or an access that is not allowed; with a message.
    Bad(String),
    /// A write without a WHERE.
    Aborted,
    /// It could not be carried out; nothing changed.
    Failed(String),
    /// It took too long, or its result was too large; nothing changed.
    TimedOut,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl fmt::Debug for SqlAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlAsk").field("tenant", &self.tenant).field("text", &self.text).finish()
    }
}
