//! Verdicts reach the store, even beside one that it cannot take.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::memory::MemoryStore;
use windlass_core::{JobId, State};
use windlass_engine::Options;
use windlass_engine::api::PullClaim;
use windlass_test_kit::wait::{in_time, pause};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, ended, wish};

#[tokio::test]
async fn one_damaged_job_does_not_stop_the_verdicts_on_others() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let hangs = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(hangs).await;
    store.set_damaged(hangs, true);
    daemon.runner.finish_attempt(daemon.runner.attempts(hangs)[0]).await;
    // Behind it, in the same batch.
    let ids = daemon.engine.add(&t, jobs(&["200"; 20]), None).await.unwrap().ids;
    for id in ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
    assert_eq!(parked(&daemon, 1).await, [hangs]);
    let services = daemon.engine.readiness().await.services;
    assert_eq!(services, Err("the store cannot take the results of 1 jobs".to_owned()));
    let metrics = daemon.engine.metrics_text().await;
    assert!(metrics.lines().any(|line| line == "windlass_results_parked 1"), "{metrics}");

    store.set_damaged(hangs, false);
    assert_eq!(ended(&daemon, &t, hangs).await, State::Finished, "it is tried again");
    parked(&daemon, 0).await;
    assert_eq!(daemon.engine.readiness().await.services, Ok(()));
}

/// The jobs whose results are parked, once there are this many.
async fn parked(daemon: &Daemon, count: usize) -> Vec<JobId> {
    let looking = async {
        loop {
            let parked = daemon.engine.status().await.results_parked;
            if parked.len() == count {
                return parked.into_iter().map(|parked| parked.id).collect();
            }
            pause().await;
        }
    };
    in_time("results are parked, or no more", looking).await
}

#[tokio::test]
async fn a_damaged_job_does_not_keep_the_leases_of_others() {
    let store = Arc::new(MemoryStore::default());
    let soon = |options: &mut Options| options.reap_interval = Duration::from_millis(20);
    let daemon = Daemon::start_on(store.clone(), soon).await;
    let t = key("acme", "t");
    let ids = daemon.engine.add(&t, jobs(&["x", "y"]), None).await.unwrap().ids;
    store.set_damaged(ids[0], true);
    let short = PullClaim { lease: Duration::from_millis(50), ..wish(&t, PATIENCE) };
    assert_eq!(daemon.engine.claim(short).await.unwrap().len(), 2);
    let again = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
    assert_eq!(again.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [ids[1]]);
}
