//! The store itself: what it can do, whether it answers, and its end.

use std::time::Duration;

use windlass_core::limit::PAYLOAD_PIECE_BYTES;
use windlass_core::store::{Durability, Error, Insert};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, claim_of, everything_of, handler_spec, id, job, key, pick,
    settlement,
};

/// How long the store is given to return from `changed` although it never may.
const PATIENCE: Duration = Duration::from_millis(20);

pub async fn it_answers_and_flushes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ping().await.unwrap();
    store.flush().await.unwrap();
    store.add([job(1)]).await;
    store.flush().await.unwrap();
    assert_eq!(store.get(1).await.id, id(1));
}

pub async fn it_says_what_it_can_do(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let capabilities = store.capabilities();
    assert!(!capabilities.name.is_empty());
    assert!(capabilities.payload_inline_bytes_max >= PAYLOAD_PIECE_BYTES);
    assert_eq!(capabilities.shared, harness.second().await.is_some());
}

pub async fn without_wakes_it_never_tells_of_changes(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    if store.capabilities().wakes {
        return;
    }
    store.add([job(1)]).await;
    assert!(tokio::time::timeout(PATIENCE, store.changed()).await.is_err());
}

pub async fn a_closed_store_is_not_available(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.close().await;
    let unavailable = |error: Option<Error>| matches!(error, Some(Error::Unavailable(_)));

    let (jobs, keys, durability) = (vec![job(2)], Vec::new(), Durability::Synced);
    let insert = Insert { jobs, keys, mark: None, durability };
    assert!(unavailable(store.job_insert(insert).await.err()));
    let claim = claim_of(vec![pick("t", 1)]);
    assert!(unavailable(store.job_claim(claim).await.err()));
    let ends = [settlement(&claimed, FINISHED)].into();
    assert!(unavailable(store.job_settle(ends, durability).await.err()));
    assert!(unavailable(store.job_get(&acme(), id(1)).await.err()));
    assert!(unavailable(store.job_list(everything_of(acme())).await.err()));
    assert!(unavailable(store.type_first(None, 1, 1).await.err()));
    let put = store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await;
    assert!(unavailable(put.err()));
    assert!(unavailable(store.ping().await.err()));
    assert!(unavailable(store.flush().await.err()));
    store.close().await;
}
