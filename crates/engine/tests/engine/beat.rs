//! A daemon's leases in the store and the jobs that it runs are brought into line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use windlass_core::State;
use windlass_core::job::{Boot, Token};
use windlass_core::memory::MemoryStore;
use windlass_core::runner::Stop;
use windlass_core::store::prelude::*;
use windlass_core::store::{Claim, EndRequest, Hold, Pick};

use windlass_test_kit::wait::{eventually, in_time, pause};

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
        payload_bytes_max: u64::MAX,
    };
    let claimed = async {
        while store.job_claim(claim()).await.unwrap().jobs.is_empty() {
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

#[tokio::test]
async fn a_store_that_seems_damaged_once_does_not_end_the_daemon_and_twice_does() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.damage_beats(1);
    eventually("a beat fails", || (store.beats_damaged() == 0).then_some(())).await;
    let id = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    let failed = tokio::time::timeout(Duration::ZERO, daemon.engine.failed()).await;
    assert!(failed.is_err(), "{failed:?}");
    store.damage_beats(2);
    let why = in_time("the daemon ends", daemon.engine.failed()).await;
    assert!(why.contains("damaged"), "{why}");
}

/// Shorter than the silence after which a store hangs, and long enough that a busy machine does not
/// seem suspended.
const LEASE: Duration = Duration::from_secs(4);

#[tokio::test]
async fn adds_wait_once_for_a_store_that_hangs() {
    /// If each waited, they would take longer than any test waits.
    const ADDS: usize = 60;
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |options| options.lease = LEASE).await;
    store.hold_beats(true);
    let add = async || {
        daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap();
        pause().await;
    };
    let adds = async {
        while daemon.engine.readiness().await.store.is_ok() {
            add().await;
        }
        for _ in 0..ADDS {
            add().await;
        }
    };
    in_time("all are accepted", adds).await;
}

/// The store answers reads meanwhile, as one whose writer hangs.
#[tokio::test]
async fn a_store_that_hangs_shows_in_the_readiness_until_it_answers_again() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |options| options.lease = LEASE).await;
    assert_eq!(daemon.engine.readiness().await.store, Ok(()));
    for hangs in [true, false] {
        store.hold_beats(hangs);
        let shown = async {
            while daemon.engine.readiness().await.store.is_err() != hangs {
                pause().await;
            }
        };
        in_time("the readiness follows the store", shown).await;
    }
}

/// As on a server whose standby is missing: synced calls are not answered, and all others are.
#[tokio::test]
async fn beats_go_on_while_a_new_boot_number_is_waited_for() {
    const BEATS: usize = 10;
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), |_| {}).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    let (held, beats) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (waits, counted) = (held.clone(), beats.clone());
    store.set_hook(move |call| {
        let is_held = call == "boot_next";
        waits.fetch_or(is_held, Ordering::SeqCst);
        if call == "sysid_renew" && waits.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        async move {
            if is_held {
                std::future::pending::<()>().await;
            }
        }
    });
    let id = daemon.engine.add(&t, jobs(&["hang"]), None).await.unwrap().ids[0];
    daemon.runner.started(id).await;
    eventually("a boot number is waited for", || held.load(Ordering::SeqCst).then_some(())).await;
    let enough = || (beats.load(Ordering::SeqCst) >= BEATS).then_some(());
    eventually("beats go on", enough).await;
    assert_eq!(daemon.runner.stopped(), []);
    daemon.runner.finish(id);
    assert_eq!(ended(&daemon, &t, id).await, State::Finished);
}
