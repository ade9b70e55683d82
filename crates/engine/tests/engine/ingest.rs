//! Ingest continues, whatever is slow, lost or unreadable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use windlass_core::edit::{Decide, Decision, Target};
use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::{AddOptions, JobId, State, TypeKey};
use windlass_engine::api::{AddJob, AddPayload, IdempotencyKey};
use windlass_test_kit::wait::{eventually, in_time, pause};

use crate::fake::{Daemon, SettableClock, jobs, key};
use crate::{PATIENCE, ended, wish};

/// Longer than any lease or wait.
const AGES: Duration = Duration::from_secs(3600);

pub async fn large(daemon: &Daemon, bytes: usize) -> AddJob {
    let mut spool = daemon.engine.spool().await.unwrap();
    spool.write(Bytes::from(vec![b'x'; bytes])).await.unwrap();
    let payload = AddPayload::Spooled(spool.finish().await.unwrap());
    AddJob { payload, options: AddOptions::default() }
}

async fn add_large(daemon: &Daemon, key: &TypeKey, bytes: usize) -> JobId {
    let job = large(daemon, bytes).await;
    daemon.engine.add(key, vec![job], None).await.unwrap().ids[0]
}

async fn add_small(daemon: &Daemon, key: &TypeKey) -> JobId {
    daemon.engine.add(key, jobs(&["x"]), None).await.unwrap().ids[0]
}

async fn is_in(store: &MemoryStore, key: &TypeKey, id: JobId) -> bool {
    store.job_get(&key.tenant, id).await.unwrap().is_some()
}

async fn comes_to(store: &MemoryStore, key: &TypeKey, id: JobId) {
    let coming = async {
        while !is_in(store, key, id).await {
            pause().await;
        }
    };
    in_time("the job comes to the store", coming).await;
}

/// Returns when the whole journal has been read.
async fn all_read(daemon: &Daemon) {
    let reading = async {
        while daemon.engine.status().await.journal.waiting > 0 {
            pause().await;
        }
    };
    in_time("the journal is read", reading).await;
}

async fn insert_is_held(store: &MemoryStore) {
    eventually("an insert is held", || store.is_insert_held().then_some(())).await;
}

/// More jobs than fit into one batch, the first of them with or without a large payload.
#[tokio::test]
async fn a_batch_that_takes_ages_does_not_stop_those_behind_it() {
    const JOBS: usize = 5000;
    for has_large in [false, true] {
        let clock = Arc::new(SettableClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let data = tempfile::tempdir().unwrap();
        let daemon = Daemon::start_with(data, store.clone(), clock.clone(), |_| {}).await;
        let t = key("acme", "t");
        store.hold_inserts(true);
        add_small(&daemon, &t).await;
        insert_is_held(&store).await;
        let mut many = jobs(&["x"; JOBS]);
        if has_large {
            many[0] = large(&daemon, 2_000_000).await;
        }
        let ids = daemon.engine.add(&t, many, None).await.unwrap().ids;
        store.let_one_insert();
        insert_is_held(&store).await;
        clock.pass(AGES);
        store.hold_inserts(false);
        comes_to(&store, &t, ids[JOBS - 1]).await;
        all_read(&daemon).await;
        assert_eq!(daemon.engine.types(&t.tenant).await.unwrap()[0].ready, JOBS as u64 + 1);
    }
}

#[tokio::test]
async fn a_job_that_was_removed_does_not_come_back_after_a_batch_that_took_ages() {
    let clock = Arc::new(SettableClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let data = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_with(data, store.clone(), clock.clone(), |_| {}).await;
    let t = key("acme", "t");
    store.hold_inserts(true);
    let removed = add_small(&daemon, &t).await;
    insert_is_held(&store).await;
    clock.pass(AGES);
    store.let_one_insert();
    comes_to(&store, &t, removed).await;
    store.job_delete(&t.tenant, removed).await.unwrap();
    store.hold_inserts(false);
    let behind = add_small(&daemon, &t).await;
    comes_to(&store, &t, behind).await;
    assert!(!is_in(&store, &t, removed).await);
}

/// The store decides the second add itself, so it has the second job before the first.
#[tokio::test]
async fn a_change_of_a_job_that_is_in_the_store_does_not_wait_for_the_journal() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let (engine, t) = (&daemon.engine, key("acme", "t"));
    store.hold_inserts(true);
    let behind = add_small(&daemon, &t).await;
    let mut unique = jobs(&["x"]);
    unique[0].options.unique = Some("k".into());
    let there = engine.add(&t, unique, None).await.unwrap().ids[0];
    let newer = add_small(&daemon, &t).await;
    assert!(behind < there && there < newer);

    engine.job_cancel(&t.tenant, there).await.unwrap();
    engine.job_retry(&t.tenant, there).await.unwrap();
    assert!(engine.full_job(&t.tenant, there).await.unwrap().is_some());
    let nothing: Decide = Arc::new(|_, seen, _| {
        assert!(seen.job.is_some());
        Ok(Decision { edits: Vec::new(), id: None })
    });
    engine.decide(&t.tenant, vec![Target::Job(there)], nothing.clone()).await.unwrap();
    let claimed = engine.claim(wish(&t, Duration::ZERO)).await.unwrap();
    assert_eq!(claimed[0].job.id, there);
    let mut child = jobs(&["x"]);
    child[0].options.parent = Some(there);
    engine.add(&t, child, None).await.unwrap();

    // One that is in the journal is waited for.
    let together = vec![Target::Job(there), Target::Job(behind)];
    let mut deciding = Box::pin(engine.decide(&t.tenant, together, nothing));
    let mut cancelling = Box::pin(engine.job_cancel(&t.tenant, behind));
    assert!(futures_util::poll!(&mut deciding).is_pending());
    assert!(futures_util::poll!(&mut cancelling).is_pending());
    store.hold_inserts(false);
    in_time("both are in the store", deciding).await.unwrap();
    in_time("the job is cancelled", cancelling).await.unwrap();
    assert_eq!(ended(&daemon, &t, behind).await, State::Cancelled);
}

/// The files of large payloads.
pub fn payload_files(data: &Path) -> BTreeSet<PathBuf> {
    data.join("payload").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A problem with a payload file.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Gone,
    Short,
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_fails_its_own_job_alone() {
    for fault in [Fault::Gone, Fault::Short] {
        let data = tempfile::tempdir().unwrap();
        let data_dir = data.path().to_owned();
        let store = Arc::new(MemoryStore::default());
        let daemon = Daemon::start_in(data, store.clone(), |_| {}).await;
        let t = key("acme", "t");
        store.hold_inserts(true);
        // In the held batch, so that later batches find a working store.
        let first = add_small(&daemon, &t).await;
        insert_is_held(&store).await;
        // All others are in one batch.
        let before = add_large(&daemon, &t, 2_000_000).await;
        let earlier = payload_files(&data_dir);
        let unreadable = add_large(&daemon, &t, 2_000_000).await;
        let file = payload_files(&data_dir).difference(&earlier).next().unwrap().clone();
        match fault {
            Fault::Gone => std::fs::remove_file(&file).unwrap(),
            Fault::Short => std::fs::write(&file, "half of it").unwrap(),
        }
        let readable = add_large(&daemon, &t, 2_000_000).await;
        let behind = add_small(&daemon, &t).await;
        store.hold_inserts(false);

        assert_eq!(ended(&daemon, &t, unreadable).await, State::Failed, "{fault:?}");
        let log = daemon.engine.job_log(&t.tenant, unreadable).await.unwrap();
        let log = log[0].log.to_string();
        assert!(log.starts_with("[windlass] its payload cannot be read: "), "{log}");
        let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
        let pulled: Vec<JobId> = pulled.iter().map(|pulled| pulled.job.id).collect();
        assert_eq!(pulled, [first, before, readable, behind], "{fault:?}");
        let name = file.file_name().unwrap().to_str().unwrap();
        let aside = std::fs::read(file.with_file_name(format!("unreadable-{name}"))).ok();
        let left = matches!(fault, Fault::Short).then(|| b"half of it".to_vec());
        assert_eq!(aside, left, "what is left of it stays");
    }
}

/// There is no polling here.
#[tokio::test]
async fn jobs_of_a_batch_whose_answer_was_lost_reach_those_who_wait() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |options| {
        (options.poll_min, options.poll_max) = (AGES, AGES);
    })
    .await;
    let t = key("acme", "t");
    let engine = daemon.engine.clone();
    let waiting = tokio::spawn({
        let wish = wish(&t, PATIENCE);
        async move { engine.claim(wish).await }
    });
    store.lose_answers(1);
    let id = add_small(&daemon, &t).await;
    let pulled = waiting.await.unwrap().unwrap();
    assert_eq!(pulled.iter().map(|pulled| pulled.job.id).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn a_key_of_a_batch_whose_answer_was_lost_is_answered_by_the_store() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let note = || Some(IdempotencyKey { key: "k".into(), fingerprint: 7 });
    let add = async |daemon: &Daemon| daemon.engine.add(&t, jobs(&["x"]), note()).await.unwrap();
    let daemons = [
        Daemon::start_on(store.clone(), |_| {}).await,
        Daemon::start_on(store.clone(), |_| {}).await,
    ];
    // Both accept the add while the store is away.
    store.set_available(false);
    let taken = [add(&daemons[0]).await.ids[0], add(&daemons[1]).await.ids[0]];
    store.lose_answers(2);
    store.set_available(true);
    for daemon in &daemons {
        all_read(daemon).await;
    }
    let mut runs = Vec::new();
    for id in taken {
        let job = store.job_get(&t.tenant, id).await.unwrap().unwrap();
        runs.extend((job.state == State::Queued).then_some(id));
    }
    assert_eq!(runs.len(), 1);
    for daemon in &daemons {
        let again = add(daemon).await;
        assert_eq!((&again.ids, again.repeated), (&runs, true));
    }
}
