//! The reference store passes the suite, as every store must.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use windlass_core::Store;
use windlass_core::memory::MemoryStore;
use windlass_core::time::ManualClock;
use windlass_store_test::Harness;

/// Two daemons in one process share the store itself; nothing outlives it.
struct Memory {
    clock: Arc<ManualClock>,
    newest: Mutex<Option<Arc<MemoryStore>>>,
}

impl Memory {
    fn new() -> Memory {
        Memory { clock: windlass_store_test::clock(), newest: Mutex::default() }
    }

    fn newest(&self) -> MutexGuard<'_, Option<Arc<MemoryStore>>> {
        self.newest.lock().expect("no case panics while it holds the lock")
    }
}

#[async_trait]
impl Harness for Memory {
    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        let store = Arc::new(MemoryStore::undoable(true, self.clock.clone()));
        *self.newest() = Some(store.clone());
        store
    }

    async fn second(&self) -> Option<Arc<dyn Store>> {
        self.newest().clone().map(|store| store as Arc<dyn Store>)
    }

    async fn reopen(&self, _store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    async fn undo_relaxed(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        self.newest().as_ref().expect("a store was made").undo_relaxed();
        Some(store)
    }
}

windlass_store_test::conformance!(Memory::new());
