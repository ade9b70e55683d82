//! A take that asks for hidden jobs reads a bounded number of types, and none of other tenants.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use tempfile::TempDir;
use windlass_core::edit::{Names, Put, Take, TakeAnswer, TakeDecision};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::Durability;
use windlass_core::store::prelude::*;
use windlass_core::{Extra, NewJob, Payload, Priority, State, Tenant, TypeKey};
use windlass_store_sqlite::SqliteStore;

use common::{assert_consistent, id, insert, job};

/// More than one call reads.
const TYPES: i64 = 10_100;

async fn add_hidden(store: &SqliteStore, jobs: impl Iterator<Item = (i64, String, i64)>) {
    let extra = Extra { hidden: true, ..Extra::default() };
    let jobs: Vec<NewJob> = jobs
        .map(|(number, name, urgency)| NewJob {
            key: TypeKey::new("acme", &name).unwrap(),
            priority: Priority::new(urgency).unwrap(),
            extra: extra.clone(),
            ..job(number)
        })
        .collect();
    for batch in jobs.chunks(BATCH_JOBS_MAX) {
        store.job_insert(insert(batch.to_vec(), Durability::Relaxed)).await.unwrap();
    }
}

/// Cancels what it takes.
fn take(tenant: &str, names: &str) -> Take {
    let decide = |full: &windlass_core::edit::FullJob, _: _, _: _| {
        let mut job = full.job.clone();
        job.state = State::Cancelled;
        TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
    };
    let names = Names::Glob(names.into());
    let take = Take::new(Tenant::new(tenant).unwrap(), names, 1, Arc::new(decide));
    Take { hidden: true, ..take }
}

fn taken(answer: &TakeAnswer) -> Vec<windlass_core::JobId> {
    answer.given.iter().map(|taken| taken.job.id).collect()
}

#[tokio::test]
async fn one_call_reads_a_bounded_number_of_hidden_types_and_the_next_one_continues() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = SqliteStore::open(common::options(&path)).unwrap();
    add_hidden(&store, (1..=TYPES).map(|n| (n, format!("other/{n:05}"), 900))).await;
    add_hidden(&store, [(TYPES + 1, "the/one".into(), 1)].into_iter()).await;

    let first = store.job_take(take("acme", "*one")).await.unwrap();
    assert!(first.given.is_empty() && first.next.is_some(), "{first:?}");
    let second = Take { after: first.next, ..take("acme", "*one") };
    let second = store.job_take(second).await.unwrap();
    assert_eq!((taken(&second), second.next), (vec![id(TYPES + 1)], None));

    let theirs = store.job_take(take("globex", "*")).await.unwrap();
    assert_eq!((taken(&theirs), theirs.next), (vec![], None), "types of others are not read");
    store.close().await;
    assert_consistent(&path);
}

/// A search continues behind a position, which the two queues of a type may share.
#[tokio::test]
async fn a_call_never_stops_between_the_two_queues_of_a_type() {
    /// The first call reads as many fronts: the one before all others, and the first of these types
    /// with two each, the last of them in part.
    const FRONTS: i64 = 10_000;
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::open(common::options(directory.path().join("jobs.db"))).unwrap();
    add_hidden(&store, [(1, "0".into(), 901)].into_iter()).await;
    let name = |n: i64| format!("t/{n:05}");
    let types = 1..=TYPES / 2;
    add_hidden(&store, types.clone().map(|n| (2 * n, name(n), 900))).await;
    let plain = types.map(|n| NewJob {
        key: TypeKey::new("acme", &name(n)).unwrap(),
        priority: Priority::new(900).unwrap(),
        payload: Payload::Inline(vec![b'x'; 1000].into()),
        ..job(2 * n + 1)
    });
    for batch in plain.collect::<Vec<_>>().chunks(BATCH_JOBS_MAX) {
        store.job_insert(insert(batch.to_vec(), Durability::Relaxed)).await.unwrap();
    }
    // Of the type at the bound, only the hidden job is small enough.
    let last = FRONTS / 2;
    let small = Take { payload_bytes_max: 100, ..take("acme", &format!("*/{last:05}")) };
    let first = store.job_take(small.clone()).await.unwrap();
    let second = store.job_take(Take { after: first.next.clone(), ..small }).await.unwrap();
    assert_eq!([taken(&first), taken(&second)].concat(), [id(2 * last)]);
    store.close().await;
}
