//! A daemon's leases in the store and the jobs that it runs are brought into line.

use std::sync::Arc;

use windlass_core::State;
use windlass_core::job::{Boot, Token};
use windlass_core::memory::MemoryStore;
use windlass_core::runner::Stop;
use windlass_core::store::prelude::*;
use windlass_core::store::{Claim, EndRequest, Hold, Pick};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, ended};

#[tokio::test]
async fn a_job_whose_claim_was_never_answered_is_given_back() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    let id = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
    // A claim of this daemon whose answer was lost.
    let boot = Boot(store.boot_next().await.unwrap().0 - 1);
    let sysid = daemon.engine.status().await.sysid;
    let claim = || Claim {
        picks: vec![Pick { key: t.clone(), limit: 1, floor: None }],
        owner: sysid,
        token: Token(1),
        hold: Hold::Beat(boot),
    };
    let claimed = async {
        while store.job_claim(claim()).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, claimed).await.unwrap();
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    assert_eq!(daemon.engine.job(&t.tenant, id).await.unwrap().job.attempt, 1, "it did not count");
}

#[tokio::test]
async fn an_attempt_that_the_store_does_not_know_any_more_is_stopped() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(id).await;
    // Another daemon cancels it.
    let end = EndRequest { tenant: t.tenant.clone(), id, keep: PATIENCE };
    store.job_cancel(end).await.unwrap();
    let stopped = async {
        while daemon.runner.stopped() != [(id, Stop::LeaseLost)] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, stopped).await.unwrap();
    assert_eq!(daemon.engine.job(&t.tenant, id).await.unwrap().job.state, State::Cancelled);
}
