//! SQL queries: what the table shows, what a query may not do, and its writes.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod guard;
mod read;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use windlass_core::job::Token;
use windlass_core::store::prelude::*;
use windlass_core::store::sql::{SqlAnswer, SqlAsk, SqlValue};
use windlass_core::store::{Durability, Error, TypeStats};
use windlass_core::time::ManualClock;
use windlass_core::{JobId, NewJob, Payload, Sysid, Tenant, TypeKey};
use windlass_store_sqlite::{Options, SqliteStore};

use common::{NOW, insert, job};

/// `NOW` as text.
const NOW_TEXT: &str = "2027-01-15 08:00:00";
const KEEP: Duration = Duration::from_secs(3600);
/// The id of the first INSERT.
const FIRST_ID: i64 = 1000;

/// A store for SQL queries.
struct World {
    store: SqliteStore,
    clock: Arc<ManualClock>,
    path: PathBuf,
    ids: Arc<AtomicI64>,
    _directory: TempDir,
}

impl World {
    fn new() -> World {
        World::with(|_| {})
    }

    fn with(set: impl FnOnce(&mut Options)) -> World {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("jobs.db");
        let clock = Arc::new(ManualClock::at(NOW));
        let mut options = Options { clock: clock.clone(), ..Options::new(&path) };
        set(&mut options);
        let store = SqliteStore::open(options).unwrap();
        let ids = Arc::new(AtomicI64::new(FIRST_ID));
        World { store, clock, path, ids, _directory: directory }
    }

    /// The jobs that have been added.
    async fn holding(jobs: impl IntoIterator<Item = NewJob>) -> World {
        let world = World::new();
        let jobs = insert(jobs.into_iter().collect(), Durability::Relaxed);
        world.store.job_insert(jobs).await.unwrap();
        world
    }

    fn ask(&self, text: &str) -> SqlAsk {
        let ids = self.ids.clone();
        SqlAsk {
            tenant: common::tenant(),
            text: text.into(),
            without_where: false,
            patience: Duration::from_secs(60),
            owner: Sysid::new(1).unwrap(),
            token: Token(2),
            keep: KEEP,
            ids: Arc::new(move || JobId::new(ids.fetch_add(1, Ordering::Relaxed))),
        }
    }

    async fn answer(&self, text: &str) -> SqlAnswer {
        self.asked(self.ask(text)).await.unwrap()
    }

    async fn asked(&self, ask: SqlAsk) -> Result<SqlAnswer, Error> {
        self.store.query(ask).await
    }

    /// The rows of an answer, with bars between the values.
    async fn rows(&self, text: &str) -> Vec<String> {
        lines(&self.answer(text).await)
    }

    #[track_caller]
    fn check(&self, text: &str, expected: &[&str]) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move { assert_eq!(self.rows(text).await, expected, "{text} at {at}") }
    }

    /// The message for an invalid query.
    async fn bad(&self, text: &str) -> String {
        match self.answer(text).await {
            SqlAnswer::Bad(message) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The message for a query that changed nothing.
    async fn failed(&self, text: &str) -> String {
        match self.answer(text).await {
            SqlAnswer::Failed(message) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// How many jobs the query changed.
    async fn changes(&self, text: &str) -> u64 {
        match self.answer(text).await {
            SqlAnswer::Wrote { changed, .. } => changed,
            other => panic!("{text}: {other:?}"),
        }
    }

    async fn stats(&self, name: &str) -> TypeStats {
        let stats = self.store.type_stats(Some(&common::tenant())).await.unwrap();
        stats.into_iter().find(|stats| stats.key.name.as_str() == name).unwrap()
    }
}

#[track_caller]
fn lines(answer: &SqlAnswer) -> Vec<String> {
    let SqlAnswer::Rows { rows, .. } = answer else { panic!("{answer:?}") };
    let value = |value: &SqlValue| match value {
        SqlValue::Null => "NULL".into(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) => number.to_string(),
        SqlValue::Text(text) => text.clone(),
        SqlValue::Blob(bytes) => format!("{bytes:?}"),
    };
    let line = |row: &Vec<SqlValue>| row.iter().map(value).collect::<Vec<_>>().join("|");
    rows.iter().map(line).collect()
}

fn named(number: i64, name: &str) -> NewJob {
    NewJob { key: TypeKey::new("acme", name).unwrap(), ..with_data(number, "{}") }
}

fn with_data(number: i64, data: &str) -> NewJob {
    NewJob { payload: Payload::Inline(Bytes::from(data.to_owned())), ..job(number) }
}

fn of_other(number: i64) -> NewJob {
    NewJob { key: TypeKey::new("other", "t").unwrap(), ..with_data(number, r#"{"secret":1}"#) }
}

fn other() -> Tenant {
    Tenant::new("other").unwrap()
}
