//! While a job with a unique key has not ended, no other job of its type with this key is inserted.

use windlass_core::store::{Changed, Inserted};
use windlass_core::{NewJob, TypeKey};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, everything_of, give_up_expired, globex, id, job,
    job_of, key, numbers, queued, settlement,
};

fn unique(number: i64, unique: &str) -> NewJob {
    NewJob { unique: Some(unique.into()), ..job(number) }
}

pub async fn a_held_job_does_not_enter(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([unique(1, "k")]).await;
    assert_eq!(store.insert([unique(2, "k")]).await, [Inserted::Held(id(1))]);

    assert_eq!(store.find(2).await, None);
    assert_eq!(store.job_payload(&acme(), id(2)).await.unwrap(), None);
    assert_eq!(numbers(&store.listed(everything_of(acme())).await), [1]);
    assert_eq!(store.stats("t", NOW).await.expect("the type is there").ready, 1);
    assert_eq!(store.get(1).await, queued(&unique(1, "k")));
}

pub async fn a_key_is_held_until_its_job_ends(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { run_at: after(5), ..unique(1, "k") }]).await;
    let held = [Inserted::Held(id(1))];
    assert_eq!(store.insert([unique(2, "k")]).await, held, "deferred");

    let claimed = store.claim_one("t", after(5)).await;
    assert_eq!(store.insert([unique(2, "k")]).await, held, "running");
    store.settle(settlement(&claimed, store.again(after(60)))).await;
    assert_eq!(store.insert([unique(2, "k")]).await, held, "to be tried again");

    let claimed = store.claim_one("t", after(60)).await;
    store.settle(settlement(&claimed, FINISHED)).await;
    assert_eq!(store.insert([unique(2, "k")]).await, [Inserted::New], "finished");
    assert_eq!(store.insert([unique(3, "k")]).await, [Inserted::Held(id(2))]);
}

pub async fn every_ending_frees_the_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(unique(1, "k"), FINISHED).await;
    store.ran(unique(2, "k"), FAILED).await;
    store.add([unique(3, "k")]).await;
    store.cancel(3, NOW).await;
    store.add([NewJob { expires_at: Some(after(1)), ..unique(4, "k") }]).await;
    assert_eq!(store.at(after(1)).job_give_up(give_up_expired()).await.unwrap().len(), 1);
    store.add([unique(5, "k")]).await;
    assert!(matches!(store.delete(5).await, Changed::Done(_)));
    store.add([unique(6, "k")]).await;
    assert_eq!(store.insert([unique(7, "k")]).await, [Inserted::Held(id(6))]);
}

pub async fn a_key_is_held_within_a_batch(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let answers = store.insert([unique(2, "k"), unique(1, "k"), unique(3, "l")]).await;
    assert_eq!(answers, [Inserted::New, Inserted::Held(id(2)), Inserted::New]);
}

pub async fn a_repeated_insert_of_the_holder_is_a_duplicate(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([unique(1, "k")]).await;
    assert_eq!(store.insert([unique(1, "k")]).await, [Inserted::Duplicate]);
}

pub async fn keys_belong_to_one_type_of_one_tenant(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let other_type = NewJob { key: key("other"), ..unique(2, "k") };
    let other_tenant = NewJob { key: TypeKey { tenant: globex(), ..key("t") }, ..unique(3, "k") };
    store.add([unique(1, "k"), other_type, other_tenant]).await;
}

pub async fn keys_are_taken_to_the_letter(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let longest = "k".repeat(windlass_core::limit::KEY_BYTES_MAX);
    let keys = ["k", "K", "k ", " k", "", "ü", "u", "k%", "k'", longest.as_str()];
    store.add(keys.iter().zip(1..).map(|(key, number)| unique(number, key))).await;
    for (key, number) in keys.iter().zip(1..) {
        assert_eq!(store.insert([unique(99, key)]).await, [Inserted::Held(id(number))]);
    }
}

pub async fn jobs_without_a_key_are_never_held(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([unique(1, "k"), job(2), job(3), job_of("other", 4)]).await;
}
