//! A connection to the server, with its prepared statements.

use std::collections::HashMap;
use std::future::{poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures_util::TryStreamExt;
use tokio::sync::Notify;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use windlass_core::sync::lock;

use crate::error::{Failure, Result};
use crate::pool::Place;

/// A statement that was sent, and whose answer nobody has waited for yet.
pub(crate) type Sent = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A parameter of such a statement.
pub(crate) type Value = Box<dyn ToSql + Sync + Send>;

/// A connection. The server executes what is sent on it in the order in which it was sent, also if
/// nobody has waited for the answers before.
pub(crate) struct Session {
    client: Arc<Client>,
    /// The position of its host.
    host: usize,
    /// Bounded by the number of statements in this crate.
    statements: Mutex<HashMap<&'static str, Statement>>,
    wire: Arc<Wire>,
}

/// What a session shares with the task that serves its connection.
#[derive(Default)]
pub(crate) struct Wire {
    /// The server has sent a warning. It comes before the answer to what it is about.
    warned: AtomicBool,
    /// The place of a call that was abandoned. The server does not notice that and goes on, so the
    /// place is taken until the task has ended with the connection.
    place: Mutex<Option<Place>>,
    abandoned: Notify,
}

impl Wire {
    pub(crate) fn note_warning(&self) {
        self.warned.store(true, Ordering::Release);
    }

    /// Returns once the session was dropped in the middle of a call.
    pub(crate) async fn abandoned(&self) {
        self.abandoned.notified().await;
    }
}

impl Session {
    pub(crate) fn new(client: Client, host: usize) -> Session {
        let client = Arc::new(client);
        Session { client, host, statements: Mutex::default(), wire: Arc::default() }
    }

    pub(crate) fn wire(&self) -> Arc<Wire> {
        self.wire.clone()
    }

    /// The position of its host.
    pub(crate) fn host(&self) -> usize {
        self.host
    }

    /// Drops it in the middle of a call that has this place.
    pub(crate) fn abandon(self, place: Place) {
        *lock(&self.wire.place) = Some(place);
        self.wire.abandoned.notify_one();
    }

    /// Commits what was promised to last. If the wait for standbys is cancelled, by an operator or
    /// a time limit, the server commits locally and reports success, with a warning: then it is
    /// unknown whether the change would survive a failover.
    pub(crate) async fn commit_synced(&self, sql: &str) -> Result<()> {
        self.wire.warned.store(false, Ordering::Release);
        self.batch(sql).await?;
        match self.wire.warned.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Failure::unavailable("no standby has confirmed the commit")),
        }
    }

    pub(crate) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    pub(crate) async fn query_opt(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.query_opt(&statement, params).await?)
    }

    pub(crate) async fn query_one(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Row> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.query_one(&statement, params).await?)
    }

    /// The first column of all rows.
    pub(crate) async fn ids(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<i64>> {
        let rows = self.query(sql, params).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Returns the number of rows that were written.
    pub(crate) async fn execute(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.execute(&statement, params).await?)
    }

    /// Sends a statement without waiting for its answer.
    pub(crate) async fn send(&self, sql: &'static str, values: Vec<Value>) -> Result<Sent> {
        let (client, statement) = (self.client.clone(), self.prepared(sql).await?);
        Ok(sent(async move {
            client.execute_raw(&statement, values).await?;
            Ok(())
        })
        .await)
    }

    /// The same for a statement whose answer is true or false: it sets `answer` if it is true.
    pub(crate) async fn send_asking(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        answer: Arc<AtomicBool>,
    ) -> Result<Sent> {
        let (client, statement) = (self.client.clone(), self.prepared(sql).await?);
        Ok(sent(async move {
            let mut rows = pin!(client.query_raw(&statement, values).await?);
            while let Some(row) = rows.try_next().await? {
                answer.fetch_or(row.try_get(0)?, Ordering::Relaxed);
            }
            Ok(())
        })
        .await)
    }

    /// Sends statements as `batch` does, without waiting for the answer.
    pub(crate) async fn send_batch(&self, sql: String) -> Sent {
        let client = self.client.clone();
        sent(async move { Ok(client.batch_execute(&sql).await?) }).await
    }

    /// Statements without parameters, in one message. The server stops at the first that fails.
    pub(crate) async fn batch(&self, sql: &str) -> Result<()> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The one number that a statement of changing text returns; it is not kept prepared.
    pub(crate) async fn number(&self, sql: &str) -> Result<i32> {
        Ok(self.client.query_one(sql, &[]).await?.try_get(0)?)
    }

    async fn prepared(&self, sql: &'static str) -> Result<Statement> {
        let known = lock(&self.statements).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        lock(&self.statements).insert(sql, statement.clone());
        Ok(statement)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

/// The driver sends a statement when it is first asked for the answer.
async fn sent(answer: impl Future<Output = Result<()>> + Send + 'static) -> Sent {
    let mut answer: Sent = Box::pin(answer);
    match poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
        Poll::Ready(early) => Box::pin(ready(early)),
        Poll::Pending => answer,
    }
}
