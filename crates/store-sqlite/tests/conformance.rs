//! The embedded store passes the suite, as every store must.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;

use windlass_core::Store;
use windlass_core::time::ManualClock;
use windlass_store_sqlite::{Options, SqliteStore};
use windlass_store_test::Harness;

/// Each store has its own file; a second daemon opens the same file.
struct Sqlite {
    clock: Arc<ManualClock>,
    directory: TempDir,
    files: Mutex<usize>,
    /// Length of the newest file's log after its last synced commit.
    synced_bytes: Arc<AtomicU64>,
}

impl Sqlite {
    fn new() -> Sqlite {
        let (directory, synced_bytes) = (TempDir::new().unwrap(), Arc::default());
        let clock = windlass_store_test::clock();
        Sqlite { clock, directory, files: Mutex::new(0), synced_bytes }
    }

    fn newest(&self) -> PathBuf {
        let number = *self.files.lock().unwrap();
        self.directory.path().join(format!("{number}.db"))
    }

    /// The path of a file that does not exist yet, or whose log is empty once it is opened.
    fn next_file(&self) -> PathBuf {
        *self.files.lock().unwrap() += 1;
        self.synced_bytes.store(0, Ordering::SeqCst);
        self.newest()
    }

    fn open(&self) -> Arc<dyn Store> {
        let path = self.newest();
        let (log, synced_bytes) = (log_of(&path), self.synced_bytes.clone());
        let on_commit = move |_, synced: bool| {
            if synced {
                synced_bytes.store(log.metadata().unwrap().len(), Ordering::SeqCst);
            }
        };
        let on_commit = Some(Arc::new(on_commit) as windlass_store_sqlite::OnCommit);
        Arc::new(
            SqliteStore::open(Options {
                on_commit,
                clock: self.clock.clone(),
                ..Options::new(path)
            })
            .unwrap(),
        )
    }
}

/// The write-ahead log of a file.
fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

#[async_trait]
impl Harness for Sqlite {
    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        self.next_file();
        self.open()
    }

    async fn second(&self) -> Option<Arc<dyn Store>> {
        Some(self.open())
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        store.close().await;
        // The last daemon to close moves the log into the file.
        if !log_of(&self.newest()).exists() {
            self.synced_bytes.store(0, Ordering::SeqCst);
        }
        Some(self.open())
    }

    /// The least that a power cut leaves: the file, and the log as far as it was synced. That holds
    /// as long as there was no checkpoint; no case is large enough for one.
    async fn undo_relaxed(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let (before, synced_bytes) = (self.newest(), self.synced_bytes.load(Ordering::SeqCst));
        let after = self.next_file();
        std::fs::copy(&before, &after).unwrap();
        let log = std::fs::read(log_of(&before)).unwrap();
        std::fs::write(log_of(&after), &log[..synced_bytes as usize]).unwrap();
        store.close().await;
        Some(self.open())
    }
}

windlass_store_test::conformance!(Sqlite::new());

#[tokio::test]
async fn the_counters_agree_with_the_rows_after_a_random_history() {
    const SEEDS: std::ops::Range<u64> = 100..103;
    const STEPS: u32 = 200;
    let harness = Sqlite::new();
    for seed in SEEDS {
        windlass_store_test::model::run(&harness, seed, STEPS).await;
        common::assert_consistent(&harness.newest());
    }
}
