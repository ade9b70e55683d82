//! Very many types wait: how many of them the daemon reads, and that others do not wait behind
//! them.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Insert};
use windlass_core::time::SystemClock;
use windlass_core::{Clock, JobId, NewJob, Payload, State, TypeKey};
use windlass_engine::Options;
use windlass_engine::api::PullClaim;
use windlass_test_kit::wait::eventually;

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, ended};

/// One job of each of `types` types of one tenant.
async fn glut(store: &MemoryStore, types: i64, handled: bool) {
    let now = SystemClock.now();
    let new = |number: i64| {
        let key = key("glut", &format!("t{number}"));
        NewJob::new(JobId::new(number).unwrap(), key, Payload::Inline("hang".into()), now)
    };
    let all: Vec<i64> = (1..=types).collect();
    for numbers in all.chunks(10_000) {
        let jobs: Vec<NewJob> = numbers.iter().map(|number| new(*number)).collect();
        if handled {
            for job in &jobs {
                let version = JobId::new(types + job.id.get()).unwrap();
                store.handler_put(version, &job.key, handler()).await.unwrap();
            }
        }
        let insert = Insert { jobs, keys: Vec::new(), mark: None, durability: Durability::Relaxed };
        store.job_insert(insert).await.unwrap();
    }
}

/// Adds the first job of a new type, and returns when it has run.
async fn first_job_runs(daemon: &Daemon, t: &TypeKey) {
    daemon.engine.handler_set(t, handler()).await.unwrap();
    let added = daemon.engine.add(t, jobs(&["200"]), None).await.unwrap();
    assert_eq!(ended(daemon, t, added.ids[0]).await, State::Finished);
}

#[tokio::test]
async fn types_without_a_handler_cost_the_dispatcher_nothing() {
    let store = Arc::new(MemoryStore::default());
    glut(&store, 20_000, false).await;
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    first_job_runs(&daemon, &key("acme", "t")).await;
    first_job_runs(&daemon, &key("acme", "u")).await;
    assert!(store.types_reported() < 100, "{} types were read", store.types_reported());
}

/// All slots are taken by jobs of the glut that hang.
#[tokio::test]
async fn another_tenants_first_job_starts_while_a_glut_of_types_waits() {
    let store = Arc::new(MemoryStore::default());
    glut(&store, 5_000, true).await;
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    first_job_runs(&daemon, &key("acme", "t")).await;
    first_job_runs(&daemon, &key("acme", "u")).await;
    assert!(store.types_reported() < 3000, "{} types were read", store.types_reported());
}

#[tokio::test]
async fn a_claim_by_name_reads_the_types_that_it_names() {
    let store = Arc::new(MemoryStore::default());
    glut(&store, 5_000, false).await;
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let pull = |types: &[&str], limit| PullClaim {
        tenant: key("glut", "t").tenant,
        types: types.iter().map(|text| (*text).to_owned()).collect(),
        limit,
        lease: PATIENCE,
        wait: Duration::ZERO,
    };
    let by_name = daemon.engine.claim(pull(&["t7", "t70", "none"], 10)).await.unwrap();
    assert_eq!(by_name.len(), 2);
    assert!(store.types_reported() < 10, "{} types were read", store.types_reported());
    assert_eq!(daemon.engine.claim(pull(&["t123*"], 200)).await.unwrap().len(), 11);
    assert_eq!(daemon.engine.claim(pull(&["*"], 1000)).await.unwrap().len(), 1000);
    assert!(store.types_reported() < 3000, "{} types were read", store.types_reported());
}

/// No worker waits for them, and nothing here runs them.
#[tokio::test]
async fn new_types_without_a_handler_are_not_read_when_their_jobs_are_added() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let glut = key("glut", "t").tenant;
    for number in 0..500 {
        let t = key("glut", &format!("t{number}"));
        daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    }
    assert_eq!(daemon.engine.types(&glut).await.unwrap().len(), 500);
    first_job_runs(&daemon, &key("acme", "t")).await;
    assert!(store.types_reported() < 100, "{} types were read", store.types_reported());
}

/// While a look is held, the dispatcher starts nothing.
#[tokio::test]
async fn further_jobs_of_a_type_without_a_handler_do_not_make_the_dispatcher_look() {
    let store = Arc::new(MemoryStore::default());
    let never = 10 * PATIENCE;
    let polls_never = |options: &mut Options| {
        (options.poll_min, options.poll_max) = (never, never);
    };
    let daemon = Daemon::start_on(store.clone(), polls_never).await;
    let (bare, t) = (key("acme", "bare"), key("acme", "t"));
    daemon.engine.add(&bare, jobs(&["x"]), None).await.unwrap();
    eventually("it was asked about", || (store.handlers_asked() > 0).then_some(())).await;
    first_job_runs(&daemon, &t).await;
    store.hold_looks(true);
    for _ in 0..3 {
        daemon.engine.add(&bare, jobs(&["x"]), None).await.unwrap();
        let added = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap();
        assert_eq!(ended(&daemon, &t, added.ids[0]).await, State::Finished);
    }
    assert_eq!((store.handlers_asked(), store.looks_waiting()), (1, 0));
    store.hold_looks(false);
}
