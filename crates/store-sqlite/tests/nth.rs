//! Every system call of the store fails once: with an error, on a full disk, by a kill. What was
//! acknowledged is there afterwards, and the next start works.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use windlass_core::job::Token;
use windlass_core::state::State;
use windlass_core::store::prelude::*;
use windlass_core::store::{
    Claim, Claimed, Durability, EndRequest, Error, Hold, Insertion, JournalId, JournalMark, Pick,
    Settled, Settlement,
};
use windlass_core::{JobId, Sysid};
use windlass_faulty_disk::{Kind, Left, Trial, every_call};
use windlass_store_sqlite::SqliteStore;

use common::{assert_consistent, done, id, insert, job, key, tenant};

/// To save time.
const STEP: usize = 3;
const JOURNAL: JournalId = JournalId(7);

/// What the caller of a store was told.
#[derive(Clone, Default)]
struct Known {
    jobs: BTreeMap<JobId, Fact>,
    errors: Vec<Error>,
}

/// The newest thing that is known of a job, and whether it is synced.
#[derive(Clone, Copy)]
struct Fact {
    life: Life,
    synced: bool,
}

#[derive(Debug, Clone, Copy)]
enum Life {
    /// It was added, and nothing that ends it was tried.
    Open,
    /// It is claimed for longer than a trial takes, and nothing that ends it was tried.
    Held,
    /// An end was tried, without an answer: it may have ended, but then after the purge.
    Unknown,
    Ended,
}

impl Life {
    fn allows(self, state: Option<State>) -> bool {
        match self {
            // A claim without an answer may have been carried out.
            Life::Open => matches!(state, Some(State::Queued | State::Running)),
            Life::Held => state == Some(State::Running),
            Life::Unknown => state.is_some(),
            // It may have been purged.
            Life::Ended => matches!(state, None | Some(State::Finished | State::Cancelled)),
        }
    }
}

impl Known {
    /// The answer, unless it is an error. A synced one makes all earlier ones durable.
    fn told<T>(&mut self, answer: Result<T, Error>, durability: Durability) -> Option<T> {
        match answer {
            Ok(answer) => {
                if durability == Durability::Synced {
                    self.jobs.values_mut().for_each(|fact| fact.synced = true);
                }
                Some(answer)
            }
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    fn note(&mut self, number: JobId, life: Life, durability: Durability) {
        let synced = durability == Durability::Synced;
        self.jobs.insert(number, Fact { life, synced });
    }

    /// Something that ends this job is about to be tried.
    fn tries_to_end(&mut self, number: JobId) {
        self.jobs.entry(number).and_modify(|fact| fact.life = Life::Unknown);
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

fn path(dir: &Path) -> PathBuf {
    dir.join("jobs.db")
}

async fn add(store: &SqliteStore, known: &mut Known, number: i64, durability: Durability) {
    let added = store.job_insert(insert(vec![job(number)], durability)).await;
    if known.told(added, durability).is_some() {
        known.note(id(number), Life::Open, durability);
    }
}

/// As ingest does: jobs with the position of their journal.
async fn ingest(store: &SqliteStore, known: &mut Known, numbers: [i64; 2], from: Option<JobId>) {
    let mut batch = insert(numbers.map(job).into(), Durability::Relaxed);
    batch.mark = Some(JournalMark { journal: JOURNAL, from, position: id(numbers[1]) });
    let inserted = store.job_insert(batch).await;
    if let Some(Insertion::Behind(_)) = known.told(inserted.clone(), Durability::Relaxed) {
        return;
    }
    if inserted.is_ok() {
        for number in numbers {
            known.note(id(number), Life::Open, Durability::Relaxed);
        }
    }
}

async fn claim(store: &SqliteStore, token: i64) -> Result<Vec<Claimed>, Error> {
    let claim = Claim {
        picks: vec![Pick { key: key(), limit: 2, floor: None }],
        owner: Sysid::new(1).unwrap(),
        token: Token(token),
        hold: Hold::For(Duration::from_secs(10)),
        payload_bytes_max: u64::MAX,
    };
    Ok(store.job_claim(claim).await?.jobs)
}

async fn settle(store: &SqliteStore, known: &mut Known, claimed: &Claimed, synced: bool) {
    let durability = if synced { Durability::Synced } else { Durability::Relaxed };
    let end: Arc<[Settlement]> = Arc::new([Settlement { keep: Duration::ZERO, ..done(claimed) }]);
    known.tries_to_end(claimed.job.id);
    let settled = store.job_settle(end, durability).await;
    if let Some(answer) = known.told(settled, durability) {
        assert_eq!(answer.settled, [Settled::Done]);
        known.note(claimed.job.id, Life::Ended, durability);
    }
}

async fn work_on(store: &SqliteStore, known: &mut Known) {
    add(store, known, 11, Durability::Synced).await;
    ingest(store, known, [21, 22], None).await;
    ingest(store, known, [23, 24], Some(id(22))).await;
    for synced in [false, true] {
        let claimed = claim(store, 10 + i64::from(synced)).await;
        let claimed = known.told(claimed, Durability::Relaxed).unwrap_or_default();
        for claimed in claimed {
            settle(store, known, &claimed, synced).await;
        }
    }
    let end = EndRequest { tenant: tenant(), id: id(24), keep: Duration::ZERO };
    known.tries_to_end(id(24));
    let cancelled = store.job_cancel(end).await;
    if known.told(cancelled, Durability::Synced).is_some() && known.jobs.contains_key(&id(24)) {
        known.note(id(24), Life::Ended, Durability::Synced);
    }
    let purged = store.job_purge(10).await;
    known.told(purged, Durability::Relaxed);
    add(store, known, 12, Durability::Relaxed).await;
    let flushed = store.flush().await;
    known.told(flushed, Durability::Synced);
    add(store, known, 13, Durability::Relaxed).await;
}

/// The whole life of a store, with everything that the engine does to it. Goes on after errors.
/// Returns what is known then, if this was known before.
fn work(dir: &Path, mut known: Known) -> Known {
    block_on(async {
        let opened = SqliteStore::open(common::options(path(dir)));
        if let Some(store) = known.told(opened, Durability::Relaxed) {
            work_on(&store, &mut known).await;
            store.close().await;
        }
    });
    known
}

fn check(dir: &Path, known: &Known, note: &Trial) {
    for error in &known.errors {
        // SQLite reports a failed read as damage.
        let expected = match error {
            Error::Corrupt(_) => note.kind == Some(Kind::Read),
            error => matches!(error, Error::Unavailable(_)),
        };
        assert!(expected, "{note}: {error:?}");
    }
    block_on(async {
        let opened = SqliteStore::open(common::options(path(dir)));
        let store = opened.unwrap_or_else(|error| panic!("{note}: {error}"));
        let counts = |fact: &Fact| fact.synced || note.left == Left::AsWritten;
        for (number, fact) in known.jobs.iter().filter(|(_, fact)| counts(fact)) {
            let state = store.job_get(&tenant(), *number).await.unwrap().map(|job| job.state);
            let life = fact.life;
            assert!(life.allows(state), "{note}: {number} is {state:?}, and was {life:?}");
        }
        let position = store.journal_position(JOURNAL).await.unwrap();
        for number in [21, 22, 23, 24].map(id).into_iter().filter(|id| Some(*id) > position) {
            let found = store.job_get(&tenant(), number).await.unwrap();
            assert!(found.is_none(), "{note}: {number} would enter again after {position:?}");
        }
        store.job_insert(insert(vec![job(90)], Durability::Synced)).await.unwrap();
        assert!(!claim(&store, 20).await.unwrap().is_empty(), "{note}: it works again");
        store.close().await;
    });
    assert_consistent(&path(dir));
}

#[test]
fn any_call_of_a_new_store_may_fail() {
    let empty = tempfile::tempdir().unwrap();
    let operate = |dir: &Path| work(dir, Known::default());
    every_call(empty.path(), STEP, operate, check).report("a new store");
}

/// A store as a killed daemon left it: with a log, and jobs that are queued, running and ended; and
/// what that daemon knew.
fn left_by_a_kill() -> (TempDir, Known) {
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut known = Known::default();
    block_on(async {
        let store = SqliteStore::open(common::options(path(dir.path()))).unwrap();
        for number in 1..=6 {
            add(&store, &mut known, number, Durability::Synced).await;
        }
        for claimed in claim(&store, 1).await.unwrap() {
            settle(&store, &mut known, &claimed, true).await;
        }
        for claimed in claim(&store, 1).await.unwrap() {
            known.note(claimed.job.id, Life::Held, Durability::Relaxed);
        }
        known.told(store.flush().await, Durability::Synced);
        for name in ["jobs.db", "jobs.db-wal"] {
            std::fs::copy(dir.path().join(name), left.path().join(name)).unwrap();
        }
        store.close().await;
    });
    (left, known)
}

#[test]
fn any_call_of_a_store_that_recovers_may_fail() {
    let (left, before) = left_by_a_kill();
    let lives = before.jobs.values().map(|fact| fact.life);
    let held = lives.filter(|life| matches!(life, Life::Held)).count();
    assert!(before.errors.is_empty() && (before.jobs.len(), held) == (6, 2));
    let operate = |dir: &Path| work(dir, before.clone());
    every_call(left.path(), STEP, operate, check).report("a store that recovers");
}
