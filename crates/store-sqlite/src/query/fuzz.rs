//! The rules for any query, for the fuzzer and the tests: no query shows or changes anything of
//! another tenant, or is an error of the store itself.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::job::Token;
use windlass_core::store::prelude::*;
use windlass_core::store::sql::{SqlAnswer, SqlAsk};
use windlass_core::store::{Durability, Insert};
use windlass_core::time::ManualClock;
use windlass_core::{JobId, NewJob, Payload, Sysid, Tenant, Timestamp, TypeKey};

use super::{answer, text};
use crate::SqliteStore;
use crate::doubt::Doubt;
use crate::open::Options;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// In the other tenant's payload. No query makes it up.
const SECRET: &str = "kq7vX2mWzR";
/// Short, because some queries never end.
const PATIENCE: Duration = Duration::from_millis(300);

/// SQL of one tenant. Accepts it if it is carried out.
pub fn query(bytes: &[u8]) -> bool {
    thread_local!(static WORLD: RefCell<Option<World>> = const { RefCell::new(None) });
    let Ok(text) = str::from_utf8(bytes) else { return false };
    check_statements(text);
    WORLD.with_borrow_mut(|world| world.get_or_insert_with(World::new).check(text))
}

/// Each statement is one for SQLite, too.
fn check_statements(text: &str) {
    let mut from = 0;
    for statement in text::statements(text) {
        let found = text[from..].find(statement.text).expect("statements are parts of the text");
        from += found + statement.text.len();
    }
    if text.contains('\0') {
        return;
    }
    let conn = Connection::open_in_memory().expect("SQLite has memory");
    for statement in text::statements(text) {
        let prepared = conn.prepare(statement.text);
        assert!(
            !matches!(prepared, Err(rusqlite::Error::MultipleStatement)),
            "{:?} is more than one statement",
            statement.text
        );
    }
}

/// A store with a job of each of two tenants.
struct World {
    options: Options,
    /// The file, for the next query.
    fresh: Vec<u8>,
    /// Everything of the other tenant.
    other: SqlAnswer,
    _dir: TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let clock = Arc::new(ManualClock::at(NOW));
        let options = Options { clock, ..Options::new(dir.path().join("jobs.db")) };
        make_store(&options);
        let fresh = std::fs::read(&options.path).expect("the file was just written");
        let mut world = World { options, fresh, other: SqlAnswer::Aborted, _dir: dir };
        world.other = world.ask("other", ALL_JOBS);
        assert!(format!("{:?}", world.other).contains(SECRET));
        world
    }

    fn check(&self, text: &str) -> bool {
        for suffix in ["-wal", "-shm"] {
            let beside = format!("{}{suffix}", self.options.path.display());
            assert!(!Path::new(&beside).exists() || std::fs::remove_file(&beside).is_ok());
        }
        std::fs::write(&self.options.path, &self.fresh).expect("the file can be written");
        let answer = self.ask("acme", text);
        let is_own = text.contains(SECRET);
        assert!(is_own || !format!("{answer:?}").contains(SECRET), "{answer:?}");
        let accepted = matches!(answer, SqlAnswer::Rows { .. } | SqlAnswer::Wrote { .. });
        let before = if accepted { None } else { Some(self.ask("acme", ALL_JOBS)) };
        assert_eq!(self.ask("other", ALL_JOBS), self.other, "of the other tenant");
        if let Some(SqlAnswer::Rows { rows, .. }) = before {
            assert_eq!(rows.len(), 1, "a query that is refused changes nothing");
        }
        accepted
    }

    fn ask(&self, tenant: &str, text: &str) -> SqlAnswer {
        let ids = AtomicI64::new(1000);
        let ask = SqlAsk {
            tenant: Tenant::new(tenant).expect("a valid tenant"),
            text: text.into(),
            without_where: false,
            patience: PATIENCE,
            owner: Sysid::FIRST,
            token: Token(2),
            keep: Duration::from_secs(3600),
            ids: Arc::new(move || JobId::new(ids.fetch_add(1, Ordering::Relaxed))),
        };
        let patience = if text == ALL_JOBS { Duration::from_secs(60) } else { PATIENCE };
        let deadline = Instant::now() + patience;
        let doubt = Doubt::new(&self.options.path);
        match answer(&self.options, &doubt, &ask, deadline) {
            Ok(answer) => answer,
            Err(failure) => panic!("{}", failure.translate(&self.options.path)),
        }
    }
}

const ALL_JOBS: &str = "SELECT * FROM jobs ORDER BY jobID";

fn make_store(options: &Options) {
    let job = |number: i64, tenant: &str, payload: String| {
        let id = JobId::new(number).expect("a valid id");
        let key = TypeKey::new(tenant, "mail").expect("a valid type");
        NewJob::new(id, key, Payload::Inline(payload.into()), NOW)
    };
    let jobs = vec![
        job(1, "acme", r#"{"n":1}"#.to_owned()),
        job(2, "other", format!(r#"{{"secret":"{SECRET}"}}"#)),
    ];
    let insert = Insert { jobs, keys: Vec::new(), mark: None, durability: Durability::Synced };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let store = SqliteStore::open(options.clone()).expect("a new store opens");
        store.job_insert(insert).await.expect("jobs are inserted");
        store.close().await;
    });
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn queries() {
        corpus::check("sql_query", 1000, super::query);
    }
}
