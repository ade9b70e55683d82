//! The engine on the reference store, with a runner that does what the payload says.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test's own helpers"
)]

#[path = "engine/adopt.rs"]
mod adopt;
#[path = "engine/api_key.rs"]
mod api_key;
#[path = "engine/attempt.rs"]
mod attempt;
#[path = "engine/audit.rs"]
mod audit;
#[path = "engine/beat.rs"]
mod beat;
#[path = "engine/claim.rs"]
mod claim;
#[path = "engine/clock.rs"]
mod clock;
mod fake;
#[path = "engine/family.rs"]
mod family;
#[path = "engine/forget.rs"]
mod forget;
#[path = "engine/glut.rs"]
mod glut;
#[path = "engine/gone.rs"]
mod gone;
#[path = "engine/ingest.rs"]
mod ingest;
#[path = "engine/keyed.rs"]
mod keyed;
#[path = "engine/nth.rs"]
mod nth;
#[path = "engine/result.rs"]
mod result;
#[path = "engine/secret.rs"]
mod secret;
#[path = "engine/service.rs"]
mod service;
#[path = "engine/settle.rs"]
mod settle;
#[path = "engine/take.rs"]
mod take;
#[path = "engine/tenant.rs"]
mod tenant;
#[path = "engine/untake.rs"]
mod untake;
#[path = "engine/worker.rs"]
mod worker;

use std::sync::Arc;
use std::time::Duration;

use windlass_core::memory::MemoryStore;
use windlass_core::runner::Stop;
use windlass_core::store::{LeaseRef, List};
use windlass_core::{AddOptions, Code, RetryPolicy, State, Status, TypeKey, TypeSettings};
use windlass_engine::api::{Fingerprint, IdempotencyKey, PullClaim, PullFinish};
use windlass_engine::{Engine, Error, Options};

use fake::{Daemon, handler, jobs, key};

const PATIENCE: Duration = windlass_test_kit::wait::PATIENCE;

async fn ended(daemon: &Daemon, key: &TypeKey, id: windlass_core::JobId) -> State {
    let view = daemon.engine.job_wait(&key.tenant, id, PATIENCE).await.unwrap();
    view.job.state
}

fn quick(options: &mut Options) {
    let delay = Duration::from_millis(20);
    options.retry = RetryPolicy { delay, attempts: 3, ..RetryPolicy::default() };
}

#[tokio::test]
async fn a_job_runs_to_its_end_and_shows_what_happened() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["200", "404"]), None).await.unwrap();
    assert_eq!(ended(&daemon, &t, added.ids[0]).await, State::Finished);
    assert_eq!(ended(&daemon, &t, added.ids[1]).await, State::Failed);
    let view = daemon.engine.job(&t.tenant, added.ids[0]).await.unwrap();
    assert_eq!(view.job.attempt, 1);
    assert_eq!(view.job.last.unwrap().code, Code::Ok);
    let log = daemon.engine.job_log(&t.tenant, added.ids[0]).await.unwrap();
    assert_eq!(log[0].log.to_string(), "said 200\n");
    daemon.engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn s0_33_retries_run_until_the_last_attempt() {
    let daemon = Daemon::start(quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["500"]), None).await.unwrap();
    assert_eq!(ended(&daemon, &t, added.ids[0]).await, State::Failed);
    let view = daemon.engine.job(&t.tenant, added.ids[0]).await.unwrap();
    assert_eq!(view.job.attempt, 3);
    let log = daemon.engine.job_log(&t.tenant, added.ids[0]).await.unwrap();
    assert!(log[2].log.to_string().ends_with("[windlass] no attempts left\n"), "{log:?}");
}

/// One slot, so that the other jobs can run only after the panic has freed it.
#[tokio::test]
async fn a_panic_of_the_runner_costs_the_job_at_fault_an_attempt_and_the_others_nothing() {
    let daemon = Daemon::start(|options| {
        quick(options);
        options.slots = 1;
        options.slots_reserved = 0;
    })
    .await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    for at_fault in ["panic", "panic at once"] {
        let payloads = ["200", at_fault, "200", "200"];
        let added = daemon.engine.add(&t, jobs(&payloads), None).await.unwrap();
        for (id, payload) in added.ids.iter().zip(payloads) {
            let expected = if payload == "200" { State::Finished } else { State::Failed };
            assert_eq!(ended(&daemon, &t, *id).await, expected, "{payload}");
        }
        let view = daemon.engine.job(&t.tenant, added.ids[1]).await.unwrap();
        assert_eq!(view.job.attempt, 3);
        let log = daemon.engine.job_log(&t.tenant, added.ids[1]).await.unwrap();
        assert!(log[0].log.to_string().contains("the daemon's runner panicked"), "{log:?}");
    }
    assert_eq!(daemon.engine.types(&t.tenant).await.unwrap()[0].running, 0);
}

#[tokio::test]
async fn s0_29_emitted_jobs_enter_when_their_job_is_done_and_not_when_it_runs_again() {
    let daemon = Daemon::start(quick).await;
    let (t, u) = (key("acme", "t"), key("acme", "u"));
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    daemon.engine.handler_set(&u, handler()).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["500 emit u", "200 emit u"]), None).await.unwrap();
    assert_eq!(ended(&daemon, &t, added.ids[0]).await, State::Failed);
    assert_eq!(ended(&daemon, &t, added.ids[1]).await, State::Finished);
    let list = List {
        tenant: u.tenant.clone(),
        name: Some(u.name.clone()),
        state: None,
        before: None,
        limit: 10,
    };
    assert_eq!(daemon.engine.job_list(list).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn s0_21_adds_go_on_while_the_store_is_away_and_run_when_it_is_back() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.set_available(false);
    let added = daemon.engine.add(&t, jobs(&["200"; 50]), None).await.unwrap();
    assert_eq!(added.ids.len(), 50);
    let view = daemon.engine.job(&t.tenant, added.ids[49]).await.unwrap();
    assert_eq!(view.job.state, State::Queued, "a job is visible before the store has it");
    assert!(daemon.engine.readiness().await.journal.is_ok());
    assert!(daemon.engine.readiness().await.store.is_err());
    store.set_available(true);
    for id in added.ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
}

#[tokio::test]
async fn s2_1_a_stopped_daemon_accepts_and_runs_after_the_start() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    daemon.engine.set_picking(false);
    let added = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap();
    assert_eq!(daemon.engine.types(&t.tenant).await.unwrap()[0].ready, 1);
    daemon.engine.set_picking(true);
    assert_eq!(ended(&daemon, &t, added.ids[0]).await, State::Finished);
}

#[tokio::test]
async fn the_same_idempotency_key_answers_with_the_first_ids_and_adds_nothing() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let with = |body: &str| {
        let mut fingerprint = Fingerprint::default();
        fingerprint.update(body.as_bytes());
        Some(IdempotencyKey { key: "k".into(), fingerprint: fingerprint.finish() })
    };
    let first = daemon.engine.add(&t, jobs(&["1", "2"]), with("12")).await.unwrap();
    let again = daemon.engine.add(&t, jobs(&["1", "2"]), with("12")).await.unwrap();
    assert!(!first.repeated && again.repeated);
    assert_eq!(first.ids, again.ids);
    let other = daemon.engine.add(&t, jobs(&["3"]), with("3")).await;
    assert_eq!(other, Err(Error::KeyReused));
    let other_tenant = daemon.engine.add(&key("b", "t"), jobs(&["3"]), with("3")).await.unwrap();
    assert!(!other_tenant.repeated);
    assert_eq!(daemon.engine.types(&t.tenant).await.unwrap()[0].ready, 2);
}

#[tokio::test]
async fn an_idempotency_key_is_known_after_a_restart_on_the_same_data() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let note = || Some(IdempotencyKey { key: "k".into(), fingerprint: 7 });
    let first = daemon.engine.add(&t, jobs(&["1"]), note()).await.unwrap();
    let data = daemon.abandon().await;
    let daemon = Daemon::start_in(data, store, |_| {}).await;
    let again = daemon.engine.add(&t, jobs(&["1"]), note()).await.unwrap();
    assert_eq!((again.ids, again.repeated), (first.ids, true));
}

#[tokio::test]
async fn s0_23_what_a_dead_daemon_accepted_is_taken_over_from_its_journal() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.set_available(false);
    let added = daemon.engine.add(&t, jobs(&["200"; 10]), None).await.unwrap();
    let data = daemon.abandon().await;
    store.set_available(true);
    let daemon = Daemon::start_in(data, store, |_| {}).await;
    for id in added.ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
}

#[tokio::test]
async fn a_unique_key_is_held_until_its_job_has_ended() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let unique = || {
        let mut jobs = jobs(&["200"]);
        jobs[0].options = AddOptions { unique: Some("u".into()), ..AddOptions::default() };
        jobs
    };
    let first = daemon.engine.add(&t, unique(), None).await.unwrap();
    let second = daemon.engine.add(&t, unique(), None).await.unwrap();
    assert_eq!(first.ids, second.ids);
    daemon.engine.job_cancel(&t.tenant, first.ids[0]).await.unwrap();
    let third = daemon.engine.add(&t, unique(), None).await.unwrap();
    assert_ne!(first.ids, third.ids);
}

fn wish(tenant: &TypeKey, wait: Duration) -> PullClaim {
    let tenant = tenant.tenant.clone();
    PullClaim { tenant, types: vec!["*".into()], limit: 10, lease: PATIENCE, wait }
}

#[tokio::test]
async fn a_waiting_worker_gets_a_job_the_moment_it_is_added() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    let engine = daemon.engine.clone();
    let waiting = tokio::spawn({
        let wish = wish(&t, PATIENCE);
        async move { engine.claim(wish).await }
    });
    let added = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    let pulled = waiting.await.unwrap().unwrap();
    assert_eq!(pulled[0].job.id, added.ids[0]);
    let token = pulled[0].job.lease.unwrap().token;
    let lease = LeaseRef { tenant: t.tenant.clone(), id: added.ids[0], token };
    let finish = PullFinish { lease, status: Status::OK, data: None };
    daemon.engine.finish(finish.clone()).await.unwrap();
    assert!(matches!(daemon.engine.finish(finish).await, Err(Error::Conflict(_))));
    let none = daemon.engine.claim(wish(&t, Duration::ZERO)).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn a_worker_that_hung_up_leaves_the_jobs_to_the_others() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    for _ in 0..20 {
        let engine = daemon.engine.clone();
        let hanging = tokio::spawn({
            let wish = wish(&t, PATIENCE);
            async move { engine.claim(wish).await }
        });
        let added = daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
        hanging.abort();
        if let Ok(pulled) = hanging.await {
            assert_eq!(pulled.unwrap()[0].job.id, added.ids[0], "it was faster than the abort");
            continue;
        }
        let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
        assert_eq!((pulled[0].job.id, pulled[0].job.attempt), (added.ids[0], 1));
    }
}

#[tokio::test]
async fn s0_49_a_released_job_is_claimed_again_and_the_attempt_is_given_back() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    for _ in 0..3 {
        let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
        assert_eq!(pulled[0].job.attempt, 1);
        let token = pulled[0].job.lease.unwrap().token;
        let lease = LeaseRef { tenant: t.tenant.clone(), id: pulled[0].job.id, token };
        daemon.engine.release(lease, Duration::ZERO).await.unwrap();
    }
}

#[tokio::test]
async fn s0_15_the_lease_of_a_silent_worker_is_broken_and_the_job_runs_again() {
    let daemon = Daemon::start(|options| options.reap_interval = Duration::from_millis(20)).await;
    let t = key("acme", "t");
    daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    let short = PullClaim { lease: Duration::from_millis(50), ..wish(&t, PATIENCE) };
    let first = daemon.engine.claim(short).await.unwrap();
    let second = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
    assert_eq!(second[0].job.id, first[0].job.id);
    assert_eq!(second[0].job.attempt, 2);
    let lost = first[0].job.lease.unwrap().token;
    let lease = LeaseRef { tenant: t.tenant.clone(), id: first[0].job.id, token: lost };
    let finish = PullFinish { lease, status: Status::OK, data: None };
    assert!(matches!(daemon.engine.finish(finish).await, Err(Error::Conflict(_))));
}

#[tokio::test]
async fn s0_46_a_types_own_age_limit_counts_for_jobs_that_nobody_handles() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let (short, default) = (key("acme", "short"), key("acme", "default"));
    let retry = RetryPolicy { age: Duration::from_millis(1), ..RetryPolicy::default() };
    let settings = TypeSettings { retry: Some(retry), ..TypeSettings::default() };
    daemon.engine.type_settings_put(&short, settings).await.unwrap();
    let given_up = daemon.engine.add(&short, jobs(&["x"]), None).await.unwrap().ids[0];
    let waits = daemon.engine.add(&default, jobs(&["x"]), None).await.unwrap().ids[0];
    assert_eq!(daemon.engine.types(&short.tenant).await.unwrap().len(), 2);
    // A daemon looks for such jobs first.
    let data = daemon.abandon().await;
    let daemon = Daemon::start_in(data, store, |_| {}).await;
    assert_eq!(ended(&daemon, &short, given_up).await, State::Failed);
    let view = daemon.engine.job(&default.tenant, waits).await.unwrap();
    assert_eq!(view.job.state, State::Queued);
}

/// The search for unhandled jobs takes long if there are very many types.
#[tokio::test]
async fn leases_are_broken_while_unhandled_types_are_looked_through() {
    let store = Arc::new(MemoryStore::default());
    store.hold_stats(true);
    let reap_interval = Duration::from_millis(20);
    let adjust = |options: &mut Options| options.reap_interval = reap_interval;
    let daemon = Daemon::start_on(store.clone(), adjust).await;
    let t = key("acme", "t");
    daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    let short = PullClaim { lease: Duration::from_millis(50), ..wish(&t, PATIENCE) };
    let first = daemon.engine.claim(short).await.unwrap();
    let second = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
    assert_eq!(second[0].job.id, first[0].job.id);
    store.hold_stats(false);
}

/// Both jobs are too old; the search is only for one of them.
#[tokio::test]
async fn jobs_of_a_patient_tenant_wait_as_long_as_it_takes() {
    let store = Arc::new(MemoryStore::default());
    let (hasty, patient) = (key("hasty", "t"), key("patient", "t"));
    let adjust = |options: &mut Options| {
        options.retry = RetryPolicy { age: Duration::from_millis(1), ..RetryPolicy::default() };
        options.keep_unhandled = vec![patient.tenant.clone()];
    };
    // Added by another daemon, so that the first look finds both.
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let waits = daemon.engine.add(&patient, jobs(&["x"]), None).await.unwrap().ids[0];
    let given_up = daemon.engine.add(&hasty, jobs(&["x"]), None).await.unwrap().ids[0];
    assert_eq!(daemon.engine.types(&hasty.tenant).await.unwrap().len(), 1);
    let data = daemon.abandon().await;
    let daemon = Daemon::start_in(data, store, adjust).await;
    assert_eq!(ended(&daemon, &hasty, given_up).await, State::Failed);
    let view = daemon.engine.job(&patient.tenant, waits).await.unwrap();
    assert_eq!(view.job.state, State::Queued);
}

#[tokio::test]
async fn cancelling_a_running_job_stops_it_first() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap();
    daemon.runner.started(added.ids[0]).await;
    daemon.engine.job_cancel(&t.tenant, added.ids[0]).await.unwrap();
    assert_eq!(ended(&daemon, &t, added.ids[0]).await, State::Cancelled);
    assert_eq!(daemon.runner.stopped(), [(added.ids[0], Stop::Cancelled)]);
    let again = daemon.engine.job_cancel(&t.tenant, added.ids[0]).await;
    assert!(matches!(again, Err(Error::Conflict(_))));
}

#[tokio::test]
async fn shutdown_stops_hanging_jobs_and_comes_to_an_end() {
    let grace = Duration::from_millis(10);
    let daemon = Daemon::start(|options| options.stop_grace = grace).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let added = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap();
    daemon.runner.started(added.ids[0]).await;
    daemon.engine.shutdown().await.unwrap();
    assert_eq!(daemon.runner.stopped(), [(added.ids[0], Stop::Shutdown)]);
    assert!(daemon.engine.add(&t, jobs(&["200"]), None).await.is_err());
}

#[tokio::test]
async fn s0_58_a_daemon_whose_sysid_was_taken_stops_taking_jobs_and_says_so() {
    let clock = Arc::new(fake::SettableClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let lease = Duration::from_millis(30);
    let daemon = Daemon::start_on(store.clone(), |options| options.lease = lease).await;
    let status = daemon.engine.status().await;
    fake::steal_sysid(store.as_ref(), &clock, status.sysid).await;
    let why = tokio::time::timeout(PATIENCE, daemon.engine.failed()).await.unwrap();
    assert!(why.contains(&status.sysid.to_string()), "{why}");
    assert!(!daemon.engine.status().await.picking);
    assert!(daemon.engine.readiness().await.journal.is_err());
}

#[test]
fn an_engine_handle_is_cheap_and_shared() {
    fn shared<T: Clone + Send + Sync>() {}
    shared::<Engine>();
}
