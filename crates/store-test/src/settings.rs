//! Types: suspend, resume and settings.

use std::time::Duration;

use windlass_core::handler::TypeSettings;
use windlass_core::job::Progress;
use windlass_core::store::{LeaseRef, TypedJob};
use windlass_core::{RetryPolicy, TypeKey};

use crate::Harness;
use crate::fixture::{
    NOW, Subject, acme, claimed_numbers, globex, handler_spec, id, job, job_of, key,
};

fn full() -> TypeSettings {
    TypeSettings {
        weight: Some(10),
        concurrency: Some(3),
        rate: Some(0.25),
        timeout: Some(Duration::from_millis(1501)),
        retry: Some(RetryPolicy { attempts: 3, factor: 1.5, ..RetryPolicy::default() }),
        retention: Some(Duration::from_secs(3600)),
    }
}

pub async fn every_setting_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), TypeSettings::default());
    store.type_settings_put(&key("t"), full()).await.unwrap();
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), full());
}

pub async fn a_typed_job_comes_with_settings_and_handler(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let typed = async |number| store.job_typed(&acme(), id(number)).await.unwrap();
    assert_eq!(typed(1).await, None);
    store.add([job(1), job_of("other", 2)]).await;
    let plain =
        TypedJob { job: store.get(1).await, settings: TypeSettings::default(), handler: None };
    assert_eq!(typed(1).await, Some(plain));

    store.type_settings_put(&key("t"), full()).await.unwrap();
    for version in [100, 101] {
        store.handler_put(id(version), &key("t"), handler_spec()).await.unwrap();
    }
    let claimed = store.claim("t", 1, NOW).await.remove(0);
    let percent = Progress { percent: 9.0, message: "on".into(), at: NOW };
    let lease = LeaseRef::of(&claimed.job).expect("a claimed job has a lease");
    store.job_progress(vec![(lease, percent)]).await.unwrap();
    let typed_job = TypedJob { job: claimed.job, settings: full(), handler: Some(id(101)) };
    assert_eq!(typed(1).await, Some(typed_job));
    let other = typed(2).await.expect("it was added");
    assert_eq!((other.settings, other.handler), (TypeSettings::default(), None));

    store.handler_delete(&key("t")).await.unwrap();
    assert_eq!(typed(1).await.expect("it runs").handler, None);
}

/// An older version may have accepted them.
pub async fn numbers_out_of_range_are_read_as_the_nearest_within(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let retry = RetryPolicy { factor: -5.0, attempts: 0, ..RetryPolicy::default() };
    let odd = TypeSettings {
        weight: Some(0),
        concurrency: Some(u32::MAX),
        rate: Some(1e-20),
        timeout: Some(Duration::ZERO),
        retry: Some(retry.clone()),
        retention: Some(Duration::from_millis(u64::MAX)),
    };
    store.type_settings_put(&key("t"), odd.clone()).await.unwrap();
    let read = store.type_settings_get(&key("t")).await.unwrap();
    assert_eq!(read.check(), Ok(()));
    assert_eq!(read, odd.clamped());
    store.add([job(1)]).await;
    let waiting = store.waiting(NOW).await;
    assert_eq!(waiting.types[0].settings, read);

    let mut spec = handler_spec();
    spec.options.batch = Some(0);
    spec.options.contexts = Some(u32::MAX);
    spec.options.retry = Some(retry);
    spec.options.limits.memory = Some(1);
    store.at(NOW).handler_put(id(100), &key("t"), spec.clone()).await.unwrap();
    let read = store.handler_get(&key("t"), None).await.unwrap().expect("it was put").spec.options;
    assert_eq!(read.check(), Ok(()));
    assert_eq!(read, spec.options.clamped());
}

pub async fn new_settings_replace_all_old_ones(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_settings_put(&key("t"), full()).await.unwrap();
    let weight = TypeSettings { weight: Some(2), ..TypeSettings::default() };
    store.type_settings_put(&key("t"), weight.clone()).await.unwrap();
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), weight);
    store.type_settings_put(&key("t"), TypeSettings::default()).await.unwrap();
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), TypeSettings::default());
}

pub async fn settings_belong_to_one_type_of_one_tenant(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_settings_put(&key("t"), full()).await.unwrap();
    for other in [key("other"), TypeKey { tenant: globex(), ..key("t") }] {
        assert_eq!(store.type_settings_get(&other).await.unwrap(), TypeSettings::default());
    }
}

pub async fn s2_20_a_suspended_type_takes_jobs_and_gives_none(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    store.type_suspend(&key("t"), true).await.unwrap();
    store.add([job(2), job_of("other", 3)]).await;
    assert!(store.claim("t", 10, NOW).await.is_empty());
    let waiting = store.waiting(NOW).await;
    assert_eq!(waiting.types.len(), 1, "only the other type waits");
    assert_eq!(claimed_numbers(&store.claim("other", 10, NOW).await), [3]);

    store.type_suspend(&key("t"), false).await.unwrap();
    let waiting = store.waiting(NOW).await;
    assert_eq!(waiting.types.iter().map(|waiting| waiting.ready).collect::<Vec<_>>(), [2]);
    assert_eq!(claimed_numbers(&store.claim("t", 10, NOW).await), [1, 2]);
}

pub async fn a_type_may_be_suspended_before_its_first_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_suspend(&key("t"), true).await.unwrap();
    store.type_suspend(&key("t"), true).await.unwrap();
    store.add([job(1)]).await;
    assert!(store.claim("t", 10, NOW).await.is_empty());
    assert!(store.stats("t", NOW).await.expect("the type is there").suspended);
    store.type_suspend(&key("t"), false).await.unwrap();
    assert_eq!(store.claim("t", 10, NOW).await.len(), 1);
}

pub async fn suspension_settings_and_handler_leave_each_other_alone(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.type_suspend(&key("t"), true).await.unwrap();
    store.type_settings_put(&key("t"), full()).await.unwrap();
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    let stats = store.stats("t", NOW).await.expect("the type is there");
    assert!(stats.suspended && stats.handler);
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), full());

    store.handler_delete(&key("t")).await.unwrap();
    store.type_suspend(&key("t"), false).await.unwrap();
    assert_eq!(store.type_settings_get(&key("t")).await.unwrap(), full());
}
