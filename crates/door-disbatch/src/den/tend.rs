//! Background work, in separate tasks, so that a slow database delays neither claims nor
//! heartbeats.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use super::counters::CounterUpkeep;
use super::due::WaitingTaskScan;
use super::invalid::InvalidTasks;
use super::log_once::LogOnce;
use crate::database::{Clock, Database, DbError};
use crate::dialect::Dialect;
use crate::doc::Queue;
use crate::gridfs::Cleaner;

/// Pause between two scans of waiting tasks, and between two rounds of everything else.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two steps of the search for unreferenced files.
const CLEAN_PAUSE: Duration = Duration::from_secs(60);

/// Runs forever, until dropped. `view` holds the queues of the last pass.
pub(super) async fn tend(database: Database, clock: Clock, view: watch::Receiver<Vec<Queue>>) {
    tokio::join!(wake(&database, &clock), look_after(&database, &clock, &view));
}

async fn wake(database: &Database, clock: &Clock) {
    let (mut due, mut logged) = (WaitingTaskScan::default(), LogOnce::default());
    loop {
        let woken = due.step(database, clock.now()).await;
        log_result(&mut logged, "waiting tasks", woken);
        sleep(PAUSE).await;
    }
}

async fn look_after(database: &Database, clock: &Clock, view: &watch::Receiver<Vec<Queue>>) {
    let (mut count, mut invalid, mut cleaner) =
        (CounterUpkeep::default(), InvalidTasks::default(), Cleaner::default());
    let mut logged = LogOnce::default();
    let mut cleaned_at = Instant::now();
    loop {
        sleep(PAUSE).await;
        let queues = view.borrow().clone();
        if database.dialect() == Dialect::Seed {
            let counted = count.step(database, &queues).await;
            log_result(&mut logged, "counters", counted);
        }
        let searched = invalid.step(database, &queues, &mut logged).await;
        log_result(&mut logged, "tasks of the wrong types", searched);
        if cleaned_at.elapsed() >= CLEAN_PAUSE {
            let cleaned = cleaner.step(database, clock.now()).await.map(drop);
            log_result(&mut logged, "files that nothing points to", cleaned);
            cleaned_at = Instant::now();
        }
    }
}

/// Passes already report an unavailable database.
fn log_result(logged: &mut LogOnce, what: &str, done: Result<(), DbError>) {
    match done {
        Ok(()) => drop(logged.is_over(what)),
        Err(DbError::Away(_)) => {}
        Err(error) => {
            if logged.is_news(what, &error.to_string()) {
                tracing::warn!("{what}: {error}");
            }
        }
    }
}
