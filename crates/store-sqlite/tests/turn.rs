//! Daemons take turns at the file: one that writes back to back does not block the others.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;
use windlass_core::Timestamp;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, LeaseRef, Piece, Renew, SysidRenew, SysidReserve};
use windlass_core::time::{Clock, ManualClock};
use windlass_store_sqlite::{Options, SqliteStore};
use windlass_test_kit::wait::in_time;

use common::{NOW, claim, id, insert, job};

/// Set for the child process of the test below; without it, the test of the child does nothing.
const HOG_FILE: &str = "WINDLASS_TEST_HOG_FILE";
/// Callers of the hog: while one transaction runs, others already wait for its writer.
const HOG_CALLERS: usize = 4;
/// Pieces in one call: so many that no two calls share a transaction.
const HOG_PIECES: u32 = 40;
/// How long the hog holds SQLite's lock in each transaction: much longer than the pause of a
/// process that waits for its turn, also on a busy machine.
const HOG_HOLDS: Duration = Duration::from_millis(20);
/// A renewal that is not next fails after so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A child that is not killed ends by itself after so many.
const HOG_TRANSACTIONS_MAX: i64 = 2_000;

/// The clock of the hog. The store reads it inside each transaction.
struct SlowClock(ManualClock);

impl Clock for SlowClock {
    fn now(&self) -> Timestamp {
        // It works: others have the rest of the machine, and not the lock.
        let began = Instant::now();
        while began.elapsed() < HOG_HOLDS {
            std::thread::yield_now();
        }
        self.0.now()
    }

    fn steady(&self) -> Duration {
        self.0.steady()
    }

    fn machine_run(&self) -> i64 {
        self.0.machine_run()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_back_to_back() {
    let Some(path) = std::env::var_os(HOG_FILE) else { return };
    let mut options = Options::new(path);
    options.clock = Arc::new(SlowClock(ManualClock::at(NOW)));
    options.busy_timeout = Duration::from_secs(60);
    let store = Arc::new(SqliteStore::open(options).unwrap());
    let next = Arc::new(AtomicI64::new(1));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..HOG_CALLERS {
        let (store, next) = (store.clone(), next.clone());
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number > HOG_TRANSACTIONS_MAX {
                    return;
                }
                let bytes = bytes::Bytes::copy_from_slice(&number.to_be_bytes());
                let piece = |index| Piece { id: id(1), index, bytes: bytes.clone() };
                store.payload_put((0..HOG_PIECES).map(piece).collect()).await.unwrap();
            }
        });
    }
    callers.join_all().await;
}

/// A process that is killed when the test ends.
struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// About how many transactions the hog has committed; its callers may overtake each other.
fn transactions(look: &Connection) -> i64 {
    let newest = "SELECT data FROM piece WHERE id = 1 AND position = 0";
    let newest: Option<Vec<u8>> = look.query_row(newest, [], |row| row.get(0)).optional().unwrap();
    newest.map_or(0, |bytes| i64::from_be_bytes(bytes.try_into().unwrap()))
}

fn store(path: &Path, busy_timeout: Duration) -> SqliteStore {
    let mut options = common::options(path);
    options.busy_timeout = busy_timeout;
    SqliteStore::open(options).unwrap()
}

/// Waits until the hog is writing, and not just pausing.
async fn hog_writes(look: &Connection) {
    let written = transactions(look);
    let writes = async {
        while transactions(look) < written + 2 {
            tokio::task::yield_now().await;
        }
    };
    in_time("the hog writes", writes).await;
}

/// From the moment at which a renewal waits, the other daemon begins no further transaction.
#[tokio::test]
async fn renewals_are_next_though_another_daemon_writes_back_to_back() {
    const ROUNDS: usize = 15;
    /// The transaction that was already running, and callers of the hog that overtake each other.
    const TURNS_MAX: i64 = 1 + HOG_CALLERS as i64;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = store(&path, PATIENCE);
    let lease = Duration::from_secs(10);
    let grant = store.sysid_reserve(SysidReserve { wanted: None, lease }).await.unwrap();
    store.job_insert(insert(vec![job(1)], Durability::Relaxed)).await.unwrap();
    let claimed = claim(&store, 1).await.remove(0);
    let leases = vec![LeaseRef::of(&claimed.job).unwrap()];
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_back_to_back"])
        .env(HOG_FILE, &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _hog = Hog(child);
    let look = Connection::open(&path).unwrap();
    let (mut of_sysids, mut of_leases) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        hog_writes(&look).await;
        let before = transactions(&look);
        let renew = SysidRenew { grant, lease, id_newest: None, report: None };
        store.sysid_renew(renew).await.unwrap();
        of_sysids.push(transactions(&look) - before);

        hog_writes(&look).await;
        let before = transactions(&look);
        let renew = Renew { leases: leases.clone(), hold: Some(lease) };
        assert_eq!(store.job_renew(renew).await.unwrap(), []);
        of_leases.push(transactions(&look) - before);
    }
    for (what, mut turns) in [("sysids", of_sysids), ("leases", of_leases)] {
        turns.sort_unstable();
        // A round in which this process was not scheduled says nothing.
        let median = turns[ROUNDS / 2];
        assert!(
            median <= TURNS_MAX,
            "transactions of the hog during renewals of {what}: {turns:?}"
        );
    }
}

/// A daemon that was suspended while it held the turnstile delays the others once and never blocks
/// them.
#[tokio::test]
async fn a_turn_that_is_never_given_up_does_not_stop_others() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = store(&path, Duration::from_millis(50));
    store.job_insert(insert(vec![job(1)], Durability::Relaxed)).await.unwrap();
    let stopped = File::open(path.with_extension("db-wal")).unwrap();
    stopped.lock().unwrap();
    for number in 2..=30 {
        store.job_insert(insert(vec![job(number)], Durability::Relaxed)).await.unwrap();
    }
    drop(stopped);
    store.job_insert(insert(vec![job(31)], Durability::Relaxed)).await.unwrap();
    store.close().await;
}
