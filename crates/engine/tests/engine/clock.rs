//! The machine's clock is set while a daemon runs.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::memory::MemoryStore;
use windlass_core::{AddOptions, State};
use windlass_engine::Error;
use windlass_engine::api::AddJob;

use crate::fake::{Daemon, SettableClock, handler, jobs, key, steal_sysid};
use crate::{ended, quick};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Adds, ready jobs, running jobs, retries and rates continue as if nothing had happened.
#[tokio::test]
async fn a_daemon_works_on_while_its_clock_is_set_back_and_forth() {
    let clock = Arc::new(SettableClock::default());
    let daemon = Daemon::start_by(clock.clone(), |options| {
        quick(options);
        options.retry.delay = Duration::from_millis(200);
        options.retry.age = Duration::from_secs(30 * 24 * 3600);
    })
    .await;
    let (engine, t, slow) = (&daemon.engine, key("acme", "t"), key("acme", "slow"));
    engine.handler_set(&t, handler()).await.unwrap();
    engine.handler_set(&slow, handler()).await.unwrap();
    let rate = windlass_core::TypeSettings { rate: Some(10.0), ..Default::default() };
    engine.type_settings_put(&slow, rate).await.unwrap();
    let hanging = engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(hanging).await;

    for step in [-HOUR_MS, HOUR_MS, 2 * DAY_MS, -2 * DAY_MS, -HOUR_MS] {
        engine.set_picking(false);
        let ready = engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
        let limited = engine.add(&slow, jobs(&["200"; 12]), None).await.unwrap().ids;
        let again = engine.add(&t, jobs(&["500"]), None).await.unwrap().ids[0];
        engine.set_picking(true);
        daemon.runner.started(again).await;
        clock.set_by(step);
        let added = engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
        for id in [ready, added] {
            assert_eq!(ended(&daemon, &t, id).await, State::Finished, "{step}");
        }
        for id in limited {
            assert_eq!(ended(&daemon, &slow, id).await, State::Finished, "{step}");
        }
        assert_eq!(ended(&daemon, &t, again).await, State::Failed, "{step}: after its retries");
        let view = engine.job(&t.tenant, again).await.unwrap();
        assert_eq!(view.job.attempt, 3, "{step}");
    }
    assert_eq!(daemon.runner.attempts(hanging).len(), 1, "no lease was broken");
    daemon.runner.finish_attempt(daemon.runner.attempts(hanging)[0]).await;
    assert_eq!(ended(&daemon, &t, hanging).await, State::Finished);
}

/// A job that waits for a time of day runs when the clock shows that time.
#[tokio::test]
async fn a_job_that_waits_for_a_time_runs_soon_after_the_clock_was_set_to_it() {
    let clock = Arc::new(SettableClock::default());
    let daemon = Daemon::start_by(clock.clone(), quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let run_at = Some(daemon.engine.now() + Duration::from_millis(HOUR_MS as u64));
    let options = AddOptions { run_at, ..AddOptions::default() };
    let later = jobs(&["200"]).into_iter().map(|job| AddJob { options: options.clone(), ..job });
    let id = daemon.engine.add(&t, later.collect(), None).await.unwrap().ids[0];
    clock.set_by(HOUR_MS);
    assert_eq!(ended(&daemon, &t, id).await, State::Finished);
}

/// Another daemon has its number by then, and makes the same ids.
#[tokio::test]
async fn a_daemon_that_stood_still_until_its_number_was_taken_answers_no_add() {
    let clock = Arc::new(SettableClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let (data, t) = (tempfile::tempdir().unwrap(), key("acme", "t"));
    // Long enough that it does not beat by itself meanwhile.
    let lease = Duration::from_secs(3600);
    let slow = |options: &mut windlass_engine::Options| options.lease = lease;
    let daemon = Daemon::start_with(data, store.clone(), clock.clone(), slow).await;
    let add = || daemon.engine.add(&t, jobs(&["200"]), None);
    clock.pass(lease * 2);
    add().await.expect("nobody took its number");
    let sysid = daemon.engine.status().await.sysid;
    steal_sysid(&store, &clock, sysid).await;
    assert!(matches!(add().await, Err(Error::Unavailable(_))));
}

/// It cannot check whether its number is still its own, and accepting does not depend on the store.
#[tokio::test]
async fn a_daemon_that_stood_still_accepts_while_the_store_is_away() {
    let clock = Arc::new(SettableClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let (data, t) = (tempfile::tempdir().unwrap(), key("acme", "t"));
    let daemon = Daemon::start_with(data, store.clone(), clock.clone(), quick).await;
    store.set_available(false);
    clock.pass(Duration::from_secs(3600));
    daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap();
}
