//! A store that forgets what it had not synced, while the daemon lives on: accepted jobs are still
//! in the journal and are ingested again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass_core::memory::MemoryStore;
use windlass_core::{JobId, TypeKey};
use windlass_test_kit::wait::eventually;

use crate::fake::{Daemon, jobs, key};
use crate::{PATIENCE, wish};

/// So short that a beat soon notices that the store is away.
const LEASE: Duration = Duration::from_millis(300);

/// Adds jobs and returns when the store has them.
async fn added(daemon: &Daemon, key: &TypeKey, count: usize) -> Vec<JobId> {
    let added = daemon.engine.add(key, jobs(&vec!["x"; count]), None).await.unwrap();
    daemon.engine.types(&key.tenant).await.unwrap();
    added.ids
}

/// All waiting jobs, each once.
async fn claimed(daemon: &Daemon, key: &TypeKey, count: usize) -> HashSet<JobId> {
    let mut ids = HashSet::new();
    while ids.len() < count {
        let pulled = daemon.engine.claim(wish(key, PATIENCE)).await.unwrap();
        assert!(!pulled.is_empty(), "{} of {count} jobs are there", ids.len());
        let new = pulled.iter().filter(|pulled| ids.insert(pulled.job.id)).count();
        assert_eq!(new, pulled.len(), "a job is handed out once");
    }
    ids
}

#[tokio::test]
async fn what_a_store_forgot_is_inserted_again_with_the_next_batch() {
    const ROUNDS: usize = 5;
    const JOBS: usize = 7;
    let store = Arc::new(MemoryStore::undoable(false, Arc::new(windlass_core::time::SystemClock)));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let mut ids = HashSet::new();
    for _ in 0..ROUNDS {
        ids.extend(added(&daemon, &t, JOBS).await);
        store.undo_relaxed();
    }
    ids.extend(added(&daemon, &t, JOBS).await);
    for id in &ids {
        daemon.engine.job(&t.tenant, *id).await.unwrap();
    }
    assert_eq!(claimed(&daemon, &t, ids.len()).await, ids);
}

/// No later batch would reveal the loss, so inserts into such a store are synced.
#[tokio::test]
async fn a_store_that_forgets_loses_nothing_that_was_accepted() {
    const JOBS: usize = 7;
    let store = Arc::new(MemoryStore::undoable(true, Arc::new(windlass_core::time::SystemClock)));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let ids: HashSet<JobId> = added(&daemon, &t, JOBS).await.into_iter().collect();
    store.undo_relaxed();
    assert_eq!(claimed(&daemon, &t, JOBS).await, ids);
}

#[tokio::test]
async fn a_journal_that_is_taken_over_is_removed_only_when_the_store_keeps_it() {
    const JOBS: usize = 50;
    let store = Arc::new(MemoryStore::undoable(false, Arc::new(windlass_core::time::SystemClock)));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let ids: HashSet<JobId> = added(&daemon, &t, JOBS).await.into_iter().collect();
    let data = daemon.abandon().await;
    store.undo_relaxed();
    let daemon = Daemon::start_in(data, store.clone(), |_| {}).await;
    store.undo_relaxed();
    assert_eq!(claimed(&daemon, &t, JOBS).await, ids);
}

/// No batch follows that would notice, and no other add.
#[tokio::test]
async fn what_a_standby_lacks_comes_back_when_contact_does() {
    const JOBS: usize = 7;
    let clock = Arc::new(windlass_core::time::SystemClock);
    let store = Arc::new(MemoryStore::undoable(true, clock));
    let daemon = Daemon::start_on(store.clone(), |options| options.lease = LEASE).await;
    let t = key("acme", "t");
    let standby = store.standby();
    let ids: HashSet<JobId> = added(&daemon, &t, JOBS).await.into_iter().collect();
    let beats = Arc::new(AtomicUsize::new(0));
    store.set_hook({
        let beats = beats.clone();
        move |call| {
            let beat = usize::from(call == "sysid_renew");
            beats.fetch_add(beat, Ordering::SeqCst);
            async {}
        }
    });
    store.set_available(false);
    let before = beats.load(Ordering::SeqCst);
    // The second begins when the first has failed.
    let failed = || (beats.load(Ordering::SeqCst) >= before + 2).then_some(());
    eventually("a beat fails", failed).await;
    store.fail_over(standby);
    store.set_available(true);
    assert_eq!(claimed(&daemon, &t, JOBS).await, ids);
}

/// Contact was never lost, as far as the daemon knows.
#[tokio::test]
async fn what_a_standby_lacks_comes_back_after_a_while_in_any_case() {
    const JOBS: usize = 7;
    let clock = Arc::new(windlass_core::time::SystemClock);
    let store = Arc::new(MemoryStore::undoable(true, clock));
    let daemon = Daemon::start_on(store.clone(), |options| options.journal_check = LEASE).await;
    let t = key("acme", "t");
    let standby = store.standby();
    let ids: HashSet<JobId> = added(&daemon, &t, JOBS).await.into_iter().collect();
    store.fail_over(standby);
    assert_eq!(claimed(&daemon, &t, JOBS).await, ids);
}
