//! Connections to the server: a bounded number, each with its prepared statements.
//!
//! A connection is lent for one transaction. It comes back only after that has ended (`keep`);
//! otherwise it is closed, which makes the server roll back. So a call whose caller went away
//! leaves nothing half done.

use std::collections::HashMap;
use std::future::{poll_fn, ready};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use windlass_core::store::Durability;
use windlass_core::sync::lock;

use crate::connect::Connector;
use crate::error::{self, Failure, Result};
use crate::open::Options;

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Sees one consistent state.
    Read,
    Write(Durability),
}

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
    /// The server has sent a warning. It comes before the answer to what it is about.
    warned: Arc<AtomicBool>,
}

impl Session {
    pub(crate) fn new(client: Client, host: usize) -> Session {
        let client = Arc::new(client);
        Session { client, host, statements: Mutex::default(), warned: Arc::default() }
    }

    /// Where a warning of the server is noted.
    pub(crate) fn warned(&self) -> Arc<AtomicBool> {
        self.warned.clone()
    }

    /// Commits what was promised to last. If the wait for standbys is cancelled, by an operator or
    /// a time limit, the server commits locally and reports success, with a warning: then it is
    /// unknown whether the change would survive a failover.
    pub(crate) async fn commit_synced(&self, sql: &str) -> Result<()> {
        self.warned.store(false, Ordering::Release);
        self.batch(sql).await?;
        match self.warned.load(Ordering::Acquire) {
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

    fn is_closed(&self) -> bool {
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

/// The connections of a store. None is opened before it is needed.
pub(crate) struct Pool {
    connector: Arc<Connector>,
    options: Options,
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Session>>>,
    begin: [String; 3],
}

impl Pool {
    /// `synced` is the setting of `synchronous_commit` for durable changes.
    pub(crate) fn new(connector: Arc<Connector>, options: Options, synced: &str) -> Pool {
        let begin = |isolation: &str, commit: &str, statement_timeout: u64| {
            // BEGIN comes first: whatever is sent behind it is inside the transaction, or refused
            // because one of the settings failed. The settings end with the transaction, so that
            // a pooler between here and the server may give the next one to another client.
            // Statements are planned once, when tables may be empty, and read queues in the order
            // of their indexes; a scan of a whole table would pass all its dead rows.
            format!(
                "BEGIN ISOLATION LEVEL {isolation};\
                 SET LOCAL search_path = {schema}, pg_temp;\
                 SET LOCAL synchronous_commit = {commit};\
                 SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS};\
                 SET LOCAL statement_timeout = {statement_timeout};\
                 SET LOCAL idle_in_transaction_session_timeout = {IDLE_TIMEOUT_MS};\
                 SET LOCAL enable_seqscan = off;\
                 SET LOCAL enable_bitmapscan = off;\
                 SET LOCAL jit = off",
                schema = quoted(&options.schema),
            )
        };
        Pool {
            begin: [
                begin("REPEATABLE READ READ ONLY", "off", READ_TIMEOUT_MS),
                begin("READ COMMITTED READ WRITE", "off", 0),
                begin("READ COMMITTED READ WRITE", synced, 0),
            ],
            places: Arc::new(Semaphore::new(options.connections.max(1))),
            idle: Arc::default(),
            connector,
            options,
        }
    }

    /// A connection, within the time that the options allow for it.
    pub(crate) async fn session(&self) -> Result<Pooled> {
        let waited = timeout(self.options.patience, self.places.clone().acquire_owned()).await;
        let place = match waited {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(Failure::Store(error::closed())),
            Err(_) => return Err(Failure::unavailable("all connections are in use")),
        };
        let idle = lock(&self.idle).pop();
        // A server that another one has replaced may still answer.
        let latest = self.connector.latest();
        let fit = |session: &Session| !session.is_closed() && session.host == latest;
        let session = match idle.filter(fit) {
            Some(session) => session,
            None => self.connector.session().await?,
        };
        Ok(Pooled { session: Some(session), idle: self.idle.clone(), _place: place })
    }

    /// Waits for a call; gives up if it is not answered and another server has the place of the one
    /// that it was sent to.
    pub(crate) async fn unless_moved<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let host = self.connector.latest();
        tokio::select! {
            done = call => done,
            () = self.connector.moved_from(host) => {
                Err(Failure::unavailable("the server does not answer, and another has its place"))
            }
        }
    }

    /// The statements that begin a transaction, for `Session::batch`.
    pub(crate) fn begin(&self, mode: Mode) -> String {
        let begin = match mode {
            Mode::Read => &self.begin[0],
            Mode::Write(Durability::Relaxed) => &self.begin[1],
            Mode::Write(Durability::Synced) => &self.begin[2],
        };
        match &self.options.server_clock {
            Some(clock) => format!("{begin};SET LOCAL windlass.now_ms = {}", clock.now().ms()),
            None => begin.clone(),
        }
    }

    /// Waits for the transactions under way, and closes all connections.
    pub(crate) async fn close(&self) {
        let all = u32::try_from(self.options.connections.max(1)).unwrap_or(u32::MAX);
        // Fails only if it was closed before.
        let _all = self.places.acquire_many(all).await;
        self.places.close();
        lock(&self.idle).clear();
    }
}

/// How long a transaction waits for a lock before it begins again.
const LOCK_TIMEOUT_MS: u64 = 5_000;
/// How long a statement of a read takes. The server does not notice that a caller has gone, and
/// goes on reading, on a connection that no longer counts.
const READ_TIMEOUT_MS: u64 = 20_000;
/// A daemon that stops in the middle of a transaction, with all its locks, is disconnected.
const IDLE_TIMEOUT_MS: u64 = 15_000;

/// A name in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A connection that is lent for one transaction.
pub(crate) struct Pooled {
    session: Option<Session>,
    idle: Arc<Mutex<Vec<Session>>>,
    _place: OwnedSemaphorePermit,
}

impl Pooled {
    /// Gives it back: the transaction has ended.
    pub(crate) fn keep(mut self) {
        if let Some(session) = self.session.take_if(|session| !session.is_closed()) {
            lock(&self.idle).push(session);
        }
    }
}

impl Deref for Pooled {
    type Target = Session;
    fn deref(&self) -> &Session {
        self.session.as_ref().expect("it is there until it is given back")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // A connection that was lost took the others with it, as a rule.
        if self.session.as_ref().is_some_and(Session::is_closed) {
            lock(&self.idle).clear();
        }
    }
}
