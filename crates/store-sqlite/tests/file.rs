//! The file itself: which files are refused, and what a process that dies leaves behind.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use windlass_core::edit::{Ask, Decision, Edit, FamilyView, Target};
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Error, Inserted, SysidReserve};
use windlass_core::time::ManualClock;
use windlass_core::{NewJob, Payload, Store, Sysid};
use windlass_store_sqlite::{Options, SqliteStore};

use common::{NOW, assert_consistent, claim, done, id, insert, job, tenant};

fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(common::options(path))
}

fn refused(path: &Path) -> Error {
    open(path).err().expect("the file is refused")
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

async fn closed_store(path: &Path) {
    let store = open(path).unwrap();
    store.job_insert(insert(vec![job(1)], Durability::Synced)).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_the_file_stays_as_it_is() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    closed_store(&path).await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9000).unwrap();
    let before = std::fs::read(&path).unwrap();
    let Error::Conflict(message) = refused(&path) else { panic!("{:?}", refused(&path)) };
    assert!(message.contains("9000") && message.contains("up to 1"), "{message}");
    assert!(message.contains("jobs.db"), "{message}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let files = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, 1, "nothing else was made");
}

#[test]
fn the_database_of_another_program_is_refused_and_stays_as_it_is() {
    let directory = TempDir::new().unwrap();
    for application_id in [0, 4711] {
        let path = directory.path().join(format!("{application_id}.db"));
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "application_id", application_id).unwrap();
        conn.execute_batch("CREATE TABLE job (x); INSERT INTO job VALUES (1)").unwrap();
        conn.close().unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(refused(&path), Error::Conflict(m) if m.contains("another program")));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn what_is_no_database_is_called_so() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notes.db");
    for text in ["hello", &"not a database ".repeat(1000)] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(refused(&path), Error::Corrupt(m) if m.contains("notes.db")));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

#[tokio::test]
async fn a_damaged_file_is_called_damaged() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    closed_store(&path).await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0x5A);
    std::fs::write(&path, bytes).unwrap();
    let found = match open(&path) {
        Err(error) => Err(error),
        Ok(store) => store.job_get(&tenant(), id(1)).await,
    };
    assert!(matches!(&found, Err(Error::Corrupt(m)) if m.contains("jobs.db")), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_opened_is_unavailable() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("absent").join("jobs.db");
    assert!(matches!(refused(&path), Error::Unavailable(m) if m.contains("jobs.db")));
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    std::fs::write(&path, "").unwrap();
    closed_store(&path).await;
    let store = open(&path).unwrap();
    assert!(store.job_get(&tenant(), id(1)).await.unwrap().is_some());
}

/// SQLite's journal is synced before the file is written, whose sectors then arrive in any order.
#[tokio::test]
async fn a_power_cut_while_the_file_is_created_leaves_something_that_becomes_a_store() {
    let (made, left) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = left.path().join("jobs.db");
    let creating = Connection::open(made.path().join("jobs.db")).unwrap();
    creating.pragma_update(None, "cache_size", 1).unwrap();
    creating.execute_batch("BEGIN; CREATE TABLE t (x)").unwrap();
    for _ in 0..20 {
        creating.execute("INSERT INTO t VALUES (randomblob(3000))", []).unwrap();
    }
    for name in ["jobs.db", "jobs.db-journal"] {
        std::fs::copy(made.path().join(name), left.path().join(name)).unwrap();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 512, "some of it has reached the disk");
    bytes[..512].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    closed_store(&path).await;
    assert_consistent(&path);
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(refused(&path), Error::Corrupt(_)), "without the journal it is nothing");
}

#[tokio::test]
async fn a_closed_store_leaves_one_file_and_answers_no_more() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = open(&path).unwrap();
    store.job_insert(insert(vec![job(1)], Durability::Relaxed)).await.unwrap();
    store.close().await;
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert!(matches!(store.ping().await, Err(Error::Unavailable(_))));
    assert!(matches!(store.flush().await, Err(Error::Unavailable(_))));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s0_19_twenty_daemons_that_start_at_once_have_twenty_sysids() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let daemons: Vec<_> = (0..20)
        .map(|_| {
            let path = path.clone();
            tokio::task::spawn_blocking(move || Arc::new(open(&path).unwrap()))
        })
        .collect();
    let mut grants = Vec::new();
    for daemon in daemons {
        let store = daemon.await.unwrap();
        let lease = Duration::from_secs(10);
        grants.push(tokio::spawn(async move {
            store.sysid_reserve(SysidReserve { wanted: None, lease }).await.unwrap()
        }));
    }
    let mut taken = Vec::new();
    for grant in grants {
        taken.push(grant.await.unwrap());
    }
    taken.sort_by_key(|grant| grant.sysid);
    taken.dedup_by_key(|grant| grant.sysid);
    assert_eq!(taken.len(), 20);
    taken.sort_by_key(|grant| grant.boot);
    taken.dedup_by_key(|grant| grant.boot);
    assert_eq!(taken.len(), 20);
}

/// Set for the child process of the test below; without it, the test of the child does nothing.
const CHILD_FILE: &str = "WINDLASS_TEST_CHILD_FILE";
const CHILD_BATCH: i64 = 20;

#[tokio::test]
async fn child_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD_FILE) else { return };
    let store = open(Path::new(&path)).unwrap();
    let first = store.id_newest().await.unwrap().map_or(1, |newest| newest.get() + 1);
    for batch in 0.. {
        let from = first + batch * CHILD_BATCH;
        let jobs = (from..from + CHILD_BATCH).map(job).collect();
        store.job_insert(insert(jobs, Durability::Synced)).await.unwrap();
        println!("acknowledged {}", from + CHILD_BATCH - 1);
        let claimed = claim(&store, CHILD_BATCH as u32 / 2).await;
        let settlements = claimed.iter().skip(1).map(done).collect();
        store.job_settle(settlements, Durability::Relaxed).await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_leaves_a_consistent_file_with_all_that_was_acknowledged() {
    const ROUNDS: usize = 5;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD_FILE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The test harness may write something before the first line.
        let acknowledged: Vec<i64> = lines
            .filter_map(|line| Some(line.split_once("acknowledged ")?.1.parse().unwrap()))
            .take(3 + 7 * round)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();

        let store = open(&path).unwrap();
        let newest = *acknowledged.last().unwrap();
        let jobs = (1..=newest).map(job).collect();
        let again = store.job_insert(insert(jobs, Durability::Relaxed)).await.unwrap();
        let again = again.done().unwrap();
        assert!(again.iter().all(|inserted| *inserted == Inserted::Duplicate));
        store.close().await;
        assert_consistent(&path);
    }
}

#[tokio::test]
async fn a_log_that_was_cut_anywhere_leaves_a_consistent_file() {
    const BATCHES: i64 = 10;
    const CUTS: u64 = 40;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = open(&path).unwrap();
    for batch in 0..BATCHES {
        let jobs = (1..=10).map(|n| job(batch * 10 + n)).collect();
        store.job_insert(insert(jobs, Durability::Relaxed)).await.unwrap();
        let settlements = claim(&store, 5).await.iter().map(done).collect();
        store.job_settle(settlements, Durability::Relaxed).await.unwrap();
    }
    let (file, log) = (std::fs::read(&path).unwrap(), std::fs::read(log_of(&path)).unwrap());
    store.close().await;
    let mut newest_before = 0;
    for cut in 0..=CUTS {
        let copy = directory.path().join("cut.db");
        let kept = (log.len() as u64 * cut / CUTS) as usize;
        std::fs::write(&copy, &file).unwrap();
        std::fs::write(log_of(&copy), &log[..kept]).unwrap();
        let store = open(&copy).unwrap();
        let newest = store.id_newest().await.unwrap().map_or(0, |id| id.get());
        store.close().await;
        assert_consistent(&copy);
        assert!(newest % 10 == 0 && newest >= newest_before, "half a batch, or an older one");
        newest_before = newest;
    }
    assert_eq!(newest_before, BATCHES * 10);
}

/// A decision may write back what it is shown, so it must never be shown a part.
#[tokio::test]
async fn a_payload_that_lacks_a_piece_is_shown_to_no_decision() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let store = open(&path).unwrap();
    let bytes = PAYLOAD_INLINE_BYTES_MAX as u64 + 1;
    let pieces = [PAYLOAD_INLINE_BYTES_MAX, 1];
    for (index, size) in (0..).zip(pieces) {
        store
            .payload_put(vec![windlass_core::store::Piece {
                id: id(1),
                index,
                bytes: vec![b'x'; size].into(),
            }])
            .await
            .unwrap();
    }
    let large = NewJob { payload: Payload::Pieces { bytes }, ..job(1) };
    store.job_insert(insert(vec![large], Durability::Synced)).await.unwrap();
    let ask = || Ask {
        tenant: tenant(),
        targets: vec![Target::Job(id(1))],
        decide: Arc::new(move |_, seen: &FamilyView, _| {
            let shown = seen.job.as_ref().map(|whole| whole.payload.len());
            assert_eq!(shown, Some(bytes), "the whole of it or nothing");
            Ok(Decision { edits: vec![Edit::Delete(id(1))], id: None })
        }),
        durability: Durability::Synced,
    };
    let other = Connection::open(&path).unwrap();
    other.execute("DELETE FROM piece WHERE position = 1", []).unwrap();
    let answer = store.job_decide(ask()).await;
    assert!(matches!(&answer, Err(Error::Corrupt(why)) if why.contains("piece")), "{answer:?}");
    assert!(store.job_get(&tenant(), id(1)).await.unwrap().is_some(), "nothing changed");
    store
        .payload_put(vec![windlass_core::store::Piece {
            id: id(1),
            index: 1,
            bytes: vec![b'x'].into(),
        }])
        .await
        .unwrap();
    store.job_decide(ask()).await.unwrap();
    assert_eq!(store.job_get(&tenant(), id(1)).await.unwrap(), None);
    store.close().await;
}

#[tokio::test]
async fn after_a_restart_of_the_machine_with_a_clock_that_is_behind_no_lease_lasts_longer() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("jobs.db");
    let clock = Arc::new(ManualClock::at(NOW));
    let open = || {
        let options = Options { clock: clock.clone(), ..Options::new(&path) };
        SqliteStore::open(options).unwrap()
    };
    let store = open();
    let lease = Duration::from_secs(10);
    let wanted = Some(Sysid::new(7).unwrap());
    store.sysid_reserve(SysidReserve { wanted, lease }).await.unwrap();
    store.job_insert(insert(vec![job(1)], Durability::Synced)).await.unwrap();
    assert_eq!(claim(&store, 1).await.len(), 1);
    store.close().await;

    clock.restart_machine();
    clock.set(NOW - Duration::from_secs(3600));
    let store = open();
    assert_eq!(store.sysid_list().await.unwrap(), [], "its daemon is gone");
    assert_eq!(store.lease_expired(9).await.unwrap(), [], "a worker may still have it");
    clock.advance(lease);
    assert_eq!(store.lease_expired(9).await.unwrap().len(), 1);
    store.close().await;
}
