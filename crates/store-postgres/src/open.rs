//! Opens the database: checks whether the server is fit, and brings the layout up to date.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{Error, Store};
use windlass_core::time::{Clock, SystemClock};

use crate::clock::ServerClock;
use crate::connect::Connector;
use crate::connection::Session;
use crate::error::{Failure, Result};
use crate::listen::Hints;
use crate::migration;
use crate::pool::Pool;
use crate::upkeep::{Chores, Upkeep};
use crate::{Inner, PostgresStore};

/// How to open the store. `Options::new(url)` has values that suit most servers.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database`, with the parameters of libpq.
    pub url: String,
    /// The schema of the store; created if missing. One database can hold several stores.
    pub schema: String,
    /// Transactions that run at the same time, each on its own connection; at least one. The beat
    /// has one more.
    pub connections: usize,
    /// How long a call waits for a connection before it is `Unavailable`.
    pub patience: Duration,
    /// Whether to learn of other daemons' work by LISTEN, on one more connection. Not possible
    /// through a pooler that lends connections for single transactions.
    pub listen: bool,
    /// Jobs of a type that are claimed before it is noted where its queue begins now. Fewer cost
    /// more notes, more make claims slower while a transaction on the server is left open.
    pub passed_max: u64,
    /// The machine's clock; shows when the clock of the server was set.
    pub clock: Arc<dyn Clock>,
    /// Replaces the clock of the server; for tests.
    pub server_clock: Option<Arc<dyn Clock>>,
    /// Called with the time that each commit of a change took.
    pub on_commit: Option<OnCommit>,
}

pub type OnCommit = Arc<dyn Fn(Duration) + Send + Sync>;

const SCHEMA: &str = "windlass";
const CONNECTIONS: usize = 8;
const PASSED_MAX: u64 = 2000;
const PATIENCE: Duration = Duration::from_secs(10);

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            schema: SCHEMA.to_owned(),
            connections: CONNECTIONS,
            patience: PATIENCE,
            listen: true,
            passed_max: PASSED_MAX,
            clock: Arc::new(SystemClock),
            server_clock: None,
            on_commit: None,
        }
    }
}

impl PostgresStore {
    /// Connects to the server, creates the schema if it is missing, and migrates its layout.
    /// Refusals say what an operator has to do. `Conflict`: the URL, the server or the schema is
    /// not for us, and is left unchanged. `Unavailable`: the server cannot be reached, or does not
    /// admit or serve us now.
    pub async fn open(options: Options) -> std::result::Result<PostgresStore, Error> {
        check_schema(&options.schema)?;
        let connector = Arc::new(Connector::new(&options.url)?);
        let server = connector.name().to_owned();
        let synced = prepare(&connector, &options.schema).await;
        let synced = synced.map_err(|failure| failure.translate(&server))?;
        let hints = Arc::new(Hints::start(connector.clone(), &options));
        let clock = Arc::new(ServerClock::new(options.clock.clone()));
        let chores = Arc::new(Chores::new(options.passed_max));
        let on_commit = options.on_commit.clone();
        let pool = Pool::new(connector, options, synced);
        let inner = Arc::new(Inner { pool, clock, hints, on_commit, chores, server });
        let (beat, _upkeep) = (inner.for_beat(), Upkeep::start(&inner));
        let store = PostgresStore { inner, beat, _upkeep };
        // Reads the clock of the server for the first time: from now on, its steps are seen.
        store.ping().await?;
        Ok(store)
    }
}

/// Checks the server and migrates the schema. Returns the setting of `synchronous_commit` for
/// durable changes.
async fn prepare(connector: &Connector, schema: &str) -> Result<&'static str> {
    let session = connector.session().await?;
    let synced = check_server(&session, connector.name()).await?;
    migration::migrate(&session, schema, connector.name()).await?;
    Ok(synced)
}

/// PostgreSQL cuts longer names.
const SCHEMA_BYTES_MAX: usize = 63;

fn check_schema(schema: &str) -> std::result::Result<(), Error> {
    let fits = (1..=SCHEMA_BYTES_MAX).contains(&schema.len());
    if fits && !schema.contains('\0') && !schema.starts_with("pg_") {
        return Ok(());
    }
    let rule = "it has 1 to 63 bytes and does not begin with pg_";
    Err(Error::Conflict(format!("{schema:?} is not a valid name of a schema: {rule}")))
}

/// Checks the server; returns the setting of `synchronous_commit` for durable changes.
async fn check_server(session: &Session, server: &str) -> Result<&'static str> {
    const ASK: &str = "
        SELECT current_setting('server_version_num')::int4, current_setting('server_version'),
               current_setting('server_encoding'), current_setting('synchronous_commit'),
               current_setting('fsync')";
    let row = session.query_one(ASK, &[]).await?;
    if let Some(why) = unfit(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?) {
        return Err(Failure::conflict(format!("{server}: {why}")));
    }
    if row.try_get::<_, &str>(4)? == "off" {
        let server = tracing::field::display(server);
        tracing::warn!(server, "fsync is off: accepted jobs do not survive a power cut there");
    }
    // Never weaker than what the operator has configured, and never weaker than a synced commit.
    Ok(match row.try_get(3)? {
        "remote_apply" => "remote_apply",
        _ => "on",
    })
}

/// The oldest version that is supported: 14.
const VERSION_MIN: i32 = 140_000;

/// Why a server cannot be used, if so.
fn unfit(number: i32, version: &str, encoding: &str) -> Option<String> {
    if number < VERSION_MIN {
        let oldest = VERSION_MIN / 10_000;
        let rule = format!("Windlass needs version {oldest} or newer");
        return Some(format!("PostgreSQL {version} is too old; {rule}"));
    }
    let needs = "Windlass needs UTF8";
    (encoding != "UTF8").then(|| format!("the encoding of the database is {encoding}; {needs}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told_what_is_needed() {
        assert_eq!(unfit(140_000, "14.0", "UTF8"), None);
        let why = unfit(130_018, "13.18 (Debian 13.18-1)", "UTF8");
        assert_eq!(
            why.as_deref(),
            Some(
                "PostgreSQL 13.18 (Debian 13.18-1) is too old; Windlass needs version 14 or newer"
            )
        );
    }

    #[test]
    fn a_schema_that_the_server_would_cut_or_refuse_is_refused() {
        for schema in ["windlass", "Ünïcode \"quoted\"", &"x".repeat(63)] {
            assert_eq!(check_schema(schema), Ok(()));
        }
        for schema in ["", "pg_jobs", "a\0b", &"x".repeat(64)] {
            assert!(matches!(check_schema(schema), Err(Error::Conflict(_))), "{schema}");
        }
    }
}
