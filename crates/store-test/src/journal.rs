//! How far a journal has been inserted is kept with the jobs, exactly.

use windlass_core::JobId;
use windlass_core::store::{Changed, Durability, Insert, Inserted, JournalMark};

use crate::Harness;
use crate::fixture::{FINISHED, Subject, after, id, job, journal};

fn marked(jobs: impl IntoIterator<Item = i64>, number: i64, position: i64) -> Insert {
    let mark = JournalMark { journal: journal(number), position: id(position) };
    Insert {
        jobs: jobs.into_iter().map(job).collect(),
        keys: Vec::new(),
        mark: Some(mark),
        durability: Durability::Synced,
    }
}

async fn position(store: &Subject, number: i64) -> Option<JobId> {
    store.journal_position(journal(number)).await.unwrap()
}

pub async fn a_mark_comes_with_its_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(position(&store, 7).await, None);
    store.job_insert(marked(1..=3, 7, 3)).await.unwrap();
    assert_eq!(position(&store, 7).await, Some(id(3)));
    store.job_insert(marked(4..=5, 7, 5)).await.unwrap();
    assert_eq!(position(&store, 7).await, Some(id(5)));
}

pub async fn a_mark_moves_only_forward(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.job_insert(marked(1..=5, 7, 5)).await.unwrap();
    let answers = store.job_insert(marked(1..=3, 7, 3)).await.unwrap();
    assert_eq!(answers, [Inserted::Duplicate; 3]);
    assert_eq!(position(&store, 7).await, Some(id(5)));
}

pub async fn every_daemon_has_its_own_mark(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.job_insert(marked([1], 7, 1)).await.unwrap();
    store.job_insert(marked([2], 8, 2)).await.unwrap();
    assert_eq!(position(&store, 7).await, Some(id(1)));
    assert_eq!(position(&store, 8).await, Some(id(2)));
    assert_eq!(position(&store, 9).await, None);
}

pub async fn an_insert_without_a_mark_leaves_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.job_insert(marked([1], 7, 1)).await.unwrap();
    store.add([job(2)]).await;
    assert_eq!(position(&store, 7).await, Some(id(1)));
}

pub async fn a_mark_may_come_alone(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.job_insert(marked([], 7, 9)).await.unwrap(), []);
    assert_eq!(position(&store, 7).await, Some(id(9)));
}

pub async fn a_mark_outlives_its_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.job_insert(marked([], 7, 2)).await.unwrap();
    store.ran(job(1), FINISHED).await;
    store.add([job(2)]).await;
    assert_eq!(store.job_purge(after(366 * 24 * 3600), 10).await.unwrap(), 1);
    assert!(matches!(store.delete(2).await, Changed::Done(_)));
    assert_eq!(position(&store, 7).await, Some(id(2)));
}
