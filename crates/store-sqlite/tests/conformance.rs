//! The embedded store passes the suite, as every store must.

// Helpers of tests outside of test functions; clippy cannot tell.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;

use windlass_core::Store;
use windlass_store_sqlite::{Options, SqliteStore};
use windlass_store_test::Harness;

/// Each store has a file of its own; a second daemon opens the same file.
struct Sqlite {
    directory: TempDir,
    files: Mutex<usize>,
}

impl Sqlite {
    fn new() -> Sqlite {
        Sqlite { directory: TempDir::new().unwrap(), files: Mutex::new(0) }
    }

    fn newest(&self) -> PathBuf {
        let number = *self.files.lock().unwrap();
        self.directory.path().join(format!("{number}.db"))
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(Options::new(self.newest())).unwrap())
    }
}

#[async_trait]
impl Harness for Sqlite {
    async fn fresh(&self) -> Arc<dyn Store> {
        *self.files.lock().unwrap() += 1;
        self.open()
    }

    async fn second(&self) -> Option<Arc<dyn Store>> {
        Some(self.open())
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
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
