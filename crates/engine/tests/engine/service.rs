//! Settings out of range and services that panic: what is shown, and what continues.

use std::sync::Arc;

use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::{State, TypeSettings};
use windlass_engine::Error;
use windlass_engine::api::FailedService;

use windlass_test_kit::wait::{in_time, pause};

use crate::fake::{Daemon, handler, jobs, key};
use crate::{ended, quick};

fn rate(rate: f64) -> TypeSettings {
    TypeSettings { rate: Some(rate), ..TypeSettings::default() }
}

#[tokio::test]
async fn a_rate_next_to_nothing_is_refused_with_its_range() {
    let daemon = Daemon::start(|_| {}).await;
    let t = key("acme", "t");
    for odd in [1e-20, 0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let refused = daemon.engine.type_settings_put(&t, rate(odd)).await;
        let Err(Error::Invalid(invalid)) = refused else { panic!("{odd}: {refused:?}") };
        assert_eq!(invalid.field, "rate");
        assert!(invalid.reason.contains("from 0.000001 to 1000000"), "{}", invalid.reason);
    }
    assert_eq!(daemon.engine.type_settings_get(&t).await, Ok(TypeSettings::default()));
}

/// An older version accepted such a rate, and it is still in the store.
#[tokio::test]
async fn a_stored_rate_next_to_nothing_stops_no_other_tenant() {
    let store = Arc::new(MemoryStore::default());
    let (slow, other) = (key("acme", "slow"), key("globex", "t"));
    store.type_settings_put(&slow, rate(1e-20)).await.unwrap();
    let daemon = Daemon::start_on(store, quick).await;
    for key in [&slow, &other] {
        daemon.engine.handler_set(key, handler()).await.unwrap();
    }
    let first = daemon.engine.add(&slow, jobs(&["200", "200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &slow, first).await, State::Finished);
    let id = daemon.engine.add(&other, jobs(&["200"]), None).await.unwrap().ids[0];
    assert_eq!(ended(&daemon, &other, id).await, State::Finished);
}

/// One slot, so that everything stops if the panic keeps it. `batch_max` is called under the
/// scheduler's lock, `check` when the jobs are claimed.
#[tokio::test]
async fn jobs_run_on_after_the_dispatcher_panics() {
    for call in ["warm", "batch_max", "check"] {
        let daemon = Daemon::start(|options| {
            quick(options);
            options.slots = 1;
            options.slots_reserved = 0;
        })
        .await;
        let t = key("acme", "t");
        daemon.engine.handler_set(&t, handler()).await.unwrap();
        daemon.runner.set_panics(call, 1);
        let ids = daemon.engine.add(&t, jobs(&["200", "200"]), None).await.unwrap().ids;
        for id in ids {
            assert_eq!(ended(&daemon, &t, id).await, State::Finished, "{call}");
        }
        assert_eq!(daemon.runner.panics_left(call), 0);
        let services = daemon.engine.readiness().await.services.unwrap_err();
        assert_eq!(services, "the service dispatch has panicked once in the last 5m");
        let failed = FailedService { name: "dispatch", failures: 1 };
        assert_eq!(daemon.engine.status().await.services, [failed]);
        let metrics = daemon.engine.metrics_text().await;
        let line = r#"windlass_service_failures_total{service="dispatch"} 1"#;
        assert!(metrics.lines().any(|seen| seen == line), "{metrics}");
    }
}

/// A panic of the runner costs a job an attempt; this one happens after all jobs were reported.
#[tokio::test]
async fn a_batch_that_panics_gives_its_slot_back() {
    let daemon = Daemon::start(|options| {
        quick(options);
        options.slots = 1;
        options.slots_reserved = 0;
    })
    .await;
    let t = key("acme", "t");
    let settings = TypeSettings { concurrency: Some(1), ..TypeSettings::default() };
    daemon.engine.type_settings_put(&t, settings).await.unwrap();
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    daemon.runner.set_panics("end of run", 1);
    let ids = daemon.engine.add(&t, jobs(&["200", "200"]), None).await.unwrap().ids;
    for id in ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
    assert_eq!(daemon.runner.panics_left("end of run"), 0);
    let services = daemon.engine.readiness().await.services.unwrap_err();
    assert_eq!(services, "the service batch has panicked once in the last 5m");
}

/// Later jobs must not overtake those that the panicking pass had reserved: the store's position
/// would be past them, and they would be skipped.
#[tokio::test]
async fn jobs_that_were_being_ingested_in_a_panic_are_not_overtaken() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let t = key("acme", "t");
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.set_panics(1);
    let mut ids = daemon.engine.add(&t, jobs(&["200"; 3]), None).await.unwrap().ids;
    let panicked = async {
        while daemon.engine.status().await.services.is_empty() {
            pause().await;
        }
    };
    in_time("the panic", panicked).await;
    ids.extend(daemon.engine.add(&t, jobs(&["200"; 3]), None).await.unwrap().ids);
    assert_eq!(ended(&daemon, &t, ids[5]).await, State::Finished);
    for id in ids {
        assert!(store.job_get(&t.tenant, id).await.unwrap().is_some(), "{id} was overtaken");
    }
    let services = daemon.engine.readiness().await.services.unwrap_err();
    assert!(services.starts_with("the service ingest has panicked"), "{services}");
}
