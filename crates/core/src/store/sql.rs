//! Questions in SQL, for stores that can answer them: one table `jobs` shows one tenant's jobs. Its
//! columns are for the store to choose; the caller has to know them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::edit::MovedJobs;
use crate::id::{JobId, Sysid};
use crate::job::Token;
use crate::name::Tenant;

use super::Error;

/// What a store is beside the contract that answers questions in SQL.
#[async_trait]
pub trait SqlStore: Send + Sync {
    async fn query(&self, ask: SqlAsk) -> Result<SqlAnswer, Error>;
}

#[derive(Clone)]
pub struct SqlAsk {
    pub tenant: Tenant,
    /// One or more statements.
    pub text: String,
    /// An UPDATE or DELETE may go without a WHERE.
    pub without_where: bool,
    /// How long it may take.
    pub patience: Duration,
    /// Whose leases are put on jobs that are made to run.
    pub owner: Sysid,
    pub token: Token,
    /// How long ended jobs are kept.
    pub keep: Duration,
    /// Ids for jobs that are inserted.
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
    /// It could not be understood, or asked for what it may not see; in words.
    Bad(String),
    /// A write without a WHERE.
    Aborted,
    /// It was understood and could not be done; nothing changed.
    Failed(String),
    /// It took too long, or its answer was too large; nothing changed.
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
