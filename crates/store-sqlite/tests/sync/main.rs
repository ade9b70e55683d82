//! A failed sync: what was written before it may be lost, although a later sync succeeds. So
//! nothing more is acknowledged until the file has been reopened and its log rewritten.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod vfs;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use windlass_core::job::Token;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Error, SqlAnswer, SqlAsk};
use windlass_core::{NewJob, Payload, Store, Sysid};
use windlass_store_sqlite::SqliteStore;

use common::{assert_consistent, claim, id, insert, job, tenant};

struct File {
    path: PathBuf,
    _directory: TempDir,
}

impl File {
    fn new() -> File {
        vfs::install();
        let directory = TempDir::new().unwrap();
        let path = directory.path().canonicalize().unwrap().join("jobs.db");
        File { path, _directory: directory }
    }

    fn open(&self) -> Result<SqliteStore, Error> {
        SqliteStore::open(common::options(&self.path))
    }

    fn log(&self) -> PathBuf {
        self.path.with_extension("db-wal")
    }
}

#[track_caller]
fn assert_doubted<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let told = matches!(&answer, Err(Error::Unavailable(why)) if why.contains("a sync failed"));
    assert!(told, "{answer:?}");
}

async fn add(store: &SqliteStore, number: i64, durability: Durability) -> Result<(), Error> {
    store.job_insert(insert(vec![job(number)], durability)).await.map(drop)
}

/// Writes are refused, and reads still work.
async fn assert_stopped(store: &SqliteStore) {
    for _ in 0..2 {
        assert_doubted(store.flush().await);
        assert_doubted(add(store, 70, Durability::Synced).await);
        assert_doubted(add(store, 71, Durability::Relaxed).await);
        assert_doubted(store.ping().await);
    }
    assert!(store.job_get(&tenant(), id(1)).await.unwrap().is_some(), "reads go on");
}

/// A restart rewrites the log, and then writes are accepted again.
async fn assert_mended_by_a_restart(file: &File, store: SqliteStore) {
    store.close().await;
    assert!(size(&file.log()) > 0, "what is in doubt is not moved into the file");
    let syncs = vfs::syncs(&file.path);
    let store = file.open().unwrap();
    assert_eq!(size(&file.log()), 0, "the log is in the file");
    assert!(vfs::syncs(&file.path) > syncs, "and the file is synced");
    store.flush().await.unwrap();
    add(&store, 72, Durability::Synced).await.unwrap();
    store.ping().await.unwrap();
    assert!(store.job_get(&tenant(), id(1)).await.unwrap().is_some());
    store.close().await;
    assert_consistent(&file.path);
    let left: Vec<_> = std::fs::read_dir(file.path.parent().unwrap()).unwrap().collect();
    assert!(!left.iter().flatten().any(|f| f.file_name().to_string_lossy().contains("doubt")));
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_promised_until_a_restart() {
    let file = File::new();
    let store = file.open().unwrap();
    add(&store, 1, Durability::Synced).await.unwrap();
    add(&store, 2, Durability::Relaxed).await.unwrap();
    vfs::fail_syncs(&file.log(), 1);
    assert_doubted(store.flush().await);
    assert_eq!(vfs::are_left(&file.log()), 0, "the disk would sync again");
    assert_stopped(&store).await;
    assert_mended_by_a_restart(&file, store).await;
}

/// Writes so much, unsynced, that there is at least one checkpoint.
async fn write_past_a_checkpoint(store: &SqliteStore) -> bool {
    const MEGABYTE: usize = 1024 * 1024;
    for number in 100..160 {
        let payload = Payload::Inline(vec![b'x'; MEGABYTE].into());
        let large = NewJob { payload, ..job(number) };
        if store.job_insert(insert(vec![large], Durability::Relaxed)).await.is_err() {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn a_failed_sync_while_the_log_is_moved_counts_too() {
    for of_log in [true, false] {
        let file = File::new();
        let failing = if of_log { file.log() } else { file.path.clone() };
        let store = file.open().unwrap();
        add(&store, 1, Durability::Synced).await.unwrap();
        vfs::fail_syncs(&failing, 1);
        assert!(!write_past_a_checkpoint(&store).await, "it stops when it notices");
        assert_eq!(vfs::are_left(&failing), 0);
        assert_stopped(&store).await;
        assert_mended_by_a_restart(&file, store).await;
    }
}

#[tokio::test]
async fn other_daemons_on_the_file_stop_too_and_new_ones_do_not_start() {
    let file = File::new();
    let (one, other) = (file.open().unwrap(), file.open().unwrap());
    add(&one, 1, Durability::Synced).await.unwrap();
    add(&other, 2, Durability::Synced).await.unwrap();
    vfs::fail_syncs(&file.log(), 1);
    assert_doubted(one.flush().await);
    assert_stopped(&one).await;
    assert_doubted(other.flush().await);
    assert_stopped(&other).await;
    one.close().await;
    assert_doubted(file.open().map(drop));
    assert_stopped(&other).await;
    assert_mended_by_a_restart(&file, other).await;
}

#[tokio::test]
async fn a_query_that_changes_jobs_promises_nothing_either() {
    let file = File::new();
    let store = file.open().unwrap();
    add(&store, 1, Durability::Synced).await.unwrap();
    let ask = |text: &str| SqlAsk {
        tenant: tenant(),
        text: text.into(),
        without_where: false,
        patience: Duration::from_secs(60),
        owner: Sysid::new(1).unwrap(),
        token: Token(1),
        keep: Duration::ZERO,
        ids: Arc::new(|| None),
    };
    let change = "UPDATE jobs SET priority = 600 WHERE jobID = 1";
    assert!(matches!(store.query(ask(change)).await, Ok(SqlAnswer::Wrote { changed: 1, .. })));
    vfs::fail_syncs(&file.log(), 1);
    assert_doubted(store.query(ask(change)).await);
    assert_doubted(store.query(ask(change)).await);
    assert!(matches!(store.query(ask("SELECT name FROM jobs")).await, Ok(SqlAnswer::Rows { .. })));
    assert_stopped(&store).await;
    assert_mended_by_a_restart(&file, store).await;
}

/// A process that died may have seen a failed sync and not lived to mark the file.
#[tokio::test]
async fn the_first_daemon_after_a_crash_writes_the_log_again() {
    let file = File::new();
    let store = file.open().unwrap();
    add(&store, 1, Durability::Synced).await.unwrap();
    claim(&store, 1).await;
    let left = File::new();
    std::fs::copy(&file.path, &left.path).unwrap();
    std::fs::copy(file.log(), left.log()).unwrap();
    store.close().await;
    let store = left.open().unwrap();
    assert_eq!(size(&left.log()), 0);
    assert!(vfs::syncs(&left.path) > 0);
    assert!(store.job_get(&tenant(), id(1)).await.unwrap().unwrap().lease.is_some());
}

/// As after a power cut. Each wants the file to itself for a moment, and the others open it between
/// two such moments.
#[tokio::test]
async fn daemons_that_start_at_once_after_a_crash_all_start() {
    let file = File::new();
    let store = file.open().unwrap();
    add(&store, 1, Durability::Synced).await.unwrap();
    for round in 0..50 {
        let left = File::new();
        std::fs::copy(&file.path, &left.path).unwrap();
        std::fs::copy(file.log(), left.log()).unwrap();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            let open = || {
                start.wait();
                left.open().map(drop)
            };
            let opened: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            for opened in opened {
                let opened = opened.join().unwrap();
                assert!(opened.is_ok(), "round {round}: {opened:?}");
            }
        });
    }
    store.close().await;
}
