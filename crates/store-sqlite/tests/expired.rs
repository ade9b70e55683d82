//! Very many expired jobs at the front of a queue leave it in steps, each of them once, so that no
//! claim has to look at them again.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::Durability;
use windlass_core::store::prelude::*;
use windlass_core::time::ManualClock;
use windlass_core::{NewJob, Timestamp};
use windlass_store_sqlite::{Options, SqliteStore};

use common::{NOW, assert_consistent, claim, insert, job};

/// The most expired jobs that one claim moves in one transaction.
const STEP_MAX: i64 = 1000;
/// Several full steps and a partial one.
const EXPIRED: i64 = 3 * STEP_MAX + 7;
const END: Timestamp = Timestamp(NOW.0 + 1000);

/// A store with `EXPIRED` jobs whose time is over, and a record of how many the file withholds
/// after each commit.
struct Front {
    store: SqliteStore,
    withheld: Arc<Mutex<Vec<i64>>>,
    path: PathBuf,
    _directory: TempDir,
}

impl Front {
    /// With more jobs behind them.
    async fn new(behind: i64) -> Front {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("jobs.db");
        let (withheld, clock) = (Arc::new(Mutex::new(Vec::new())), ManualClock::at(NOW));
        let (noted, look, file) = (withheld.clone(), Mutex::new(None::<Connection>), path.clone());
        let clock = Arc::new(clock);
        let mut options = Options { clock: clock.clone(), ..Options::new(&path) };
        options.on_commit = Some(Arc::new(move |_, _| {
            let mut look = look.lock().unwrap();
            let conn = look.get_or_insert_with(|| Connection::open(&file).unwrap());
            let count = "SELECT count(*) FROM withheld";
            noted.lock().unwrap().push(conn.query_row(count, [], |row| row.get(0)).unwrap());
        }));
        let store = SqliteStore::open(options).unwrap();
        let of = |number| {
            let expires_at = (number <= EXPIRED).then_some(END);
            NewJob { expires_at, ..job(number) }
        };
        let jobs: Vec<NewJob> = (1..=EXPIRED + behind).map(of).collect();
        for batch in jobs.chunks(BATCH_JOBS_MAX) {
            store.job_insert(insert(batch.to_vec(), Durability::Relaxed)).await.unwrap();
        }
        clock.advance(Duration::from_secs(1));
        withheld.lock().unwrap().clear();
        Front { store, withheld, path, _directory: directory }
    }

    /// How many were withheld after each commit since the last call.
    fn commits(&self) -> Vec<i64> {
        std::mem::take(&mut self.withheld.lock().unwrap())
    }
}

#[tokio::test]
async fn a_claim_passes_expired_jobs_in_steps() {
    let front = Front::new(1).await;
    let claimed = claim(&front.store, 5).await;
    assert_eq!(claimed.iter().map(|of| of.job.id.get()).collect::<Vec<_>>(), [EXPIRED + 1]);
    let full = [STEP_MAX, 2 * STEP_MAX, 3 * STEP_MAX, EXPIRED];
    assert_eq!(front.commits(), full);
    assert_consistent(&front.path);
}

#[tokio::test]
async fn the_next_claim_does_not_pass_them_again() {
    let front = Front::new(0).await;
    assert!(claim(&front.store, 5).await.is_empty());
    assert_eq!(front.commits().last(), Some(&EXPIRED));
    let ready = "SELECT count(*) FROM ready";
    let conn = Connection::open(&front.path).unwrap();
    assert_eq!(conn.query_row(ready, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert!(claim(&front.store, 5).await.is_empty());
    assert!(front.commits().len() <= 1, "there is nothing to pass");
    assert_consistent(&front.path);
}
