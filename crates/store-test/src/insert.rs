//! Jobs are inserted once, completely and in order.

use std::time::Duration;

use windlass_core::limit::{BATCH_JOBS_MAX, TENANT_BYTES_MAX, TYPE_BYTES_MAX};
use windlass_core::store::{Changed, Inserted};
use windlass_core::{NewJob, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, after, everything_of, globex, id, job, job_of, key, priority,
    queued,
};

pub async fn s0_12_a_new_job_waits_for_its_time_and_has_no_owner(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let new = NewJob { run_at: after(60), ..job(1) };
    store.add([new.clone()]).await;

    let seen = store.get(1).await;
    assert_eq!(seen.run_at, after(60));
    assert_eq!(seen.lease, None);
    assert_eq!(seen, queued(&new));
}

pub async fn a_time_that_has_passed_is_shown_and_means_now(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { run_at: NOW, created_at: after(60), ..job(1) }]).await;
    let seen = store.get(1).await;
    assert_eq!((seen.run_at, seen.due_at), (NOW, after(60)));
}

pub async fn every_field_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let new = NewJob {
        priority: priority(999),
        run_at: after(5),
        created_at: after(1),
        expires_at: Some(after(90)),
        timeout: Some(Duration::from_millis(1501)),
        unique: Some("an \"odd\" key; with ' and ü".into()),
        ..job(1)
    };
    store.add([new.clone()]).await;
    assert_eq!(store.get(1).await, queued(&new));
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), Some(new.payload));
}

pub async fn answers_come_in_the_order_of_the_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(2), job(4)]).await;
    let answers = store.insert([job(4), job(3), job(2), job(1)]).await;
    let expected = [Inserted::Duplicate, Inserted::New, Inserted::Duplicate, Inserted::New];
    assert_eq!(answers, expected);
}

pub async fn s0_25_a_repeated_insert_changes_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let other = NewJob { run_at: after(9), priority: priority(1), ..job_of("other", 1) };
    assert_eq!(store.insert([other]).await, [Inserted::Duplicate]);

    assert_eq!(store.get(1).await, queued(&job(1)));
    assert_eq!(store.job_payload(&acme(), id(1)).await.unwrap(), Some(job(1).payload));
    assert_eq!(store.claim("t", 10, NOW).await.len(), 1);
    assert!(store.claim("other", 10, after(10)).await.is_empty());
}

pub async fn a_repeated_insert_does_not_revive_an_ended_job(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    assert_eq!(store.insert([job(1)]).await, [Inserted::Duplicate]);
    assert_eq!(store.get(1).await.state, State::Finished);
    assert!(store.claim("t", 10, after(60)).await.is_empty());
}

pub async fn an_id_is_taken_once_in_a_batch(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let answers = store.insert([job(1), job_of("other", 1)]).await;
    assert_eq!(answers, [Inserted::New, Inserted::Duplicate]);
    assert_eq!(store.get(1).await.key, key("t"));
}

pub async fn an_id_whose_job_was_held_back_is_free_in_the_same_batch(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let keyed = |number| NewJob { unique: Some("key".into()), ..job(number) };
    let answers = store.insert([keyed(1), keyed(2), job_of("other", 2), job(2)]).await;
    assert_eq!(answers, [Inserted::New, Inserted::Held(id(1)), Inserted::New, Inserted::Duplicate]);
    assert_eq!(store.get(2).await.key, key("other"));
}

pub async fn an_id_is_taken_once_across_tenants(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let theirs = NewJob { key: TypeKey { tenant: globex(), ..key("t") }, ..job(1) };
    assert_eq!(store.insert([theirs]).await, [Inserted::Duplicate]);
    assert_eq!(store.job_get(&globex(), id(1)).await.unwrap(), None);
}

pub async fn an_empty_insert_is_harmless(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.insert([]).await, []);
    assert_eq!(store.type_stats(None).await.unwrap(), []);
}

pub async fn types_come_into_being_by_themselves(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.stats("t", NOW).await, None);
    store.add([job(1)]).await;
    let stats = store.stats("t", NOW).await.expect("the type is there");
    assert!(!stats.handler && !stats.suspended);

    // The type stays when its last job is deleted.
    assert!(matches!(store.delete(1).await, Changed::Done(_)));
    assert!(store.stats("t", NOW).await.is_some());
}

pub async fn names_are_taken_to_the_letter(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let longest = "x".repeat(TYPE_BYTES_MAX);
    let names =
        ["t", "T", "t ", " t", "t'", "t\"", "t%", "t_", "ü", "Ü", "u", "a/b", "日本", &longest];
    let long_tenant = "Y".repeat(TENANT_BYTES_MAX);
    let tenants = ["acme", "Acme", "acme.", "a-c_m.e", long_tenant.as_str()];
    let keys: Vec<TypeKey> = tenants
        .iter()
        .flat_map(|tenant| names.iter().map(|name| TypeKey::new(tenant, name).unwrap()))
        .collect();
    let jobs = keys.iter().zip(1..).map(|(key, n)| NewJob { key: key.clone(), ..job(n) });
    store.add(jobs).await;

    let waiting = store.waiting(NOW).await;
    assert_eq!(waiting.types.len(), keys.len());
    assert!(waiting.types.iter().all(|waiting| waiting.ready == 1), "{waiting:?}");
    for (key, number) in keys.iter().zip(1..) {
        let seen = store.job_get(&key.tenant, id(number)).await.unwrap();
        assert_eq!(seen.map(|job| job.key), Some(key.clone()));
    }
    for tenant in tenants {
        let tenant = TypeKey::new(tenant, "t").unwrap().tenant;
        assert_eq!(store.listed(everything_of(tenant)).await.len(), names.len());
    }
}

pub async fn ids_have_63_bits(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(i64::MAX), job(1)]).await;
    assert_eq!(store.get(i64::MAX).await.id.get(), i64::MAX);
    assert_eq!(store.id_newest().await.unwrap(), Some(id(i64::MAX)));
}

pub async fn a_full_batch_goes_in_at_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=BATCH_JOBS_MAX as i64).map(job)).await;
    let stats = store.stats("t", NOW).await.expect("the type is there");
    assert_eq!(stats.ready, BATCH_JOBS_MAX as u64);
}
