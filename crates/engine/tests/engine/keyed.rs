//! An Idempotency-Key means one add, whichever daemons it reaches and whatever happens to them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::{Semaphore, mpsc};
use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::{AddOptions, JobId, State, TypeKey};
use windlass_engine::Error;
use windlass_engine::api::{AddJob, AddPayload, Added, IdempotencyKey};
use windlass_test_kit::wait::{eventually, in_time, pause};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, ended, wish};

fn note(text: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { key: text.into(), fingerprint: 7 })
}

fn unique() -> Vec<AddJob> {
    let mut jobs = jobs(&["200"]);
    jobs[0].options = AddOptions { unique: Some("u".into()), ..AddOptions::default() };
    jobs
}

/// A job with a payload that arrives in pieces.
async fn large(daemon: &Daemon, payload: &Bytes) -> Vec<AddJob> {
    let mut spool = daemon.engine.spool().await.unwrap();
    spool.write(payload.clone()).await.unwrap();
    let payload = AddPayload::Spooled(spool.finish().await.unwrap());
    vec![AddJob { payload, options: AddOptions::default() }]
}

async fn add(daemon: &Daemon, key: &TypeKey, text: &str) -> Added {
    daemon.engine.add(key, jobs(&["x"]), note(text)).await.unwrap()
}

/// Two daemons on one store.
async fn two(store: &Arc<MemoryStore>) -> [Daemon; 2] {
    [Daemon::start_on(store.clone(), |_| {}).await, Daemon::start_on(store.clone(), |_| {}).await]
}

async fn ready(daemon: &Daemon, key: &TypeKey) -> u64 {
    let types = daemon.engine.types(&key.tenant).await.unwrap();
    types.iter().filter(|of| of.key == *key).map(|of| of.ready).sum()
}

/// Jobs of a type that are ready, and that are cancelled, in the store.
fn counts(store: &MemoryStore, key: &TypeKey) -> (u64, u64) {
    let stats = store.type_stats(Some(&key.tenant)).now_or_never().expect("it never waits");
    let stats = stats.unwrap().into_iter().find(|of| of.key == *key);
    stats.map_or((0, 0), |of| (of.ready, of.cancelled))
}

#[tokio::test]
async fn keys_sent_to_two_daemons_at_once_add_once() {
    const KEYS: usize = 50;
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemons = two(&store).await;
    for number in 0..KEYS {
        let text = format!("key {number}");
        let both = daemons.each_ref().map(|daemon| add(daemon, &t, &text));
        let [first, second] = both;
        let (first, second) = tokio::join!(first, second);
        assert_eq!(first.ids, second.ids, "{number}");
        assert!(first.repeated != second.repeated, "{number}");
    }
    assert_eq!(ready(&daemons[0], &t).await, KEYS as u64);
}

#[tokio::test]
async fn a_key_remembers_the_holder_of_a_unique_key_also_after_a_restart() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let holder = daemon.engine.add(&t, unique(), None).await.unwrap().ids;
    let first = daemon.engine.add(&t, unique(), note("k")).await.unwrap();
    assert_eq!((first.ids, first.repeated), (holder.clone(), false));
    let again = daemon.engine.add(&t, unique(), note("k")).await.unwrap();
    assert_eq!((again.ids, again.repeated), (holder.clone(), true));
    let data = daemon.abandon().await;
    let daemon = Daemon::start_in(data, store, |_| {}).await;
    let again = daemon.engine.add(&t, unique(), note("k")).await.unwrap();
    assert_eq!((again.ids, again.repeated), (holder, true));
}

/// Each daemon takes the add while it cannot ask the store; the store lets one of them run.
#[tokio::test]
async fn a_key_that_two_daemons_took_while_the_store_was_away_runs_once() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemons = two(&store).await;
    store.set_available(false);
    let mut added = Vec::new();
    for daemon in &daemons {
        let first = add(daemon, &t, "k").await;
        let again = add(daemon, &t, "k").await;
        assert_eq!((&again.ids, again.repeated, first.repeated), (&first.ids, true, false));
        added.push(first.ids[0]);
    }
    store.set_available(true);
    let pulled = daemons[0].engine.claim(wish(&t, PATIENCE)).await.unwrap();
    assert_eq!(pulled.len(), 1);
    let runs = pulled[0].job.id;
    let loser = added.iter().position(|id| *id != runs).unwrap();
    let view = daemons[loser].engine.job_wait(&t.tenant, added[loser], PATIENCE).await.unwrap();
    assert_eq!((view.job.state, view.job.attempt), (State::Cancelled, 0));
    assert_eq!(ready(&daemons[0], &t).await, 0);
    // From now on both answer with the job that runs.
    for daemon in &daemons {
        let again = add(daemon, &t, "k").await;
        assert_eq!((again.ids, again.repeated), (vec![runs], true));
    }
}

/// Such an add needs several batches, because it does not fit into one insert.
#[tokio::test]
async fn a_large_add_is_one_add_too() {
    const JOBS: usize = 10_001;
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemons = two(&store).await;
    let many = jobs(&vec!["x"; JOBS]);
    let first = daemons[0].engine.add(&t, many.clone(), note("up")).await.unwrap();
    let again = daemons[1].engine.add(&t, many.clone(), note("up")).await.unwrap();
    assert_eq!((first.ids.len(), &again.ids, again.repeated), (JOBS, &first.ids, true));
    assert_eq!(ready(&daemons[0], &t).await, JOBS as u64);

    store.set_available(false);
    for daemon in &daemons {
        assert!(!daemon.engine.add(&t, many.clone(), note("away")).await.unwrap().repeated);
    }
    store.set_available(true);
    let all = |(ready, cancelled): &(u64, u64)| ready + cancelled == 3 * JOBS as u64;
    let counted = || Some(counts(&store, &t)).filter(all);
    let counted = eventually("all are in the store", counted).await;
    assert_eq!(counted, (2 * JOBS as u64, JOBS as u64));
}

#[tokio::test]
async fn a_large_payload_may_have_a_key() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemons = two(&store).await;
    let payload = Bytes::from(vec![b'x'; 3 * 1024 * 1024]);
    let send = async |daemon: &Daemon, text: &str| {
        daemon.engine.add(&t, large(daemon, &payload).await, note(text)).await.unwrap()
    };
    let read = async |daemon: &Daemon, id: JobId| {
        let mut reader = daemon.engine.job_payload(&t.tenant, id).await.unwrap();
        let mut read = Vec::new();
        while let Some(piece) = reader.next().await.unwrap() {
            read.extend_from_slice(&piece);
        }
        read == payload
    };
    let first = send(&daemons[0], "up").await;
    let again = send(&daemons[1], "up").await;
    assert_eq!((&again.ids, again.repeated), (&first.ids, true));
    assert!(read(&daemons[1], first.ids[0]).await);
    store.set_available(false);
    let away = send(&daemons[0], "away").await;
    assert!(read(&daemons[0], away.ids[0]).await, "while it is in the journal");
    store.set_available(true);
    eventually("both are in the store", || (counts(&store, &t).0 == 2).then_some(())).await;
    assert!(read(&daemons[1], away.ids[0]).await);
}

#[tokio::test]
async fn an_add_that_only_the_store_can_decide_waits_for_it_with_a_key_as_without() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    store.set_available(false);
    for note in [None, note("k")] {
        let refused = daemon.engine.add(&t, unique(), note).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    store.set_available(true);
    assert!(!daemon.engine.add(&t, unique(), note("k")).await.unwrap().repeated);
}

/// Nothing but the announcement of the add can make the dispatcher look: it does not poll.
#[tokio::test]
async fn a_job_with_a_unique_key_starts_at_once_even_if_its_client_has_disconnected() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |options| {
        (options.poll_min, options.poll_max) = (2 * PATIENCE, 2 * PATIENCE);
    })
    .await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let earlier = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap();
    assert_eq!(ended(&daemon, &t, earlier.ids[0]).await, State::Finished);

    store.hold_add_answers(true);
    let adding = tokio::spawn({
        let (engine, t) = (daemon.engine.clone(), t.clone());
        async move { engine.add(&t, unique(), None).await }
    });
    let arrived = async {
        while store.id_newest().await.unwrap() <= Some(earlier.ids[0]) {
            pause().await;
        }
    };
    in_time("the store has the job", arrived).await;
    adding.abort();
    assert!(adding.await.unwrap_err().is_cancelled());
    store.hold_add_answers(false);

    let newest = store.id_newest().await.unwrap().unwrap();
    daemon.runner.started(newest).await;
    let accepted = "windlass_jobs_accepted_total{tenant=\"acme\",type=\"t\"} 2";
    let counted = async {
        while !daemon.engine.metrics_text().await.contains(accepted) {
            tokio::task::yield_now().await;
        }
    };
    in_time("the add is counted", counted).await;
}

/// The store carries the first add out, and does not answer.
#[tokio::test]
async fn a_store_that_hangs_does_not_hold_up_adds_with_a_key() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    // No beat tells the daemon that the store answers again: the insert has to.
    let daemon = Daemon::start_on(store.clone(), |options| options.lease = 10 * PATIENCE).await;
    store.hold_add_answers(true);
    store.hold_inserts(true);
    let taken = in_time("the first is accepted", add(&daemon, &t, "first")).await.ids;
    for text in ["second", "third"] {
        in_time("the next are accepted", add(&daemon, &t, text)).await;
    }
    assert_eq!(counts(&store, &t), (1, 0), "the store was asked for the first alone");
    store.hold_inserts(false);
    store.hold_add_answers(false);
    // What the store had carried out runs; what the journal brought is the same add.
    let counted = || Some(counts(&store, &t)).filter(|(ready, cancelled)| ready + cancelled == 4);
    assert_eq!(eventually("all are in the store", counted).await, (3, 1));
    let told = async {
        loop {
            let again = add(&daemon, &t, "first").await;
            if again.ids != taken {
                return again;
            }
            pause().await;
        }
    };
    let again = in_time("the daemon learns which add counts", told).await;
    assert!(again.repeated, "{again:?}");
    let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
    assert!(pulled.iter().any(|pulled| pulled.job.id == again.ids[0]));
}

/// Each call takes less time than a store that hangs, all of them together take more.
#[tokio::test(start_paused = true)]
async fn a_store_that_takes_long_for_a_large_payload_does_not_hang() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    store.hold_inserts(true);
    store.hold_beats(true);
    store.set_hook(async |call| {
        let ms = if call == "idempotency_get" { 3000 } else { 300 };
        tokio::time::advance(Duration::from_millis(ms)).await;
        // Who has waited too long notices it now.
        tokio::task::yield_now().await;
    });
    let jobs = large(&daemon, &Bytes::from(vec![b'x'; 8 * 1024 * 1024])).await;
    daemon.engine.add(&t, jobs, note("k")).await.unwrap();
    assert_eq!(counts(&store, &t), (1, 0), "the store has decided it");
    assert_eq!(daemon.engine.readiness().await.store, Ok(()));
}

/// Another daemon decides the key while the jobs of this add are on their way to the store.
#[tokio::test]
async fn a_large_add_that_comes_second_is_answered_with_the_ids_of_the_first() {
    const JOBS: usize = 10_001;
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemons = two(&store).await;
    store.hold_inserts(true);
    let second = tokio::spawn({
        let (engine, t) = (daemons[1].engine.clone(), t.clone());
        async move { engine.add(&t, jobs(&vec!["x"; JOBS]), note("k")).await.unwrap() }
    });
    eventually("the second is in its journal", || store.is_insert_held().then_some(())).await;
    let first = add(&daemons[0], &t, "k").await;
    store.hold_inserts(false);
    let second = second.await.unwrap();
    assert_eq!((second.ids.len(), second.repeated), (1, true));
    for daemon in &daemons {
        let again = add(daemon, &t, "k").await;
        assert_eq!((&again.ids, again.repeated), (&first.ids, true));
    }
    assert_eq!(second.ids, first.ids);
}

/// The store begins to hang after it was asked for the key: the add waits for its own ingest all
/// the same, so its answer is the store's.
#[tokio::test]
async fn a_large_add_waits_for_its_ingest_if_the_store_begins_to_hang_meanwhile() {
    const JOBS: usize = 10_001;
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    // No beat tells the daemon that the store answers.
    let start = || Daemon::start_on(store.clone(), |options| options.lease = 10 * PATIENCE);
    let daemons = [start().await, start().await];
    store.hold_inserts(true);
    store.hold_add_answers(true);
    let mut hangs = pin!(add(&daemons[1], &t, "hangs"));
    assert!(futures_util::poll!(hangs.as_mut()).is_pending());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(4)).await;
    tokio::time::resume();

    let (asked, mut was_asked) = mpsc::unbounded_channel();
    let hung = Arc::new(Semaphore::new(0));
    store.set_hook({
        let hung = hung.clone();
        move |call| {
            let (asked, hung) = (asked.clone(), hung.clone());
            async move {
                if call == "idempotency_get" && asked.send(()).is_ok() {
                    let _go_on = hung.acquire().await;
                }
            }
        }
    });
    let large = tokio::spawn({
        let (engine, t) = (daemons[1].engine.clone(), t.clone());
        async move { engine.add(&t, jobs(&vec!["x"; JOBS]), note("k")).await.unwrap() }
    });
    in_time("the store is asked", was_asked.recv()).await;
    drop(was_asked);
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(1500)).await;
    tokio::time::resume();
    in_time("the store hangs", hangs).await;
    hung.add_permits(1);
    let in_journal = async {
        while daemons[1].engine.status().await.journal.waiting <= JOBS as u64 {
            pause().await;
        }
    };
    in_time("both adds are in the journal", in_journal).await;

    store.hold_add_answers(false);
    let first = add(&daemons[0], &t, "k").await;
    store.hold_inserts(false);
    let large = in_time("the large add is answered", large).await.unwrap();
    assert_eq!((large.ids.len(), large.repeated), (1, true));
    assert_eq!(large.ids, first.ids);
}
