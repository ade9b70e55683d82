//! Very many jobs that come due at once become ready in steps, and other operations run in between.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::watch;
use windlass_core::edit::{Claimant, FullJob, Names, Put, Take, TakeDecision};
use windlass_core::job::Token;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    ChangedLook, ChangedTypes, Claim, Claimed, Durability, Hold, Pick, Revision,
};
use windlass_core::time::ManualClock;
use windlass_core::{NewJob, State, Sysid, Timestamp, TypeKey};
use windlass_store_sqlite::{Options, SqliteStore};

use common::{NOW, insert, job, tenant};

/// The most jobs that one transaction makes ready.
const PIECE_MAX: i64 = 5_000;
/// Jobs that come due at once: several full steps and a partial one.
const GLUT: i64 = 4 * PIECE_MAX + 7;
const DUE: Timestamp = Timestamp(NOW.0 + 1000);

/// No token is used twice.
static TOKEN: AtomicI64 = AtomicI64::new(1);

/// A store with a glut of jobs that come due, and a record of the file after each commit.
struct Glut {
    store: SqliteStore,
    commits: Arc<Mutex<Vec<Commit>>>,
    /// The number of jobs that are not ready yet.
    left: watch::Receiver<i64>,
    path: PathBuf,
    _directory: TempDir,
}

#[derive(Debug, Clone, Copy)]
struct Commit {
    deferred: i64,
    running: i64,
}

fn key(name: &str) -> TypeKey {
    TypeKey::new("acme", name).unwrap()
}

impl Glut {
    /// `GLUT` jobs of the type `glut`, one after them of the type `last`, and one of the type
    /// `other` that is already ready.
    async fn new() -> Glut {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("jobs.db");
        let commits = Arc::new(Mutex::new(Vec::new()));
        let (tell, left) = watch::channel(i64::MAX);
        let (noted, look) = (commits.clone(), Mutex::new(None::<Connection>));
        let file = path.clone();
        let clock = Arc::new(ManualClock::at(NOW));
        let mut options = Options { clock: clock.clone(), ..Options::new(&path) };
        options.on_commit = Some(Arc::new(move |_, _| {
            let mut look = look.lock().unwrap();
            let conn = look.get_or_insert_with(|| Connection::open(&file).unwrap());
            let count = |sql| conn.query_row(sql, [], |row| row.get(0)).unwrap();
            let deferred = count("SELECT count(*) FROM deferred");
            let running = count("SELECT count(*) FROM lease");
            noted.lock().unwrap().push(Commit { deferred, running });
            tell.send_replace(deferred);
        }));
        let store = SqliteStore::open(options).unwrap();
        let deferred = |number, name| NewJob { run_at: DUE, key: key(name), ..job(number) };
        let jobs: Vec<NewJob> = (1..=GLUT).map(|number| deferred(number, "glut")).collect();
        for batch in jobs.chunks(BATCH_JOBS_MAX) {
            store.job_insert(insert(batch.to_vec(), Durability::Relaxed)).await.unwrap();
        }
        let others =
            vec![deferred(GLUT + 1, "last"), NewJob { key: key("other"), ..job(GLUT + 2) }];
        store.job_insert(insert(others, Durability::Relaxed)).await.unwrap();
        clock.advance_to(DUE);
        commits.lock().unwrap().clear();
        Glut { store, commits, left, path, _directory: directory }
    }

    async fn claim(&self, name: &str, limit: u32) -> Vec<Claimed> {
        let claim = Claim {
            picks: vec![Pick { key: key(name), limit, floor: None }],
            owner: Sysid::new(1).unwrap(),
            token: Token(TOKEN.fetch_add(1, Ordering::Relaxed)),
            hold: Hold::For(Duration::from_secs(10)),
            payload_bytes_max: u64::MAX,
        };
        self.store.job_claim(claim).await.unwrap().jobs
    }

    /// All types that are open now.
    async fn waiting(&self) -> ChangedTypes {
        let since = Some(Revision::default());
        let look = ChangedLook { since, handled: false, each: 100, limit: 100 };
        self.store.type_changed(look).await.unwrap()
    }

    /// The ids of the claimed jobs.
    async fn take(&self, names: Names) -> Vec<i64> {
        let decide = |whole: &FullJob, _, _| {
            let job = windlass_core::Job { state: State::Paused, ..whole.job.clone() };
            TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
        };
        let take = Take {
            tenant: tenant(),
            names,
            priority: None,
            hidden: false,
            limit: 1,
            payload_bytes_max: u64::MAX,
            bytes_max: u64::MAX,
            after: None,
            claimant: Claimant::UNSET,
            decide: Arc::new(decide),
        };
        let took = self.store.job_take(take).await.unwrap();
        took.given.iter().map(|taken| taken.job.id.get()).collect()
    }

    /// Waits until all jobs are ready, without any call that needs them.
    async fn until_all_are_ready(&mut self) {
        let wait = self.left.wait_for(|left| *left == 0);
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap().unwrap();
    }

    /// No commit made more jobs ready than one step.
    fn assert_in_pieces(self) {
        let mut before = GLUT + 1;
        for commit in self.commits.lock().unwrap().iter() {
            assert!(before - commit.deferred <= PIECE_MAX, "{before} and then {commit:?}");
            before = commit.deferred;
        }
        assert_eq!(before, 0);
        let wrong = "SELECT count(*) FROM type t
                      WHERE deferred <> 0
                         OR ready <> (SELECT count(*) FROM ready r WHERE r.type_id = t.id)";
        let conn = Connection::open(&self.path).unwrap();
        let wrong: i64 = conn.query_row(wrong, [], |row| row.get(0)).unwrap();
        assert_eq!(wrong, 0, "the counters agree with the rows");
    }
}

#[tokio::test]
async fn a_claim_does_not_wait_for_all_that_came_due() {
    let mut glut = Glut::new().await;
    assert_eq!(glut.claim("other", 1).await.len(), 1);
    let first = glut.commits.lock().unwrap()[0];
    assert!(first.running == 1 && first.deferred > 0, "{first:?}: the claim was the first commit");
    glut.until_all_are_ready().await;
    glut.assert_in_pieces();
}

#[tokio::test]
async fn claims_that_wait_together_make_one_piece_ready() {
    let mut glut = Glut::new().await;
    let other = Connection::open(&glut.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async {
        tokio::task::yield_now().await;
        other.execute_batch("ROLLBACK").unwrap();
    };
    let claims = tokio::join!(
        glut.claim("glut", 10),
        glut.claim("glut", 10),
        glut.claim("glut", 10),
        glut.claim("glut", 10),
        release,
    );
    assert_eq!([claims.0.len(), claims.1.len(), claims.2.len(), claims.3.len()], [10; 4]);
    glut.until_all_are_ready().await;
    glut.assert_in_pieces();
}

#[tokio::test]
async fn a_claim_finds_the_job_that_is_the_last_to_become_ready() {
    let mut glut = Glut::new().await;
    let claimed = glut.claim("last", 5).await;
    assert_eq!(claimed.len(), 1);
    glut.until_all_are_ready().await;
    glut.assert_in_pieces();
}

#[tokio::test]
async fn a_claim_of_a_type_without_jobs_does_not_wait() {
    let mut glut = Glut::new().await;
    assert_eq!(glut.claim("other", 1).await.len(), 1);
    assert!(glut.claim("other", 1).await.is_empty());
    assert!(glut.claim("unknown", 1).await.is_empty());
    glut.until_all_are_ready().await;
    glut.assert_in_pieces();
}

#[tokio::test]
async fn a_take_by_name_does_not_wait_for_all_that_came_due() {
    let mut glut = Glut::new().await;
    assert_eq!(glut.take(Names::Glob("o*".into())).await, [GLUT + 2]);
    let first = glut.commits.lock().unwrap()[0];
    assert!(first.deferred > 0, "{first:?}: the take was the first commit");
    assert_eq!(glut.take(Names::AnyOf(vec![key("last").name])).await, [GLUT + 1]);
    glut.until_all_are_ready().await;
    glut.assert_in_pieces();
}

#[tokio::test]
async fn a_look_at_what_waits_shows_what_is_ready_and_that_there_is_more() {
    let mut glut = Glut::new().await;
    let waiting = glut.waiting().await;
    assert!(waiting.types.iter().any(|waiting| waiting.key == key("glut") && waiting.ready > 0));
    assert!(waiting.next_due_at.is_none_or(|at| at <= DUE));
    glut.store.type_stats(None).await.unwrap();
    glut.until_all_are_ready().await;
    let waiting = glut.waiting().await;
    let ready: u64 = waiting.types.iter().map(|waiting| waiting.ready).sum();
    assert_eq!((ready, waiting.next_due_at), (GLUT as u64 + 2, None));
    glut.assert_in_pieces();
}
