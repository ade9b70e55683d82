//! How operations become transactions: in groups, synced if promised, and in turn with other
//! processes.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;
use windlass_core::edit::{Ask, Decision, Edit, FamilyView, Refusal, Target};
use windlass_core::handler::{HandlerSpec, Lang};
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, EndRequest, Error, Inserted, Insertion};
use windlass_core::{NewJob, Priority, Store, TypeKey};
use windlass_store_sqlite::SqliteStore;

use common::{assert_consistent, claim, done, id, insert, job, key, tenant};

/// A store that records which of its commits were synced.
struct Watched {
    store: Arc<SqliteStore>,
    synced: Arc<Mutex<Vec<bool>>>,
    path: PathBuf,
    _directory: TempDir,
}

impl Watched {
    fn new(busy_timeout: Duration) -> Watched {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("jobs.db");
        let synced = Arc::new(Mutex::new(Vec::new()));
        let noted = synced.clone();
        let mut options = common::options(&path);
        options.busy_timeout = busy_timeout;
        options.on_commit = Some(Arc::new(move |_, synced| noted.lock().unwrap().push(synced)));
        let store = Arc::new(SqliteStore::open(options).unwrap());
        Watched { store, synced, path, _directory: directory }
    }

    /// Whether each commit since the last call was synced.
    fn commits(&self) -> Vec<bool> {
        std::mem::take(&mut self.synced.lock().unwrap())
    }

    /// A connection of another process, in the middle of a transaction.
    fn locked_by_another(&self) -> Connection {
        let other = Connection::open(&self.path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other
    }
}

const PATIENT: Duration = Duration::from_secs(60);

fn spec() -> HandlerSpec {
    HandlerSpec::new(Lang::Sh, "cat")
}

#[tokio::test]
async fn s2_39_what_waits_together_is_committed_together() {
    const CALLERS: i64 = 200;
    let watched = Watched::new(PATIENT);
    let other = watched.locked_by_another();
    let mut callers = JoinSet::new();
    for number in 1..=CALLERS {
        let store = watched.store.clone();
        callers.spawn(async move {
            store.job_insert(insert(vec![job(number)], Durability::Relaxed)).await.unwrap()
        });
    }
    // Every caller runs once, and queues its operation.
    tokio::task::yield_now().await;
    other.execute_batch("ROLLBACK").unwrap();
    let answers = callers.join_all().await;
    let new = Insertion::Done(vec![Inserted::New]);
    assert!(answers.iter().all(|answer| *answer == new));
    let commits = watched.commits().len();
    assert!(commits <= 20, "{commits} commits for {CALLERS} callers");
}

#[tokio::test]
async fn a_commit_is_synced_only_when_an_operation_promises_it() {
    let watched = Watched::new(PATIENT);
    let store = &*watched.store;
    store.job_insert(insert(vec![job(1), job(2)], Durability::Relaxed)).await.unwrap();
    let claimed = claim(store, 1).await;
    store.job_settle([done(&claimed[0])].into(), Durability::Relaxed).await.unwrap();
    assert_eq!(watched.commits(), [false, false, false]);

    let claimed = claim(store, 1).await;
    store.job_settle([done(&claimed[0])].into(), Durability::Synced).await.unwrap();
    store.job_insert(insert(vec![job(3)], Durability::Synced)).await.unwrap();
    let end = EndRequest { tenant: tenant(), id: id(3), keep: Duration::ZERO };
    store.job_cancel(end).await.unwrap();
    store.type_suspend(&key(), true).await.unwrap();
    assert_eq!(watched.commits(), [false, true, true, true, true]);

    store.job_insert(insert(vec![job(4)], Durability::Relaxed)).await.unwrap();
    assert_eq!(watched.commits(), [false]);
}

#[tokio::test]
async fn a_synced_call_that_changes_nothing_still_syncs_what_came_before() {
    let watched = Watched::new(PATIENT);
    let store = &*watched.store;
    store.job_insert(insert(vec![job(1)], Durability::Relaxed)).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(watched.commits(), [false, true]);
    let again = store.job_insert(insert(vec![job(1)], Durability::Synced)).await.unwrap();
    assert_eq!(again, Insertion::Done(vec![Inserted::Duplicate]));
    assert_eq!(watched.commits(), [true]);
    let again = store.job_insert(insert(vec![job(1)], Durability::Relaxed)).await.unwrap();
    assert_eq!(again, Insertion::Done(vec![Inserted::Duplicate]));
    assert!(watched.commits().is_empty());
}

#[tokio::test]
async fn another_processs_transaction_makes_writes_unavailable_until_it_ends() {
    let watched = Watched::new(Duration::from_millis(20));
    let store = &*watched.store;
    store.job_insert(insert(vec![job(1)], Durability::Relaxed)).await.unwrap();
    let other = watched.locked_by_another();
    let refused = store.job_insert(insert(vec![job(2)], Durability::Relaxed)).await;
    assert!(matches!(&refused, Err(Error::Unavailable(m)) if m.contains("lock")), "{refused:?}");
    assert!(store.job_get(&tenant(), id(1)).await.unwrap().is_some(), "reads go on");

    other.execute_batch("ROLLBACK").unwrap();
    let accepted = store.job_insert(insert(vec![job(2)], Durability::Relaxed)).await;
    assert_eq!(accepted.unwrap(), Insertion::Done(vec![Inserted::New]));
}

#[tokio::test]
async fn an_operation_that_fails_half_way_does_not_spoil_its_neighbours() {
    const NEIGHBOURS: i64 = 20;
    let watched = Watched::new(PATIENT);
    watched.store.handler_put(id(1000), &key(), spec()).await.unwrap();
    let other = watched.locked_by_another();
    let mut neighbours = JoinSet::new();
    for number in 1..=NEIGHBOURS {
        let store = watched.store.clone();
        neighbours.spawn(async move {
            store.job_insert(insert(vec![job(number)], Durability::Relaxed)).await.unwrap();
        });
    }
    let store = watched.store.clone();
    // It creates its type first, and then finds that the id belongs to another type.
    let new_type = TypeKey::new("acme", "new").unwrap();
    let failing = tokio::spawn(async move { store.handler_put(id(1000), &new_type, spec()).await });
    tokio::task::yield_now().await;
    other.execute_batch("ROLLBACK").unwrap();
    neighbours.join_all().await;
    assert!(matches!(failing.await.unwrap(), Err(Error::Conflict(_))));
    let commits = watched.commits().len();
    assert!(commits < NEIGHBOURS as usize / 2, "its neighbours stay together: {commits} commits");

    let stats = watched.store.type_stats(None).await.unwrap();
    assert_eq!(stats.len(), 1, "the type of the failed call is gone");
    assert_eq!(stats[0].ready, NEIGHBOURS as u64);
    watched.store.close().await;
    assert_consistent(&watched.path);
}

#[tokio::test]
async fn a_decision_that_refuses_half_way_leaves_nothing_among_its_neighbours() {
    const NEIGHBOURS: i64 = 20;
    let watched = Watched::new(PATIENT);
    let urgent = |number| NewJob { priority: Priority::new(1000).unwrap(), ..job(number) };
    let other = watched.locked_by_another();
    let mut calls = JoinSet::new();
    for number in 1..=NEIGHBOURS {
        let store = watched.store.clone();
        calls.spawn(async move {
            store.job_insert(insert(vec![job(number)], Durability::Relaxed)).await.unwrap();
            true
        });
        let store = watched.store.clone();
        let new_type = TypeKey::new("acme", &format!("new {number}")).unwrap();
        let edits = [urgent(100 + number), NewJob { key: new_type, ..urgent(200 + number) }];
        let edits: Vec<Edit> = edits.into_iter().map(|new| Edit::Insert(Box::new(new))).collect();
        let decide = move |index: usize, _: &FamilyView, _| match index {
            0 => Ok(Decision { edits: edits.clone(), id: None }),
            _ => Err(Refusal::new(405, "no")),
        };
        let targets = vec![Target::Job(id(1)), Target::Job(id(1))];
        let (tenant, durability, decide) = (tenant(), Durability::Relaxed, Arc::new(decide));
        let ask = Ask { tenant, targets, decide, durability };
        calls.spawn(async move { store.job_decide(ask).await.is_ok() });
    }
    tokio::task::yield_now().await;
    other.execute_batch("ROLLBACK").unwrap();
    let done = calls.join_all().await.into_iter().filter(|done| *done).count();
    assert_eq!(done, NEIGHBOURS as usize, "decisions refuse, inserts do not");

    let stats = watched.store.type_stats(None).await.unwrap();
    assert_eq!((stats.len(), stats[0].ready), (1, NEIGHBOURS as u64));
    let first = claim(&*watched.store, 1).await.remove(0);
    assert_eq!(first.job.id, id(1), "none of the urgent ones is there");
    watched.store.close().await;
    assert_consistent(&watched.path);
}

#[tokio::test]
async fn a_type_whose_creation_was_undone_is_made_again() {
    let watched = Watched::new(PATIENT);
    let store = &*watched.store;
    store.handler_put(id(1000), &key(), spec()).await.unwrap();
    let new_type = TypeKey::new("acme", "new").unwrap();
    let failed = store.handler_put(id(1000), &new_type, spec()).await;
    assert!(matches!(failed, Err(Error::Conflict(_))));
    store.handler_put(id(1001), &new_type, spec()).await.unwrap();
    let handler = store.handler_get(&new_type, None).await.unwrap().unwrap();
    assert_eq!((handler.id, handler.key), (id(1001), new_type));
}

/// A panic in a decision is only its caller's error: the other operations of its group, and later
/// ones, succeed.
#[tokio::test]
async fn a_decision_that_panics_does_not_close_the_writer() {
    const NEIGHBOURS: i64 = 20;
    let watched = Watched::new(PATIENT);
    let other = watched.locked_by_another();
    let mut calls = JoinSet::new();
    for number in 1..=NEIGHBOURS {
        let store = watched.store.clone();
        calls.spawn(async move {
            store.job_insert(insert(vec![job(number)], Durability::Relaxed)).await.map(drop)
        });
    }
    let decide = |index: usize, _: &FamilyView, _| match index {
        0 => Ok(Decision { edits: vec![Edit::Insert(Box::new(job(100)))], id: None }),
        _ => panic!("a defect"),
    };
    let targets = vec![Target::Job(id(1)), Target::Job(id(1))];
    let (tenant, durability, decide) = (tenant(), Durability::Relaxed, Arc::new(decide));
    let ask = Ask { tenant, targets, decide, durability };
    let store = watched.store.clone();
    let panicking = tokio::spawn(async move { store.job_decide(ask).await });
    tokio::task::yield_now().await;
    other.execute_batch("ROLLBACK").unwrap();
    let answers = calls.join_all().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let answer = panicking.await.unwrap();
    assert!(matches!(&answer, Err(Error::Internal(m)) if m.contains("a defect")), "{answer:?}");

    assert_eq!(claim(&*watched.store, 99).await.len(), NEIGHBOURS as usize, "it goes on");
    watched.store.close().await;
    assert_consistent(&watched.path);
}

/// The commit callback is code of the caller too.
#[tokio::test]
async fn a_watcher_of_commits_that_panics_does_not_close_the_writer() {
    let directory = TempDir::new().unwrap();
    let mut options = common::options(directory.path().join("jobs.db"));
    options.on_commit = Some(Arc::new(|_, _| panic!("a defect")));
    let store = SqliteStore::open(options).unwrap();
    for number in 1..=2 {
        let added = store.job_insert(insert(vec![job(number)], Durability::Synced)).await;
        let expected = Insertion::Done(vec![Inserted::New]);
        assert_eq!(added.unwrap(), expected, "it was committed");
    }
}
