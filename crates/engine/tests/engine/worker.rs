//! Outside workers renew their leases, report progress and end their jobs; only the token of the
//! lease counts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::job::Token;
use windlass_core::limit::PROGRESS_BYTES_MAX;
use windlass_core::maxima::Above;
use windlass_core::memory::MemoryStore;
use windlass_core::store::LeaseRef;
use windlass_core::{Job, Json, State, Status};
use windlass_engine::Error;
use windlass_engine::api::PullFinish;

use crate::fake::{Daemon, handler, jobs, key};
use crate::{PATIENCE, wish};

/// A daemon with one job that a worker has claimed.
async fn claimed() -> (Daemon, LeaseRef) {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    daemon.engine.add(&t, jobs(&["x"]), None).await.unwrap();
    let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap().remove(0);
    let lease = LeaseRef::of(&pulled.job).unwrap();
    (daemon, lease)
}

async fn job(daemon: &Daemon, lease: &LeaseRef) -> Job {
    daemon.engine.job(&lease.tenant, lease.id).await.unwrap().job
}

/// The lease of another claim, and that of a job which the tenant does not have.
fn others(lease: &LeaseRef) -> [LeaseRef; 2] {
    let token = Token(lease.token.0 + 1);
    let tenant = key("globex", "t").tenant;
    [LeaseRef { token, ..lease.clone() }, LeaseRef { tenant, ..lease.clone() }]
}

fn field(refused: Result<(), Error>) -> String {
    match refused {
        Err(Error::Invalid(invalid) | Error::Above(Above(invalid))) => invalid.field,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_renewal_moves_the_expiry_of_a_lease_that_is_held() {
    let (daemon, lease) = claimed().await;
    let expiry = async || job(&daemon, &lease).await.lease.unwrap().expires_at;
    let before = expiry().await;
    let [stale, unknown] = others(&lease);
    let refused = daemon.engine.renew(stale, 3 * PATIENCE).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let refused = daemon.engine.renew(unknown, 3 * PATIENCE).await;
    assert_eq!(refused, Err(Error::NotFound("job")));
    assert_eq!(field(daemon.engine.renew(lease.clone(), Duration::MAX).await), "lease");
    assert_eq!(expiry().await, before, "none of them counts");
    daemon.engine.renew(lease.clone(), 3 * PATIENCE).await.unwrap();
    assert!(expiry().await > before);
}

#[tokio::test]
async fn progress_within_its_bounds_is_shown_and_no_other() {
    let (daemon, lease) = claimed().await;
    let longest = "x".repeat(PROGRESS_BYTES_MAX);
    for percent in [0.0, 100.0] {
        daemon.engine.progress(lease.clone(), percent, longest.clone()).await.unwrap();
        let shown = job(&daemon, &lease).await.progress.unwrap();
        assert_eq!((shown.percent, &shown.message), (percent, &longest));
    }
    for percent in [-0.1, 100.1, f64::NAN] {
        let refused = daemon.engine.progress(lease.clone(), percent, String::new()).await;
        assert_eq!(field(refused), "percent");
    }
    let refused = daemon.engine.progress(lease.clone(), 1.0, format!("{longest}x")).await;
    assert_eq!(field(refused), "message");
    let [stale, unknown] = others(&lease);
    let refused = daemon.engine.progress(stale, 1.0, String::new()).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let refused = daemon.engine.progress(unknown, 1.0, String::new()).await;
    assert_eq!(refused, Err(Error::NotFound("job")));
    assert_eq!(job(&daemon, &lease).await.progress.unwrap().message, longest);
}

#[tokio::test]
async fn a_finish_has_its_result_and_ends_the_job_once() {
    let (daemon, lease) = claimed().await;
    let data = Some(Json::string("done"));
    let finish = |lease: LeaseRef| PullFinish { lease, status: Status::OK, data: data.clone() };
    let [stale, unknown] = others(&lease);
    let refused = daemon.engine.finish(finish(stale)).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(daemon.engine.finish(finish(unknown)).await, Err(Error::NotFound("job")));
    assert_eq!(job(&daemon, &lease).await.state, State::Running);
    daemon.engine.finish(finish(lease.clone())).await.unwrap();
    let view = daemon.engine.job(&lease.tenant, lease.id).await.unwrap();
    assert_eq!((view.job.state, view.result), (State::Finished, data));
}

/// The version of a handler never changes, so it is read once and kept.
#[tokio::test]
async fn a_finish_reads_the_store_once_before_it_writes() {
    for has_handler in [false, true] {
        let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
        let daemon = Daemon::start_on(store.clone(), |_| {}).await;
        daemon.engine.set_picking(false);
        if has_handler {
            daemon.engine.handler_set(&t, handler()).await.unwrap();
        }
        daemon.engine.add(&t, jobs(&["x", "y"]), None).await.unwrap();
        let pulled = daemon.engine.claim(wish(&t, PATIENCE)).await.unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        for pulled in &pulled {
            calls.lock().unwrap().clear();
            store.set_hook({
                let calls = calls.clone();
                move |call| {
                    calls.lock().unwrap().push(call);
                    std::future::ready(())
                }
            });
            let lease = LeaseRef::of(&pulled.job).unwrap();
            let finish = PullFinish { lease, status: Status::OK, data: Some(Json::string("x")) };
            daemon.engine.finish(finish).await.unwrap();
        }
        assert_eq!(*calls.lock().unwrap(), ["job_typed", "job_settle"], "{has_handler}");
    }
}
