//! Attempts of one job are distinguished: one that lost its lease does not affect another.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_core::edit::{Decide, Decision, Edit, Put, Target};
use windlass_core::memory::MemoryStore;
use windlass_core::retry::Verdict;
use windlass_core::runner::Stop;
use windlass_core::store::prelude::*;
use windlass_core::store::{Changed, Durability, EndRequest, LeaseRef, List, Settled, Settlement};
use windlass_core::time::SystemClock;
use windlass_core::{AttemptId, Job, JobId, Log, State, Status, TypeKey, TypeSettings};
use windlass_engine::Options;
use windlass_test_kit::wait::{eventually, in_time, pause};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{ended, quick};

/// Breaks the lease of an attempt, like a daemon that takes its owner for dead.
async fn break_lease(store: &MemoryStore, key: &TypeKey, attempt: AttemptId) {
    let AttemptId { job: id, token } = attempt;
    let broken = Settlement {
        lease: LeaseRef { tenant: key.tenant.clone(), id, token },
        verdict: Verdict::Again { after: Duration::ZERO },
        ended: Some(Status::ERROR.into()),
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: Duration::ZERO,
        only_if_expired: false,
    };
    let answer = store.job_settle([broken].into(), Durability::Relaxed).await.unwrap();
    assert_eq!(answer.settled, [Settled::Done]);
}

/// An attempt that lost its lease without noticing, and the next attempt of the same job in the
/// same daemon.
async fn two_attempts(
    store: &Arc<MemoryStore>,
    daemon: &Daemon,
    t: &TypeKey,
    payload: &str,
) -> (JobId, [AttemptId; 2]) {
    let id = daemon.engine.add(t, jobs(&[payload]), None).await.unwrap().ids[0];
    daemon.runner.started(id).await;
    let first = daemon.runner.attempts(id)[0];
    break_lease(store, t, first).await;
    daemon.engine.set_picking(true);
    daemon.runner.started_times(id, 2).await;
    (id, daemon.runner.attempts(id).try_into().unwrap())
}

/// Settlements are stored in order: when this returns, all earlier ones are stored.
async fn settled(daemon: &Daemon, t: &TypeKey) {
    let id = daemon.engine.add(t, jobs(&["200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(daemon, t, id).await, State::Finished);
}

/// The job runs under this attempt, and cancelling it stops this attempt.
async fn runs_and_can_be_stopped(daemon: &Daemon, t: &TypeKey, attempt: AttemptId) {
    let job = daemon.engine.job(&t.tenant, attempt.job).await.unwrap().job;
    let token = job.lease.map(|lease| lease.token);
    assert_eq!((job.state, token), (State::Running, Some(attempt.token)));
    daemon.engine.job_cancel(&t.tenant, attempt.job).await.unwrap();
    assert_eq!(ended(daemon, t, attempt.job).await, State::Cancelled);
    assert!(daemon.runner.attempts_stopped().contains(&(attempt, Stop::Cancelled)));
}

#[tokio::test]
async fn s0_50_the_end_of_an_attempt_that_lost_its_lease_does_not_end_the_next_one() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let (_, [first, second]) = two_attempts(&store, &daemon, &t, "deaf").await;
    daemon.runner.finish_attempt(first).await;
    settled(&daemon, &t).await;
    runs_and_can_be_stopped(&daemon, &t, second).await;
}

#[tokio::test]
async fn s0_50_an_attempt_that_lost_its_lease_to_another_daemon_does_not_end_a_later_one() {
    let store = Arc::new(MemoryStore::default());
    let one = Daemon::start_on(store.clone(), quick).await;
    let other = Daemon::start_on(store.clone(), quick).await;
    let t = key("acme", "t");
    one.engine.handler_set(&t, handler()).await.unwrap();
    let mut attempts = Vec::new();
    let id = one.engine.add(&t, jobs(&["deaf"]), None).await.unwrap().ids[0];
    for (picks, waits, times) in [(&one, &other, 1), (&other, &one, 1), (&one, &other, 2)] {
        waits.engine.set_picking(false);
        if let Some(newest) = attempts.last() {
            break_lease(&store, &t, *newest).await;
        } else {
            other.engine.set_picking(false);
        }
        picks.engine.set_picking(true);
        picks.runner.started_times(id, times).await;
        attempts.extend(picks.runner.attempts(id).last());
    }
    one.runner.finish_attempt(attempts[0]).await;
    other.runner.finish_attempt(attempts[1]).await;
    settled(&one, &t).await;
    runs_and_can_be_stopped(&one, &t, attempts[2]).await;
}

/// Both attempts held a place of their type: each frees its own.
#[tokio::test]
async fn every_attempt_gives_back_its_place_of_the_types_concurrency() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let t = key("acme", "t");
    let settings = TypeSettings { concurrency: Some(2), ..TypeSettings::default() };
    daemon.engine.type_settings_put(&t, settings).await.unwrap();
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    for newest_first in [false, true] {
        let (id, mut attempts) = two_attempts(&store, &daemon, &t, "deaf").await;
        if newest_first {
            attempts.reverse();
        }
        for attempt in attempts {
            daemon.runner.finish_attempt(attempt).await;
        }
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
    for _ in 0..2 {
        let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
        daemon.runner.started(id).await;
    }
}

/// There are no renewals here, so the first attempt does not notice that it lost its lease.
#[tokio::test]
async fn s0_50_jobs_that_an_attempt_asked_for_are_refused_with_its_end() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |options| {
        quick(options);
        options.lease = Duration::from_secs(3600);
    })
    .await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let asked = [r#"deaf emit plain"#, r#"deaf emit keyed {"unique":"k"}"#];
    for payload in asked {
        let (_, attempts) = two_attempts(&store, &daemon, &t, payload).await;
        daemon.runner.finish_attempt(attempts[0]).await;
        settled(&daemon, &t).await;
        let name = payload.split(' ').nth(2).unwrap();
        assert_eq!(count(&daemon, &key("acme", name)).await, 0, "{payload}: not by a stale one");
        daemon.runner.finish_attempt(attempts[1]).await;
        settled(&daemon, &t).await;
        assert_eq!(count(&daemon, &key("acme", name)).await, 1, "{payload}");
    }
}

async fn count(daemon: &Daemon, key: &TypeKey) -> usize {
    let (tenant, name) = (key.tenant.clone(), Some(key.name.clone()));
    let list = List { tenant, name, state: None, before: None, limit: 10 };
    daemon.engine.job_list(list).await.unwrap().jobs.len()
}

/// Each job is claimed again as soon as it has ended, so renewals often name a claim that is
/// already over.
#[tokio::test]
async fn s0_14_no_lease_of_a_living_daemon_runs_out_while_its_jobs_repeat() {
    const JOBS: usize = 100;
    const RUNS: usize = 200;
    let daemon = Daemon::start(|options| {
        quick(options);
        (options.slots, options.lease) = (JOBS, Duration::from_secs(1));
        options.reap_interval = Duration::from_millis(20);
    })
    .await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let mut repeating = jobs(&["200"; JOBS]);
    for job in &mut repeating {
        job.options.extra.repeat = Some("FINISHED, +0 SECONDS".into());
    }
    for id in daemon.engine.add(&t, repeating, None).await.unwrap().ids {
        daemon.runner.started_times(id, RUNS).await;
    }
    let metrics = daemon.engine.metrics_text().await;
    let expired = metrics.lines().find(|line| line.starts_with("windlass_leases_expired_total"));
    assert_eq!(expired, Some("windlass_leases_expired_total 0"));
}

/// No beat comes in time to stop what has lost its lease.
fn without_beats(options: &mut Options) {
    options.lease = Duration::from_secs(3600);
}

/// The store has given the job to the dispatcher, which does not know it yet.
#[tokio::test]
async fn a_job_that_is_cancelled_while_its_claim_is_answered_does_not_run_on() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), without_beats).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.hold_answers(true);
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    eventually("it is claimed", || store.is_answer_held().then_some(())).await;
    let cancelling = tokio::spawn({
        let (engine, tenant) = (daemon.engine.clone(), t.tenant.clone());
        async move { engine.job_cancel(&tenant, id).await }
    });
    let cancelled = async || {
        let job = daemon.engine.job(&t.tenant, id).await.unwrap().job;
        (job.state == State::Cancelled).then_some(())
    };
    while cancelled().await.is_none() {
        pause().await;
    }
    store.hold_answers(false);
    in_time("the cancel is answered", cancelling).await.unwrap().unwrap();
    assert!(daemon.runner.stopped().contains(&(id, Stop::Cancelled)), "before the answer");
    assert_eq!(daemon.runner.attempts(id), []);
}

/// Another daemon has cancelled it meanwhile, and it was requested again: the cancel finds it
/// queued.
#[tokio::test]
async fn a_job_that_was_requested_again_while_its_claim_is_answered_can_be_cancelled() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), without_beats).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.hold_answers(true);
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    eventually("it is claimed", || store.is_answer_held().then_some(())).await;
    let end = EndRequest { tenant: t.tenant.clone(), id, keep: Duration::from_secs(3600) };
    assert!(matches!(store.job_cancel(end).await.unwrap(), Changed::Done(_)));
    assert!(matches!(store.job_rerun(&t.tenant, id).await.unwrap(), Changed::Done(_)));
    let cancelling = tokio::spawn({
        let (engine, tenant) = (daemon.engine.clone(), t.tenant.clone());
        async move { engine.job_cancel(&tenant, id).await }
    });
    let is_cancelled = async || {
        let job = daemon.engine.job(&t.tenant, id).await.unwrap().job;
        job.state == State::Cancelled
    };
    while !is_cancelled().await {
        pause().await;
    }
    store.hold_answers(false);
    in_time("the cancel is answered", cancelling).await.unwrap().unwrap();
    assert!(daemon.runner.stopped().contains(&(id, Stop::Cancelled)), "before the answer");
    assert_eq!(daemon.runner.attempts(id), []);
}

/// A door's decision that ends a job.
fn finish() -> Decide {
    Arc::new(|_, seen, _| {
        let job = seen.job.as_ref().unwrap().job.clone();
        let job = Job { state: State::Finished, lease: None, ..job };
        let put = Put { job, payload: None, purge_at: None };
        Ok(Decision { edits: vec![Edit::Put(Box::new(put))], id: None })
    })
}

/// As a FinishJob of Bedrock does.
#[tokio::test]
async fn a_job_that_a_door_ends_while_its_claim_is_answered_does_not_run_on() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), without_beats).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.hold_answers(true);
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    eventually("it is claimed", || store.is_answer_held().then_some(())).await;
    let finishing = tokio::spawn({
        let (engine, tenant) = (daemon.engine.clone(), t.tenant.clone());
        async move { engine.decide(&tenant, vec![Target::Job(id)], finish()).await.map(drop) }
    });
    while daemon.engine.job(&t.tenant, id).await.unwrap().job.state != State::Finished {
        pause().await;
    }
    store.hold_answers(false);
    in_time("the decision is answered", finishing).await.unwrap().unwrap();
    assert!(daemon.runner.stopped().contains(&(id, Stop::LeaseLost)), "before the answer");
    assert_eq!(daemon.runner.attempts(id), []);
}

#[tokio::test]
async fn an_attempt_that_does_not_stop_keeps_no_other_from_being_stopped() {
    let daemon = Daemon::start(without_beats).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let mut ids = Vec::new();
    for payload in ["hang", "deaf", "hang"] {
        ids.extend(daemon.engine.add(&t, jobs(&[payload]), None).await.unwrap().ids);
        daemon.runner.started(*ids.last().unwrap()).await;
    }
    let finishing = tokio::spawn({
        let (engine, tenant) = (daemon.engine.clone(), t.tenant.clone());
        let targets = ids.iter().map(|id| Target::Job(*id)).collect();
        async move { engine.decide(&tenant, targets, finish()).await.map(drop) }
    });
    let told = |id| daemon.runner.stopped().contains(&(id, Stop::LeaseLost));
    let all_told = || (told(ids[0]) && told(ids[2])).then_some(());
    eventually("the others are told to stop", all_told).await;
    daemon.runner.finish_attempt(daemon.runner.attempts(ids[1])[0]).await;
    in_time("the decision is answered", finishing).await.unwrap().unwrap();
}

/// A power cut right after the answer.
#[tokio::test]
async fn a_cancel_of_a_running_job_is_durable_when_it_is_answered() {
    let store = Arc::new(MemoryStore::undoable(false, Arc::new(SystemClock)));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    eventually("it runs", || (!daemon.runner.attempts(id).is_empty()).then_some(())).await;
    daemon.engine.job_cancel(&t.tenant, id).await.unwrap();
    store.undo_relaxed();
    let job = store.job_get(&t.tenant, id).await.unwrap().unwrap();
    assert_eq!(job.state, State::Cancelled);
}

/// A store that forgets the end of the attempt before that is synced, while its daemons live on.
#[tokio::test]
async fn a_cancel_of_a_running_job_is_in_force_though_the_store_forgot_the_end_of_its_attempt() {
    let store = Arc::new(MemoryStore::undoable(true, Arc::new(SystemClock)));
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    eventually("it runs", || (!daemon.runner.attempts(id).is_empty()).then_some(())).await;
    // It has the claim for good, and forgets what comes after it.
    store.flush().await.unwrap();
    let (forgot, runner) = (Arc::new(AtomicBool::new(false)), daemon.runner.clone());
    let (forgets, forgotten) = (store.clone(), forgot.clone());
    store.set_hook(move |call| {
        let is_stopped = || runner.stopped().contains(&(id, Stop::Cancelled));
        if call == "flush" && is_stopped() && !forgotten.swap(true, Ordering::SeqCst) {
            forgets.undo_relaxed();
        }
        ready(())
    });
    daemon.engine.job_cancel(&t.tenant, id).await.unwrap();
    let job = store.job_get(&t.tenant, id).await.unwrap().unwrap();
    assert!(forgot.load(Ordering::SeqCst), "the end was not synced");
    assert_eq!(job.state, State::Cancelled);
}
