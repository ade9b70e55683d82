//! Keys that another daemon has made or revoked.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::key::{KeyText, NewKey, Owner, Role};
use windlass_core::memory::MemoryStore;
use windlass_core::secret::MemoryKeys;
use windlass_core::store::prelude::*;
use windlass_core::time::SystemClock;
use windlass_engine::api::KeyRefusal;
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Options, Parts, RealDisk};

use crate::fake::FakeRunner;

/// What is promised: a key is in force, and revoked, on every daemon within this time.
const IN_FORCE: Duration = Duration::from_secs(1);
/// Turns of other tasks. The store of this test answers at once.
const TURNS: usize = 1_000;

/// Its time is that of the test, which passes only as the test says.
async fn start(store: Arc<MemoryStore>, options: Options) -> Engine {
    let parts = Parts {
        store,
        runner: Arc::new(FakeRunner::default()),
        clock: Arc::new(SystemClock),
        disk: Arc::new(RealDisk),
        seal_keys: Arc::new(MemoryKeys::default()),
    };
    Engine::start(parts, options, Arc::new(Metrics::default())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_is_in_force_and_revoked_on_other_daemons_within_a_second() {
    let (store, data) = (Arc::new(MemoryStore::default()), tempfile::tempdir().unwrap());
    let engine = start(store.clone(), Options::new(data.path().to_owned())).await;
    let within_a_second = async || {
        tokio::time::advance(IN_FORCE).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    };
    for _ in 0..10 {
        let text = KeyText::random().unwrap();
        let owner = Owner { role: Role::Admin, tenant: None, name: String::new() };
        let new = NewKey { id: text.id(), digest: text.digest(), owner, lifetime: None };
        let check = || engine.key_check(&text.reveal());
        store.key_put(new).await.unwrap();
        assert_eq!(check(), Err(KeyRefusal::Unknown), "the daemon has its own copy");
        within_a_second().await;
        assert!(check().is_ok());
        store.key_revoke(None, text.id()).await.unwrap();
        assert!(check().is_ok(), "the daemon has its own copy");
        within_a_second().await;
        assert!(matches!(check(), Err(KeyRefusal::Revoked(_))), "{:?}", check());
    }
    engine.shutdown().await.unwrap();
}
