//! The store on PostgreSQL passes the suite, as every store must.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;
mod front;
mod lock;
mod machine;

use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;

use windlass_core::Store;
use windlass_core::store::Error;
use windlass_core::time::ManualClock;
use windlass_store_postgres::{Options, PostgresStore};
use windlass_store_test::Harness;
use windlass_test_kit::wait::{in_time, pause};

use common::Lent;

/// Each store has its own schema; a second daemon opens the same schema.
struct Postgres {
    clock: Arc<ManualClock>,
    server: Lent,
    /// Of the newest fresh store.
    schema: Mutex<String>,
    /// Everything that was opened and may still be in use.
    opened: Mutex<Vec<Weak<PostgresStore>>>,
}

impl Postgres {
    fn new() -> Postgres {
        let clock = windlass_store_test::clock();
        Postgres { clock, server: Lent::new(), schema: Mutex::default(), opened: Mutex::default() }
    }

    async fn open(&self) -> Arc<dyn Store> {
        let options = Options {
            schema: self.schema.lock().unwrap().clone(),
            connections: 4,
            // Bounds of queues are raised as often as possible.
            passed_max: 1,
            clock: self.clock.clone(),
            server_clock: Some(self.clock.clone()),
            ..Options::new(self.server.url())
        };
        let store = Arc::new(PostgresStore::open(options).await.unwrap());
        self.opened.lock().unwrap().push(Arc::downgrade(&store));
        store
    }
}

#[async_trait]
impl Harness for Postgres {
    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        *self.schema.lock().unwrap() = self.server.new_schema();
        self.open().await
    }

    async fn second(&self) -> Option<Arc<dyn Store>> {
        Some(self.open().await)
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        store.close().await;
        Some(self.open().await)
    }

    /// The server crashes and recovers. The store lives on, and so do those of other daemons.
    async fn undo_relaxed(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        self.server.crash();
        let opened = self.opened.lock().unwrap().clone();
        for store in opened.iter().filter_map(Weak::upgrade) {
            let answers = async {
                while let Err(Error::Unavailable(why)) = store.ping().await {
                    if &*why == "it was closed" {
                        break;
                    }
                    pause().await;
                }
            };
            in_time("the store answers", answers).await;
        }
        Some(store)
    }
}

windlass_store_test::conformance!(Postgres::new());
