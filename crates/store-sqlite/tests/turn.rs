//! Daemons take turns at the file: one that writes back to back does not block the others.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Piece, SysidRenew, SysidReserve};
use windlass_store_sqlite::SqliteStore;

use common::{id, insert, job};

/// Set for the child process of the test below; without it, the test of the child does nothing.
const HOG_FILE: &str = "WINDLASS_TEST_HOG_FILE";
/// Callers of the hog: while one transaction runs, others already wait for its writer.
const HOG_CALLERS: usize = 4;
/// Pieces in one call: so many that no two calls share a transaction.
const HOG_PIECES: u32 = 40;
/// So large that a transaction takes much longer than a process waits for its turn.
const HOG_PIECE_BYTES: usize = 128 * 1024;
/// A child that is not killed ends by itself after so many.
const HOG_TRANSACTIONS_MAX: i64 = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_back_to_back() {
    let Some(path) = std::env::var_os(HOG_FILE) else { return };
    let mut options = common::options(path);
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
                let mut bytes = number.to_be_bytes().to_vec();
                bytes.resize(HOG_PIECE_BYTES, 0);
                let bytes = bytes::Bytes::from(bytes);
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
    let newest = "SELECT substr(data, 1, 8) FROM piece WHERE id = 1 AND position = 0";
    let newest: Option<Vec<u8>> = look.query_row(newest, [], |row| row.get(0)).optional().unwrap();
    newest.map_or(0, |bytes| i64::from_be_bytes(bytes.try_into().unwrap()))
}

fn store(path: &Path, busy_timeout: Duration) -> SqliteStore {
    let mut options = common::options(path);
    options.busy_timeout = busy_timeout;
    SqliteStore::open(options).unwrap()
}

/// What a daemon does to write: it takes the turnstile, and then waits for SQLite's lock. From then
/// on, the other daemon begins no further transaction.
#[tokio::test]
async fn whoever_waits_is_next_though_another_daemon_writes_back_to_back() {
    const ROUNDS: usize = 30;
    /// The transaction that was already running, and callers of the hog that overtake each other.
    const TURNS_MAX: i64 = 1 + HOG_CALLERS as i64;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = store(&path, Duration::from_secs(60));
    let lease = Duration::from_secs(10);
    let grant = store.sysid_reserve(SysidReserve { wanted: None, lease }).await.unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_back_to_back"])
        .env(HOG_FILE, &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _hog = Hog(child);
    let (look, waiting) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
    waiting.busy_timeout(Duration::from_secs(60)).unwrap();
    let turnstile = File::open(path.with_extension("db-wal")).unwrap();
    let mut turns = Vec::new();
    for _ in 0..ROUNDS {
        // The hog is writing, and not just pausing.
        let written = transactions(&look);
        while transactions(&look) < written + 3 {
            tokio::task::yield_now().await;
        }
        turnstile.lock().unwrap();
        let before = transactions(&look);
        waiting.execute_batch("BEGIN IMMEDIATE").unwrap();
        turns.push(transactions(&look) - before);
        turnstile.unlock().unwrap();
        waiting.execute_batch("ROLLBACK").unwrap();
        store
            .sysid_renew(SysidRenew { grant, lease, id_newest: None, report: None })
            .await
            .unwrap();
    }
    turns.sort();
    let most = turns[ROUNDS - 1];
    assert!(most <= TURNS_MAX, "transactions of the hog while another one waited: {turns:?}");
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
