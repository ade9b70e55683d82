//! The server is killed under load and restarted: nothing is accepted twice, nothing is lost, and
//! callers get errors.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::table::{Interrupted, Table, TableError, Unwritten};
use windlass_test_kit::wait::{eventually, in_time, pause};
use windlass_test_servers::Kind;

use crate::table::tests::harness::{LEASE, NO_LEASE, World, end, ids, names};

const ROWS: usize = 3000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_is_killed_under_load() {
    is_killed_under_load(World::mortal(Kind::MariaDb)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_killed_under_load() {
    is_killed_under_load(World::mortal(Kind::Postgres)).await;
}

/// Retries until the database is available; counts the failures.
macro_rules! until_there {
    ($away:expr, $ask:expr) => {
        loop {
            match $ask.await {
                Ok(done) => break done,
                Err(TableError::Away(_)) => {
                    $away.fetch_add(1, Ordering::Relaxed);
                    pause().await;
                }
                Err(refused) => panic!("{refused}"),
            }
        }
    };
}

async fn is_killed_under_load(world: World) {
    let world = Arc::new(world);
    world.add("waiting", &vec!["a"; ROWS]);
    let away = Arc::new(AtomicUsize::new(0));
    let finished = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..2 {
        let worker = world.worker(&format!("w{number}"));
        let (away, finished) = (Arc::clone(&away), Arc::clone(&finished));
        workers.spawn(async move { work(&*worker, &away, &finished).await });
    }
    for round in 1..=2 {
        let enough = || (finished.load(Ordering::Relaxed) >= round * ROWS / 4).then_some(());
        eventually("rows are run", enough).await;
        let killing = Arc::clone(&world);
        tokio::task::spawn_blocking(move || {
            killing.server().kill();
            killing.server().restart();
        })
        .await
        .unwrap();
    }
    let run: Vec<u64> = in_time("all rows are run", workers.join_all()).await.concat();
    let distinct: HashSet<u64> = run.iter().copied().collect();
    assert!(away.load(Ordering::Relaxed) > 0, "the kill was noticed");
    assert_eq!(run.len(), distinct.len(), "no row ran twice");
    assert_eq!(distinct.len(), ROWS, "every row ran");
    let open = world.sql("SELECT COUNT(*) FROM jobs WHERE status <> 'done'");
    assert_eq!(open.trim(), "0");
    assert_eq!(world.marks(), "");
}

/// Fetches, starts and finishes until nothing is left.
async fn work(worker: &dyn Table, away: &AtomicUsize, finished: &AtomicUsize) -> Vec<u64> {
    let targets = names(&["a"]);
    let mut run = Vec::new();
    loop {
        let fetched = until_there!(away, worker.fetch(&targets, 10, LEASE));
        if fetched.rows.is_empty() && !fetched.more {
            return run;
        }
        let started = until_there!(away, worker.start(&ids(&fetched), 1));
        assert_eq!(started, ids(&fetched));
        run.extend(&started);
        let ends: Vec<_> = started.iter().map(|id| end(*id)).collect();
        let unwritten: Vec<Unwritten> = until_there!(away, worker.finish(&ends));
        assert_eq!(unwritten, []);
        finished.fetch_add(ends.len(), Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_closed_while_idle_is_not_noticed() {
    for kind in [Kind::MariaDb, Kind::Postgres] {
        let world = World::mortal(kind);
        world.add("waiting", &["a", "a"]);
        let worker = world.worker("w");
        worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
        world.server().stop();
        let told = worker.start(&[1], 1).await.unwrap_err();
        assert!(matches!(told, TableError::Away(_)), "{told}");
        world.server().restart();
        assert_eq!(worker.start(&[1], 1).await.unwrap(), [1]);
        world.server().stop();
        world.server().restart();
        let fetched = worker.fetch(&names(&["a"]), 1, LEASE).await.unwrap();
        assert_eq!(ids(&fetched), [2]);
    }
}

/// The caller may be dropped at any point: rows accepted by then are found again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_is_given_up_loses_nothing() {
    const ROWS: usize = 300;
    /// The fetch is dropped after a multiple of this fraction of the time.
    const PARTS: u32 = 37;
    let world = World::mysql();
    world.add("waiting", &vec!["a"; ROWS]);
    let worker = world.worker("w");
    worker.prepare().await.unwrap();
    let targets = names(&["a"]);
    let mut seen = HashSet::new();
    let mut window = Duration::from_millis(5);
    let fetching = async {
        while seen.len() < ROWS {
            let before = seen.len();
            for part in 0..PARTS {
                let fetch = worker.fetch(&targets, 5, NO_LEASE);
                if let Ok(fetched) = tokio::time::timeout(window * part / PARTS, fetch).await {
                    let fetched = fetched.unwrap();
                    for id in ids(&fetched) {
                        assert!(seen.insert(id), "{id} was accepted twice");
                    }
                }
                let held: Vec<u64> = seen.iter().copied().collect();
                worker.recover(&held, Interrupted::Fail, 1, "lost").await.unwrap();
            }
            // A fetch takes longer than that on this machine.
            if seen.len() == before {
                window *= 2;
            }
        }
    };
    in_time("all rows are fetched", fetching).await;
}
