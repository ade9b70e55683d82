//! A bounded number of connections.
//!
//! A connection is lent for one transaction. It comes back only after that has ended (`keep`);
//! otherwise it is closed, which makes the server roll back. So a call whose caller went away
//! leaves nothing half done.
//!
//! Synced transactions have fewer places than there are: while a standby is missing, none of them
//! is answered, and the others still are. The beat has a place of its own.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use windlass_core::store::Durability;
use windlass_core::sync::lock;

use crate::connect::Connector;
use crate::connection::Session;
use crate::error::{self, Failure, Result};
use crate::open::Options;

/// Places that synced transactions leave to others, if there are enough.
const UNSYNCED_PLACES: usize = 2;

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Sees one consistent state.
    Read,
    Write(Durability),
}

/// A connection that may be used, or that an abandoned call still uses.
pub(crate) struct Place {
    _any: OwnedSemaphorePermit,
    _synced: Option<OwnedSemaphorePermit>,
}

/// The connections of a store. None is opened before it is needed.
pub(crate) struct Pool {
    connector: Arc<Connector>,
    options: Options,
    places: Arc<Semaphore>,
    synced_places: Arc<Semaphore>,
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
                 SET LOCAL client_min_messages = warning;\
                 SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS};\
                 SET LOCAL statement_timeout = {statement_timeout};\
                 SET LOCAL idle_in_transaction_session_timeout = {IDLE_TIMEOUT_MS};\
                 SET LOCAL enable_seqscan = off;\
                 SET LOCAL enable_bitmapscan = off;\
                 SET LOCAL jit = off",
                schema = quoted(&options.schema),
            )
        };
        let connections = options.connections.max(1);
        let synced_connections = connections.saturating_sub(UNSYNCED_PLACES).max(1);
        Pool {
            begin: [
                begin("REPEATABLE READ READ ONLY", "off", READ_TIMEOUT_MS),
                begin("READ COMMITTED READ WRITE", "off", 0),
                begin("READ COMMITTED READ WRITE", synced, 0),
            ],
            places: Arc::new(Semaphore::new(connections)),
            synced_places: Arc::new(Semaphore::new(synced_connections)),
            idle: Arc::default(),
            connector,
            options,
        }
    }

    /// The same with one more place, for calls that must not wait for any other.
    pub(crate) fn with_own_place(&self) -> Pool {
        Pool {
            connector: self.connector.clone(),
            options: Options { connections: 1, ..self.options.clone() },
            places: Arc::new(Semaphore::new(1)),
            synced_places: Arc::new(Semaphore::new(1)),
            idle: self.idle.clone(),
            begin: self.begin.clone(),
        }
    }

    async fn place(&self, mode: Mode) -> std::result::Result<Place, AcquireError> {
        let synced = match mode {
            Mode::Write(Durability::Synced) => {
                Some(self.synced_places.clone().acquire_owned().await?)
            }
            Mode::Write(Durability::Relaxed) | Mode::Read => None,
        };
        Ok(Place { _any: self.places.clone().acquire_owned().await?, _synced: synced })
    }

    /// A connection, within the time that the options allow for it.
    pub(crate) async fn session(&self, mode: Mode) -> Result<Pooled> {
        let place = match timeout(self.options.patience, self.place(mode)).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(Failure::Store(error::closed())),
            Err(_) => return Err(Failure::unavailable("all connections are in use")),
        };
        let idle = lock(&self.idle).pop();
        // A server that another one has replaced may still answer.
        let latest = self.connector.latest();
        let fit = |session: &Session| !session.is_closed() && session.host() == latest;
        let session = match idle.filter(fit) {
            Some(session) => session,
            None => self.connector.session().await?,
        };
        Ok(Pooled { lent: Some((session, place)), idle: self.idle.clone() })
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

    /// Waits for the transactions under way, except abandoned ones, and closes all connections.
    pub(crate) async fn close(&self) {
        self.connector.close();
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
/// goes on reading.
const READ_TIMEOUT_MS: u64 = 20_000;
/// A daemon that stops in the middle of a transaction, with all its locks, is disconnected.
const IDLE_TIMEOUT_MS: u64 = 15_000;

/// A name in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A connection that is lent for one transaction.
pub(crate) struct Pooled {
    lent: Option<(Session, Place)>,
    idle: Arc<Mutex<Vec<Session>>>,
}

impl Pooled {
    /// Gives it back: the transaction has ended.
    pub(crate) fn keep(mut self) {
        if let Some((session, _place)) = self.lent.take_if(|(session, _)| !session.is_closed()) {
            lock(&self.idle).push(session);
        }
    }
}

impl Deref for Pooled {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.lent.as_ref().expect("it is there until it is given back").0
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some((session, place)) = self.lent.take() else { return };
        // A connection that was lost took the others with it, as a rule.
        if session.is_closed() {
            lock(&self.idle).clear();
        }
        session.abandon(place);
    }
}
