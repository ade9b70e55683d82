//! All kinds of claims together: limits hold, and jobs are visible once their add is answered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;

use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PULL_PAYLOAD_BYTES_MAX};
use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, EndRequest, Insert, LeaseRef};
use windlass_core::time::SystemClock;
use windlass_core::{Clock, Job, JobId, NewJob, Payload, Status, TypeKey, TypeSettings};
use windlass_engine::api::{PullClaim, PullFinish};
use windlass_engine::{Engine, Error, Options};
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

async fn finish(engine: &Engine, job: &Job) {
    let finish = PullFinish { lease: LeaseRef::of(job).unwrap(), status: Status::OK, data: None };
    engine.finish(finish).await.unwrap();
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
        assert_eq!(running, 1, "round {round}");
    }
}

/// No poll heals this: the worker must look again by itself.
#[tokio::test]
async fn room_that_comes_while_a_worker_looks_is_not_missed() {
    let store = Arc::new(MemoryStore::default());
    let seldom = |options: &mut Options| {
        (options.poll_min, options.poll_max) = (10 * PATIENCE, 10 * PATIENCE);
    };
    let daemon = Daemon::start_on(store.clone(), seldom).await;
    let t = key("acme", "t");
    daemon.engine.type_settings_put(&t, one_at_a_time()).await.unwrap();
    daemon.engine.add(&t, jobs(&["x"; 2]), None).await.unwrap();
    let first = daemon.engine.claim(pull(&t, &["t"], 1)).await.unwrap().remove(0);
    store.hold_answers(true);
    let second = tokio::spawn({
        let engine = daemon.engine.clone();
        async move { engine.take(one_job(glob("t")), PATIENCE).await.unwrap().given.len() }
    });
    eventually("it has seen the limit", || store.is_answer_held().then_some(())).await;
    finish(&daemon.engine, &first.job).await;
    store.hold_answers(false);
    assert_eq!(second.await.unwrap(), 1);
}

/// Another daemon is faster each time, and adds a job of the next type. Nothing announces that one,
/// and no poll heals this.
#[tokio::test]
async fn a_worker_that_waits_gets_a_job_however_often_others_were_faster() {
    const RACES: usize = 40;
    let store = Arc::new(MemoryStore::default());
    let seldom = |options: &mut Options| {
        (options.poll_min, options.poll_max) = (10 * PATIENCE, 10 * PATIENCE);
    };
    let daemon = Daemon::start_on(store.clone(), seldom).await;
    let id = |race: usize| JobId::new(race as i64 + 1).unwrap();
    let tenant = key("acme", "t").tenant;
    let races = Arc::new(Mutex::new(0..RACES));
    store.set_hook({
        let (store, tenant, races) = (Arc::downgrade(&store), tenant.clone(), races.clone());
        move |call| {
            let race = (call == "job_claim").then(|| races.lock().unwrap().next()).flatten();
            let (store, tenant) = (store.upgrade().unwrap(), tenant.clone());
            async move {
                if let Some(race) = race {
                    let keep = Duration::ZERO;
                    store.job_cancel(EndRequest { tenant, id: id(race), keep }).await.unwrap();
                    insert(&store, id(race + 1)).await;
                }
            }
        }
    });
    insert(&store, id(0)).await;
    let wish = PullClaim { wait: PATIENCE, ..pull(&key("acme", "t"), &["t*"], 1) };
    let claimed = daemon.engine.claim(wish).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id(RACES)]);
}

/// As another daemon does: each job is of a type of its own.
async fn insert(store: &MemoryStore, id: JobId) {
    let of = key("acme", &format!("t{id}"));
    let jobs = vec![NewJob::new(id, of, Payload::Inline("x".into()), SystemClock.now())];
    let insert = Insert { jobs, keys: Vec::new(), mark: None, durability: Durability::Relaxed };
    store.job_insert(insert).await.unwrap();
}

/// A job of another type ends during each look.
#[tokio::test]
async fn a_worker_that_does_not_wait_looks_at_most_twice_at_a_full_type() {
    const ENDS: usize = 10;
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let (t, other) = (key("acme", "t"), key("acme", "other"));
    daemon.engine.type_settings_put(&t, one_at_a_time()).await.unwrap();
    daemon.engine.add(&t, jobs(&["x"; 2]), None).await.unwrap();
    daemon.engine.add(&other, jobs(&["x"; 2 * ENDS]), None).await.unwrap();
    assert_eq!(daemon.engine.claim(pull(&t, &["t"], 1)).await.unwrap().len(), 1);
    let mut run = daemon.engine.claim(pull(&t, &["other"], 100)).await.unwrap();
    for call in ["job_take", "type_named"] {
        let ends = Arc::new(Mutex::new(run.split_off(run.len() - ENDS)));
        store.set_hook({
            let (engine, ends) = (daemon.engine.clone(), ends.clone());
            move |called| {
                let ended = if called == call { ends.lock().unwrap().pop() } else { None };
                let engine = engine.clone();
                async move {
                    if let Some(ended) = ended {
                        finish(&engine, &ended.job).await;
                    }
                }
            }
        });
        let found = match call {
            "job_take" => {
                let took = daemon.engine.take(one_job(glob("t")), Duration::ZERO).await;
                took.unwrap().given.len()
            }
            _ => daemon.engine.claim(pull(&t, &["t"], 1)).await.unwrap().len(),
        };
        let looks = ENDS - ends.lock().unwrap().len();
        assert_eq!(found, 0, "{call}");
        assert!(looks <= 2, "{looks} of {call}");
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

/// The two times around a slow ingest: see the pull workers of `http.md`.
const FRESH_CLAIM: Duration = Duration::from_millis(500);

/// Lets other tasks and threads work without letting the paused clock go on, until there is an
/// answer.
async fn answered<T>(mut waits: std::pin::Pin<Box<impl Future<Output = T>>>) -> T {
    let since = std::time::Instant::now();
    loop {
        if let std::task::Poll::Ready(answer) = futures_util::poll!(&mut waits) {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "waited in vain");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_half_a_second_for_what_was_answered_before_it() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let soon = FRESH_CLAIM - Duration::from_millis(1);
    for is_slower in [false, true] {
        store.hold_inserts(true);
        let id = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap().ids[0];
        let mut claim = Box::pin(daemon.engine.claim(pull(&t, &["t"], 10)));
        assert!(futures_util::poll!(&mut claim).is_pending());
        tokio::time::advance(soon).await;
        assert!(futures_util::poll!(&mut claim).is_pending(), "it still waits");
        if is_slower {
            tokio::time::advance(FRESH_CLAIM - soon + Duration::from_millis(1)).await;
            assert!(answered(claim).await.unwrap().is_empty(), "the store is too slow");
            store.hold_inserts(false);
            claim = Box::pin(daemon.engine.claim(pull(&t, &["t"], 10)));
        }
        store.hold_inserts(false);
        let claimed = answered(claim).await.unwrap();
        assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id]);
    }
}

/// It comes with the store's answer, much later than a claim waits for ingest.
#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_gets_what_a_slow_store_has_at_last() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    store.hold_inserts(true);
    let id = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap().ids[0];
    let wish = PullClaim { wait: PATIENCE, ..pull(&t, &["t"], 10) };
    let mut claim = Box::pin(daemon.engine.claim(wish));
    for _ in 0..4 {
        assert!(futures_util::poll!(&mut claim).is_pending());
        tokio::time::advance(FRESH_CLAIM).await;
    }
    store.hold_inserts(false);
    assert_eq!(answered(claim).await.unwrap()[0].job.id, id);
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
        finish(&daemon.engine, &pulled.job).await;
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
async fn what_opens_during_a_look_is_reported_to_a_worker_that_comes_meanwhile() {
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

/// A claim of a worker that may keep its job for very long.
fn for_long(of: &TypeKey) -> PullClaim {
    PullClaim { lease: 100 * PATIENCE, wait: PATIENCE, ..pull(of, &["t"], 1) }
}

#[tokio::test]
async fn a_job_whose_claim_was_not_answered_goes_to_the_next_worker() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let id = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap().ids[0];
    store.lose_claims(1);
    let lost = daemon.engine.claim(for_long(&t)).await;
    assert!(matches!(lost, Err(Error::Unavailable(_))), "{lost:?}");
    let claimed = daemon.engine.claim(for_long(&t)).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id]);
    assert_eq!(claimed[0].job.attempt, 1, "the first one did not count");
}

#[tokio::test]
async fn a_job_that_could_not_be_handed_back_goes_to_the_next_worker() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let id = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap().ids[0];
    store.hold_answers(true);
    let waiting = tokio::spawn({
        let (engine, wish) = (daemon.engine.clone(), for_long(&t));
        async move { engine.claim(wish).await }
    });
    eventually("the claim is carried out", || store.is_answer_held().then_some(())).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    store.set_available(false);
    store.hold_answers(false);
    // The rest of the claim is a task of this thread, and finds that the store is away.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    store.set_available(true);
    let claimed = daemon.engine.claim(for_long(&t)).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id]);
    assert_eq!(claimed[0].job.attempt, 1, "the first one did not count");
}

#[tokio::test]
async fn a_worker_gets_no_more_payloads_than_an_answer_has_room_for() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let payload = "x".repeat(PAYLOAD_INLINE_BYTES_MAX);
    let fit = (PULL_PAYLOAD_BYTES_MAX / PAYLOAD_INLINE_BYTES_MAX as u64) as usize;
    daemon.engine.add(&t, jobs(&vec![payload.as_str(); fit + 2]), None).await.unwrap();
    for expected in [fit, 2, 0] {
        assert_eq!(daemon.engine.claim(pull(&t, &["t"], 100)).await.unwrap().len(), expected);
    }
}
