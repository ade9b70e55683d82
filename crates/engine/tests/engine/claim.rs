//! All kinds of claims together: limits hold, and jobs are visible once their add is answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Insert, LeaseRef};
use windlass_core::time::SystemClock;
use windlass_core::{Clock, JobId, NewJob, Payload, Status, TypeKey, TypeSettings};
use windlass_engine::api::{PullClaim, PullFinish};
use windlass_test_kit::wait::eventually;

use crate::PATIENCE;
use crate::fake::{Daemon, handler, jobs, key};
use crate::take::{glob, one_job};

fn pull(of: &TypeKey, types: &[&str], limit: u32) -> PullClaim {
    let types = types.iter().map(|pattern| (*pattern).to_owned()).collect();
    let tenant = of.tenant.clone();
    PullClaim { tenant, types, limit, lease: PATIENCE, wait: Duration::ZERO }
}

fn one_at_a_time() -> TypeSettings {
    TypeSettings { concurrency: Some(1), ..TypeSettings::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_pulls_do_not_pass_a_types_concurrency() {
    let daemon = Daemon::start(|_| {}).await;
    for round in 0..50 {
        let t = key("acme", &format!("t{round}"));
        daemon.engine.type_settings_put(&t, one_at_a_time()).await.unwrap();
        daemon.engine.add(&t, jobs(&["x"; 8]), None).await.unwrap();
        let mut pulls = JoinSet::new();
        for _ in 0..8 {
            let (engine, wish) = (daemon.engine.clone(), pull(&t, &[t.name.as_str()], 1));
            pulls.spawn(async move { engine.claim(wish).await.unwrap().len() });
        }
        let running: usize = pulls.join_all().await.into_iter().sum();
        assert_eq!(running, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pulls_takes_and_runs_together_do_not_pass_a_types_concurrency() {
    let daemon = Daemon::start(|_| {}).await;
    for round in 0..20 {
        let t = key("acme", &format!("t{round}"));
        daemon.engine.type_settings_put(&t, one_at_a_time()).await.unwrap();
        daemon.engine.handler_set(&t, handler()).await.unwrap();
        let adding = daemon.engine.add(&t, jobs(&["hang"; 8]), None);
        let mut claims = JoinSet::new();
        adding.await.unwrap();
        for _ in 0..4 {
            let (engine, wish) = (daemon.engine.clone(), pull(&t, &[t.name.as_str()], 2));
            claims.spawn(async move { drop(engine.claim(wish).await.unwrap()) });
            let engine = daemon.engine.clone();
            let take = one_job(glob(t.name.as_str()));
            claims.spawn(async move { drop(engine.take(take, Duration::ZERO).await.unwrap()) });
        }
        claims.join_all().await;
        let of_type = daemon.engine.types(&t.tenant).await.unwrap();
        let running = of_type.iter().find(|stats| stats.key == t).unwrap().running;
        assert!(running <= 1, "round {round}: {running} run");
    }
}

/// The dispatcher does not learn of the new types before the claim is answered.
#[tokio::test]
async fn a_claim_sees_every_add_that_was_answered_before_it() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let (known, new, other) = (key("acme", "known"), key("acme", "new"), key("acme", "other"));
    daemon.engine.add(&known, jobs(&["x"]), None).await.unwrap();
    assert_eq!(daemon.engine.claim(pull(&known, &["*"], 10)).await.unwrap().len(), 1);
    store.hold_looks(true);
    for t in [&known, &new, &other] {
        daemon.engine.add(t, jobs(&["x"]), None).await.unwrap();
    }
    let pulled = daemon.engine.claim(pull(&new, &["new", "kn*", "o*"], 10)).await.unwrap();
    let mut names: Vec<_> = pulled.iter().map(|pulled| pulled.job.key.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["known", "new", "other"]);
    store.hold_looks(false);
}

/// Jobs of other types that end meanwhile do not make it forget the full type.
#[tokio::test]
async fn a_worker_that_waits_for_a_full_type_gets_its_next_job_when_one_has_ended() {
    let daemon = Daemon::start(|_| {}).await;
    let (t, other) = (key("acme", "t"), key("acme", "other"));
    daemon.engine.type_settings_put(&t, one_at_a_time()).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["x"; 2]), None).await.unwrap();
    daemon.engine.add(&other, jobs(&["x"]), None).await.unwrap();
    let claim =
        async |name: &str| daemon.engine.claim(pull(&t, &[name], 1)).await.unwrap().remove(0);
    let (first, second) = (claim("t").await, claim("other").await);
    let waiting = tokio::spawn({
        let engine = daemon.engine.clone();
        let wish = PullClaim { wait: PATIENCE, ..pull(&t, &["*"], 1) };
        async move { engine.claim(wish).await.unwrap() }
    });
    for pulled in [second, first] {
        let (tenant, id) = (t.tenant.clone(), pulled.job.id);
        let lease = LeaseRef { tenant, id, token: pulled.job.lease.unwrap().token };
        let finish = PullFinish { lease, status: Status::OK, data: None };
        daemon.engine.finish(finish).await.unwrap();
    }
    assert_eq!(waiting.await.unwrap()[0].job.id, added.ids[1]);
}

/// Both types come due at the same moment, and one look wakes the first worker for one of them.
#[tokio::test]
async fn a_worker_that_takes_another_job_than_it_was_woken_for_passes_the_call_on() {
    let daemon = Daemon::start(|_| {}).await;
    for round in 0..12 {
        let (a, b) = (key("acme", &format!("a{round}")), key("acme", &format!("b{round}")));
        let worker = |types: &[&str]| {
            let wish = PullClaim { wait: PATIENCE, ..pull(&a, types, 1) };
            let engine = daemon.engine.clone();
            tokio::spawn(async move { engine.claim(wish).await.unwrap().remove(0).job.key })
        };
        let first = worker(&[a.name.as_str(), b.name.as_str()]);
        let second = worker(&[a.name.as_str()]);
        let soon = SystemClock.now() + Duration::from_millis(50);
        for t in [&a, &b] {
            let mut later = jobs(&["x"]);
            later[0].options.run_at = Some(soon);
            daemon.engine.add(t, later, None).await.unwrap();
        }
        if first.await.unwrap() == a {
            daemon.engine.add(&a, jobs(&["x"]), None).await.unwrap();
        }
        assert_eq!(second.await.expect("it gets a job"), a);
    }
}

/// Nothing else wakes the dispatcher, which wakes workers when a type has rested.
#[tokio::test]
async fn a_pulled_type_goes_on_as_soon_as_its_rate_allows() {
    let daemon = Daemon::start(|options| {
        (options.poll_min, options.poll_max) = (PATIENCE * 10, PATIENCE * 10);
    })
    .await;
    let t = key("acme", "t");
    let settings = TypeSettings { rate: Some(50.0), ..TypeSettings::default() };
    daemon.engine.type_settings_put(&t, settings).await.unwrap();
    daemon.engine.add(&t, jobs(&["x"; 5]), None).await.unwrap();
    for _ in 0..5 {
        let wish = PullClaim { wait: PATIENCE, ..pull(&t, &["t"], 1) };
        assert_eq!(daemon.engine.claim(wish).await.unwrap().len(), 1);
    }
}

/// The look skipped types without a handler, because no worker waited when it began.
#[tokio::test]
async fn a_worker_that_comes_during_a_look_is_told_of_what_opens_meanwhile() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    store.hold_looks(true);
    daemon.engine.set_picking(true);
    let asked = store.named_looks();
    eventually("a look is under way", || (store.looks_waiting() > 0).then_some(())).await;
    let waiting = tokio::spawn({
        let engine = daemon.engine.clone();
        let wish = PullClaim { wait: PATIENCE, ..pull(&t, &["t"], 1) };
        async move { engine.claim(wish).await.unwrap() }
    });
    eventually("it has looked", || (store.named_looks() > asked).then_some(())).await;
    // Another daemon adds it.
    let now = SystemClock.now();
    let new = NewJob::new(JobId::new(1).unwrap(), t, Payload::Inline("x".into()), now);
    let jobs = vec![new];
    let insert = Insert { jobs, keys: Vec::new(), mark: None, durability: Durability::Relaxed };
    store.job_insert(insert).await.unwrap();
    store.hold_looks(false);
    assert_eq!(waiting.await.unwrap().len(), 1);
}
