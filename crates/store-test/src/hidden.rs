//! Hidden jobs: only takes that ask for them get them.

use std::time::Duration;

use windlass_core::edit::Take;
use windlass_core::store::{Changed, GiveUp, Overdue, TypeStats};
use windlass_core::{Extra, NewJob, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, after, again, claimed_numbers, give_up_expired, globex, job, job_of,
    key, priority, settlement,
};
use crate::kin::{any_of, glob, take, taken_numbers};

fn hidden(new: NewJob) -> NewJob {
    NewJob { extra: Extra { hidden: true, ..Extra::default() }, ..new }
}

fn with_hidden(limit: u32, at: u64) -> Take {
    Take { hidden: true, ..take(glob("*"), limit, after(at)) }
}

pub async fn a_hidden_job_is_not_claimed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([hidden(job(1)), job(2), hidden(job_of("other", 3))]).await;
    let waiting = store.waiting(NOW).await;
    assert_eq!((waiting.types.len(), waiting.types[0].ready), (1, 1));
    assert_eq!(waiting.next_due_at, None);
    assert_eq!(claimed_numbers(&store.claim("t", 9, NOW).await), [2]);
    assert!(store.claim("other", 9, after(3600)).await.is_empty());
    assert!(store.take_of(glob("*"), 9).await.is_empty());
}

pub async fn a_hidden_job_counts_as_deferred(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let later = NewJob { run_at: after(60), ..hidden(job(2)) };
    store.add([hidden(job(1)), later]).await;
    let numbers = |stats: TypeStats| (stats.ready, stats.deferred, stats.oldest_ready_at);
    assert_eq!(numbers(store.stats("t", NOW).await.unwrap()), (0, 2, None));
    assert_eq!(store.waiting(NOW).await.next_due_at, Some(after(60)));
    assert_eq!(numbers(store.stats("t", after(60)).await.unwrap()), (0, 2, None));
    assert_eq!(store.waiting(after(60)).await.next_due_at, None);
    assert!(matches!(store.delete(1).await, Changed::Done(_)));
    assert_eq!(numbers(store.stats("t", after(60)).await.unwrap()), (0, 1, None));
}

pub async fn a_take_that_asks_for_them_gets_them_in_their_place(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let urgent = |new: NewJob, urgency| NewJob { priority: priority(urgency), ..new };
    let early = NewJob { run_at: NOW - std::time::Duration::from_secs(1), ..hidden(job(5)) };
    store
        .add([
            job(1),
            hidden(job(2)),
            urgent(hidden(job_of("a", 3)), 900),
            urgent(job_of("a", 4), 900),
            early,
            NewJob { run_at: after(9), ..hidden(job_of("later", 6)) },
        ])
        .await;
    let took = store.job_take(with_hidden(9, 0)).await.unwrap();
    assert_eq!(taken_numbers(&took), [3, 4, 5, 1, 2]);
    assert_eq!(taken_numbers(&store.at(after(9)).job_take(with_hidden(9, 9)).await.unwrap()), [6]);
}

pub async fn named_types_give_theirs_too(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([hidden(job_of("a", 1)), hidden(job_of("b", 2)), hidden(job_of("c", 3))]).await;
    let named = |names| Take { hidden: true, ..take(names, 9, NOW) };
    let took = store.job_take(named(any_of(&["c", "a"]))).await.unwrap();
    assert_eq!(taken_numbers(&took), [1, 3]);
    let of_500 = Take { priority: Some(priority(500)), ..named(glob("b")) };
    let of_400 = Take { priority: Some(priority(400)), ..of_500.clone() };
    assert!(store.job_take(of_400).await.unwrap().given.is_empty());
    assert_eq!(taken_numbers(&store.job_take(of_500).await.unwrap()), [2]);
}

/// More types with hidden jobs than one call reads: those of the tenant have other names.
pub async fn hidden_jobs_are_found_among_very_many_hidden_types(harness: &dyn Harness) {
    const TYPES: i64 = 10_500;
    let store = Subject::fresh(harness).await;
    let others = (1..=TYPES).map(|n| hidden(job_of(&format!("other/{n}"), n)));
    for others in others.collect::<Vec<_>>().chunks(2000) {
        store.add(others.to_vec()).await;
    }
    let least = |new: NewJob, urgency| NewJob { priority: priority(urgency), ..new };
    let theirs = NewJob { key: TypeKey { tenant: globex(), ..key("their/one") }, ..job(TYPES + 4) };
    store
        .add([
            least(hidden(job_of("the/one", TYPES + 1)), 2),
            least(job_of("the/one", TYPES + 2), 2),
            least(hidden(job_of("another/one", TYPES + 3)), 1),
            hidden(theirs),
        ])
        .await;
    let theirs = Take { tenant: globex(), ..with_hidden(1, 0) };
    let took = store.job_take(theirs).await.unwrap();
    assert_eq!(taken_numbers(&took), [TYPES + 4], "types of others are not in the way");
    let mut wanted = Take { names: glob("*one"), ..with_hidden(9, 0) };
    let mut taken = Vec::new();
    for _ in 0..TYPES {
        let took = store.job_take(wanted.clone()).await.unwrap();
        taken.extend(taken_numbers(&took));
        let is_end = took.given.is_empty() && took.next.is_none();
        wanted.after = took.next;
        if is_end {
            taken.sort();
            assert_eq!(taken, [TYPES + 1, TYPES + 2, TYPES + 3]);
            return;
        }
    }
    panic!("the search does not come to an end");
}

pub async fn a_hidden_job_stays_hidden(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([hidden(job(1))]).await;
    let taken = store.job_take(with_hidden(1, 0)).await.unwrap().given.remove(0);
    let claimed = windlass_core::store::Claimed {
        job: taken.job,
        payload: taken.before.payload,
        handler: None,
        left: 0,
    };
    store.settle(settlement(&claimed, again(NOW))).await;
    assert!(store.get(1).await.extra.hidden);
    assert!(store.claim("t", 9, NOW).await.is_empty());
    let taken = store.job_take(with_hidden(1, 0)).await.unwrap().given.remove(0);
    let claimed = windlass_core::store::Claimed { job: taken.job, ..claimed };
    store.settle(settlement(&claimed, FINISHED)).await;
    store.rerun(1, NOW).await;
    assert!(store.claim("t", 9, NOW).await.is_empty());
    store.alter(1, |job| job.extra.hidden = false).await;
    assert_eq!(store.claim("t", 9, NOW).await.len(), 1);
    store.alter(1, |job| (job.extra.hidden, job.state) = (true, State::Queued)).await;
    assert!(store.claim("t", 9, NOW).await.is_empty());
}

pub async fn a_hidden_job_that_nobody_wants_is_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([hidden(job(1)), NewJob { expires_at: Some(after(9)), ..hidden(job(2)) }]).await;
    assert_eq!(store.at(after(9)).job_give_up(give_up_expired()).await.unwrap().len(), 1);
    let which = Overdue::Unhandled { key: key("t"), due_for: Duration::from_secs(51) };
    let give_up = GiveUp { which, ..give_up_expired() };
    assert_eq!(store.at(after(60)).job_give_up(give_up).await.unwrap().len(), 1);
    let stats = store.stats("t", after(60)).await.unwrap();
    assert_eq!((stats.failed, stats.deferred), (2, 0));
}
