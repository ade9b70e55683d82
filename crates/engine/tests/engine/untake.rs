//! Takes whose jobs did not reach their worker.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::edit::{Decide, Decision, Edit, Put, Refusal, Target};
use windlass_core::memory::MemoryStore;
use windlass_core::{Job, JobId, Payload, Priority, State, Timestamp};
use windlass_engine::Error;
use windlass_test_kit::wait::eventually;

use crate::PATIENCE;
use crate::fake::{Daemon, jobs, key};
use crate::take::{full_job, glob, one_job};

/// Takes a job for a worker that disconnects before the store answers. Then `meanwhile` happens.
async fn take_for_a_worker_that_goes_away(
    daemon: &Daemon,
    store: &MemoryStore,
    meanwhile: impl AsyncFnOnce(),
) {
    store.hold_answers(true);
    let waiting = tokio::spawn({
        let engine = daemon.engine.clone();
        async move { engine.take(one_job(glob("t")), PATIENCE).await }
    });
    let held = || store.is_answer_held().then_some(());
    eventually("the take is carried out", held).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    meanwhile().await;
    store.hold_answers(false);
}

#[tokio::test]
async fn a_worker_that_went_away_leaves_its_job_as_it_was() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let id = daemon.engine.add(&key("acme", "t"), jobs(&["x"]), None).await.unwrap().ids[0];
    take_for_a_worker_that_goes_away(&daemon, &store, async || {}).await;
    let took = daemon.engine.take(one_job(glob("t")), PATIENCE).await.unwrap();
    let before = &took.given[0].before;
    assert_eq!((before.job.id, before.job.state, before.job.attempt), (id, State::Queued, 0));
    assert_eq!(before.payload, Payload::Inline("x".into()));
    let now = full_job(&daemon.engine, id).await;
    assert_eq!((now.job.state, now.payload), (State::Running, Payload::Inline("taken".into())));
    assert_eq!(now.job.lease, took.given[0].job.lease, "the first one's is gone");
}

/// Another client changes the job.
async fn update(daemon: &Daemon, id: JobId, change: impl Fn(&mut Job) + Send + Sync + 'static) {
    let update: Decide = Arc::new(move |_, seen, _| {
        let mut job = seen.job.as_ref().ok_or(Refusal::new(404, "no job"))?.job.clone();
        change(&mut job);
        let put = Put { job, payload: Some("new".into()), purge_at: None };
        Ok(Decision { edits: vec![Edit::Put(Box::new(put))], id: None })
    });
    let tenant = key("acme", "t").tenant;
    daemon.engine.decide(&tenant, vec![Target::Job(id)], update).await.unwrap();
}

#[tokio::test]
async fn a_job_of_a_worker_that_went_away_keeps_what_was_changed_meanwhile() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let id = daemon.engine.add(&key("acme", "t"), jobs(&["x"]), None).await.unwrap().ids[0];
    let (urgent, earlier) = (Priority::new(900).unwrap(), Timestamp(7));
    take_for_a_worker_that_goes_away(&daemon, &store, async || {
        update(&daemon, id, move |job| (job.priority, job.run_at) = (urgent, earlier)).await;
    })
    .await;
    let took = daemon.engine.take(one_job(glob("t")), PATIENCE).await.unwrap();
    let before = &took.given[0].before;
    assert_eq!((before.job.id, before.job.state, before.job.attempt), (id, State::Queued, 0));
    assert_eq!((before.job.priority, before.job.run_at), (urgent, earlier));
    assert_eq!(before.payload, Payload::Inline("new".into()));
}

#[tokio::test]
async fn a_job_whose_take_was_not_answered_goes_to_the_next_worker() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let id = daemon.engine.add(&key("acme", "t"), jobs(&["x"]), None).await.unwrap().ids[0];
    store.lose_claims(1);
    let lost = daemon.engine.take(one_job(glob("t")), Duration::ZERO).await;
    assert!(matches!(lost, Err(Error::Unavailable(_))), "{lost:?}");
    let took = daemon.engine.take(one_job(glob("t")), PATIENCE).await.unwrap();
    let before = &took.given[0].before.job;
    assert_eq!((before.id, before.attempt, before.started_at), (id, 0, None));
}

#[tokio::test]
async fn a_job_of_a_take_that_could_not_be_undone_goes_to_the_next_worker() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let id = daemon.engine.add(&key("acme", "t"), jobs(&["x"]), None).await.unwrap().ids[0];
    take_for_a_worker_that_goes_away(&daemon, &store, async || store.set_available(false)).await;
    // The rest of the take is a task of this thread, and finds that the store is away.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    store.set_available(true);
    let took = daemon.engine.take(one_job(glob("t")), PATIENCE).await.unwrap();
    let before = &took.given[0].before.job;
    assert_eq!((before.id, before.attempt, before.started_at), (id, 0, None));
}
