//! Settings out of range and services that panic: what is noticed, what is shown, what goes on.

use std::sync::Arc;

use windlass_core::memory::MemoryStore;
use windlass_core::store::prelude::*;
use windlass_core::{State, TypeSettings};
use windlass_engine::Error;

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

/// An older version took such a rate, and it is still in the store.
#[tokio::test]
async fn a_stored_rate_next_to_nothing_stops_no_other_tenant() {
    let store = Arc::new(MemoryStore::new());
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
