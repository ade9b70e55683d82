//! Listings are newest first, filtered, and complete however they are split into pages.

use windlass_core::limit::PAGE_JOBS_MAX;
use windlass_core::store::List;
use windlass_core::{NewJob, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, everything_of, globex, id, job, job_of,
    key, numbers, queued,
};

/// Ten jobs of two types in all states, and one of another tenant.
async fn mixed(harness: &dyn Harness) -> Subject {
    let store = Subject::fresh(harness).await;
    store.ran(job_of("a", 1), FINISHED).await;
    store.ran(job_of("b", 2), FINISHED).await;
    store.ran(job_of("a", 3), FAILED).await;
    store.ran(job_of("a", 4), again(after(600))).await;
    store.add([job_of("a", 5), job_of("b", 6), job_of("b", 7)]).await;
    store.claim("a", 1, NOW).await;
    store.cancel(7, NOW).await;
    store.ran(job_of("c", 8), FINISHED).await;
    let deferred = NewJob { run_at: after(60), ..job_of("a", 9) };
    let theirs = NewJob { key: TypeKey { tenant: globex(), ..key("a") }, ..job(11) };
    store.add([deferred, job_of("a", 10), theirs]).await;
    store
}

pub async fn newest_come_first(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(3), job(1), job(2)]).await;
    let page = store.job_list(everything_of(acme())).await.unwrap();
    assert_eq!(page.jobs, [queued(&job(3)), queued(&job(2)), queued(&job(1))]);
}

pub async fn a_listing_shows_one_tenant(harness: &dyn Harness) {
    let store = mixed(harness).await;
    let ours = store.listed(everything_of(acme())).await;
    assert_eq!(numbers(&ours), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(numbers(&store.listed(everything_of(globex())).await), [11]);
}

pub async fn every_filter_holds(harness: &dyn Harness) {
    let store = mixed(harness).await;
    let all: Vec<_> = store.listed(everything_of(acme())).await;
    let names = [None, Some("a"), Some("b"), Some("c"), Some("none")];
    let states = [None].into_iter().chain(State::ALL.map(Some));
    for state in states {
        for name in names {
            for before in [None, Some(id(5)), Some(id(1)), Some(id(99))] {
                let name = name.map(|name| key(name).name);
                let list = List { name, state, before, ..everything_of(acme()) };
                let expected: Vec<_> = all
                    .iter()
                    .filter(|job| list.name.as_ref().is_none_or(|name| job.key.name == *name))
                    .filter(|job| state.is_none_or(|state| job.state == state))
                    .filter(|job| before.is_none_or(|before| job.id < before))
                    .cloned()
                    .collect();
                assert_eq!(store.listed(list.clone()).await, expected, "{list:?}");
            }
        }
    }
}

pub async fn pages_join_without_gap_or_overlap(harness: &dyn Harness) {
    let store = mixed(harness).await;
    let queued = |limit| List { state: Some(State::Queued), limit, ..everything_of(acme()) };
    for limit in 1..=11 {
        let every = List { limit, ..everything_of(acme()) };
        assert_eq!(
            numbers(&store.listed(every).await),
            [10, 9, 8, 7, 6, 5, 4, 3, 2, 1],
            "pages of {limit}"
        );
        assert_eq!(numbers(&store.listed(queued(limit)).await), [10, 9, 6, 4], "pages of {limit}");
    }
}

pub async fn the_last_page_says_so(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let pages = store.pages(everything_of(acme())).await;
    assert_eq!(pages.last().map(|page| (page.jobs.len(), page.next)), Some((0, None)));
    store.add((1..=3).map(job)).await;
    let pages = store.pages(List { limit: 2, ..everything_of(acme()) }).await;
    assert!(pages.len() >= 2);
    assert!(pages[0].next.is_some());
}

pub async fn pages_hold_while_jobs_come_and_go(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=6).map(job)).await;
    let page = store.job_list(List { limit: 3, ..everything_of(acme()) }).await.unwrap();
    store.add([job(7), job(8)]).await;
    store.delete(5).await;
    let rest = List { before: page.next, limit: 3, ..everything_of(acme()) };
    let mut seen = numbers(&page.jobs);
    seen.extend(numbers(&store.listed(rest).await));
    assert_eq!(seen, [6, 5, 4, 3, 2, 1]);
}

pub async fn many_jobs_fill_large_pages(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let count = PAGE_JOBS_MAX as i64 * 2 + 500;
    store.add((1..=count).map(job)).await;
    let list = List { limit: PAGE_JOBS_MAX, ..everything_of(acme()) };
    assert_eq!(numbers(&store.listed(list).await), (1..=count).rev().collect::<Vec<_>>());
}

pub async fn a_rare_state_is_found_among_many(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=3000).map(job)).await;
    store.cancel(17, NOW).await;
    let list = List { state: Some(State::Cancelled), limit: 10, ..everything_of(acme()) };
    assert_eq!(numbers(&store.listed(list).await), [17]);
}
