//! Takes: due jobs by name, in the right order, and what the decision makes of them.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::edit::{Edit, FullJob, Put, Take, TakeAnswer, TakeDecision};
use windlass_core::store::{Error, GiveUp, Overdue};
use windlass_core::{Extra, Job, NewJob, Payload, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, after, everything_of, give_up_expired, globex, id, job, job_of,
    key, priority, release, settlement,
};
use crate::kin::{any_of, glob, leased, leased_by, put, take, taken_numbers};

fn urgent(name: &str, number: i64, urgency: i64) -> NewJob {
    NewJob { priority: priority(urgency), ..job_of(name, number) }
}

pub async fn a_taken_job_is_what_the_decision_made_of_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let before = store.full_job(1).await;
    let took = store.job_take(take(glob("t"), 5, NOW)).await.unwrap();
    assert_eq!((took.given.len(), took.kept), (1, 0));
    assert_eq!(took.given[0].before, before);
    let token = took.given[0].job.lease.expect("a lease").token;
    assert_eq!(took.given[0].job, leased_by(token, &before, NOW));
    assert_eq!(store.get(1).await, took.given[0].job);
    assert_eq!(took.given[0].parent, None);
    assert!(store.take_of(glob("*"), 5).await.is_empty(), "it is taken");
    assert!(store.claim("t", 5, NOW).await.is_empty());
}

pub async fn a_take_whose_decision_panics_takes_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let decide = |whole: &FullJob, _, _| match whole.job.id.get() {
        1 => TakeDecision {
            put: Put { job: leased(whole, NOW), payload: None, purge_at: None },
            give: true,
        },
        _ => panic!("the rules are broken"),
    };
    let panicking = Take { decide: Arc::new(decide), ..take(glob("t"), 5, NOW) };
    let answer = store.job_take(panicking).await;
    let told = matches!(&answer, Err(Error::Internal(why)) if why.contains("the rules are broken"));
    assert!(told, "{answer:?}");
    assert_eq!(store.take_of(glob("t"), 5).await, [1, 2], "the store goes on");
}

pub async fn the_order_is_priority_then_time_then_name_then_id(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let at = |new: NewJob, seconds| NewJob { run_at: after(seconds), ..new };
    store
        .add([
            urgent("b", 1, 500),
            urgent("a", 2, 500),
            urgent("b", 3, 500),
            urgent("c", 4, 1000),
            at(urgent("c", 5, 500), 1),
            at(urgent("a", 6, 900), 9),
            at(urgent("b", 7, 900), 3),
            urgent("a", 8, 0),
            urgent("a", 9, 500),
        ])
        .await;
    let all =
        taken_numbers(&store.at(after(9)).job_take(take(glob("*"), 100, after(9))).await.unwrap());
    assert_eq!(all, [4, 7, 6, 2, 9, 1, 3, 5, 8]);
}

pub async fn jobs_of_one_millisecond_go_by_their_keys_and_then_what_was_lent(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    let due = after(10);
    let keys = [
        ("a", 1, 0),
        ("b", 2, 0),
        ("b", 3, 0),
        ("b", 4, -1),
        ("a", 5, -1),
        ("b", 6, -1 << 60),
        ("a", 7, -1 << 60),
    ];
    let order = [6, 7, 5, 4, 2, 3, 1];
    // Made ready by a promotion, by an edit, and by an insert.
    let add = async |run_at, now| {
        let jobs = keys.map(|(name, number, order_key)| NewJob {
            run_at,
            created_at: now,
            extra: Extra { order_key, ..Extra::default() },
            ..job_of(name, number)
        });
        store.add(jobs).await;
        for lent in [1, 7] {
            store.alter(lent, |job| job.extra.lent = true).await;
        }
    };
    let remove = async || store.edit(order.map(|n| Edit::Delete(id(n))).into()).await;
    add(due, NOW).await;
    let all = store.at(due).job_take(take(glob("*"), 9, due)).await.unwrap();
    assert_eq!(taken_numbers(&all), order);
    remove().await;
    add(due, due).await;
    for number in order {
        let one = store.at(due).job_take(take(glob("?"), 1, due)).await.unwrap();
        assert_eq!(taken_numbers(&one), [number]);
    }
    remove().await;
    add(due, due).await;
    let claimed = store.claim("b", 9, due).await;
    assert_eq!(claimed.iter().map(|c| c.job.id.get()).collect::<Vec<_>>(), [6, 4, 2, 3]);
    let claimed = store.claim("a", 9, due).await;
    assert_eq!(claimed.iter().map(|c| c.job.id.get()).collect::<Vec<_>>(), [7, 5, 1]);
}

pub async fn one_after_the_other_gives_the_same_order(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let names = ["a", "b", "c", "d"];
    let jobs = (1..=40).map(|n| urgent(names[n as usize % 4], n, [100, 500, 900][n as usize % 3]));
    store.add(jobs).await;
    let mut seen = Vec::new();
    for limit in [1, 1, 3, 1, 10, 2, 100] {
        let given = store.job_take(take(glob("[a-d]"), limit, NOW)).await.unwrap().given;
        seen.extend(given.into_iter().map(|taken| {
            let Job { priority, run_at, key, id, .. } = taken.job;
            (std::cmp::Reverse(priority), run_at, key.name, id)
        }));
    }
    assert_eq!(seen.len(), 40);
    assert!(seen.is_sorted(), "{seen:?}");
}

pub async fn a_glob_matches_the_whole_name(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let names = ["mail", "mail/a", "mail/b", "Mail/a", "x", "[x]"];
    store.add(names.iter().zip(1..).map(|(name, number)| job_of(name, number))).await;
    let cases = [
        ("mail", vec![1]),
        ("mail/?", vec![2, 3]),
        ("?ail/a", vec![4, 2]),
        ("mail/[^a]", vec![3]),
        ("mail*", vec![1, 2, 3]),
        ("[x]", vec![5]),
        ("[[]*", vec![6]),
        ("mai", vec![]),
        ("a|b", vec![]),
        ("", vec![]),
        ("mail/a,mail/b", vec![]),
    ];
    for (pattern, expected) in cases {
        let took = store.job_take(take(glob(pattern), 10, NOW)).await.unwrap();
        assert_eq!(taken_numbers(&took), expected, "{pattern}");
        for taken in took.given {
            store.alter(taken.job.id.get(), |job| job.state = State::Queued).await;
        }
    }
}

pub async fn a_list_has_no_patterns(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job_of("a", 1), job_of("b", 2), job_of("c", 3), job_of("*", 4)]).await;
    assert_eq!(store.take_of(any_of(&["*", "c", "none", "a", "a"]), 10).await, [4, 1, 3]);
    assert!(store.take_of(any_of(&[]), 10).await.is_empty());
}

pub async fn no_more_than_the_limit_are_asked_for(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=10).map(job)).await;
    // Every second one is not handed out, but fails.
    let every_second = |limit| {
        let decide = move |whole: &FullJob, _, _| {
            let give = whole.job.id.get() % 2 == 0;
            let failed = Job { state: State::Failed, ..whole.job.clone() };
            let job = if give { leased(whole, NOW) } else { failed };
            TakeDecision { put: Put { job, payload: None, purge_at: Some(after(9)) }, give }
        };
        Take { decide: Arc::new(decide), ..take(glob("*"), limit, NOW) }
    };
    let took = store.job_take(every_second(5)).await.unwrap();
    assert_eq!((taken_numbers(&took), took.kept), (vec![2, 4], 3));
    assert_eq!(store.states([1, 3, 5]).await, [State::Failed; 3]);
    assert_eq!(store.state(6).await, State::Queued);
    let took = store.job_take(every_second(1)).await.unwrap();
    assert_eq!((taken_numbers(&took), took.kept), (vec![6], 0));
    assert_eq!(store.at(after(9)).job_purge(9).await.unwrap(), 3);
}

pub async fn a_job_that_is_lent_is_queued_for_later(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let lend = |now, until| {
        let decide = move |whole: &FullJob, _, _| {
            let extra = Extra { lent: true, ..whole.job.extra.clone() };
            let job = Job { run_at: until, started_at: Some(now), extra, ..whole.job.clone() };
            TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
        };
        Take { decide: Arc::new(decide), ..take(glob("*"), 9, now) }
    };
    let took = store.job_take(lend(NOW, after(5))).await.unwrap();
    assert_eq!((taken_numbers(&took), took.moved.due), (vec![1], Some(after(5))));
    assert!(store.get(1).await.extra.lent);
    assert!(store.at(after(4)).job_take(lend(after(4), after(9))).await.unwrap().given.is_empty());
    assert_eq!(store.at(after(5)).job_take(lend(after(5), after(9))).await.unwrap().given.len(), 1);
    // A native claim gets it then.
    let claimed = store.claim_one("t", after(9)).await;
    assert!(!claimed.job.extra.lent && !store.get(1).await.extra.lent);
    store.settle(settlement(&claimed, crate::fixture::again(after(20)))).await;
    assert!(!store.get(1).await.extra.lent);
}

pub async fn only_this_priority(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let jobs = [("a", 500), ("a", 900), ("b", 500), ("b", 100), ("c", 900)];
    store.add(jobs.into_iter().zip(1..).map(|((name, urgency), n)| urgent(name, n, urgency))).await;
    let of = async |names, urgency| {
        let priority = Some(priority(urgency));
        taken_numbers(&store.job_take(Take { priority, ..take(names, 9, NOW) }).await.unwrap())
    };
    assert_eq!(of(glob("*"), 500).await, [1, 3]);
    assert!(of(glob("*"), 500).await.is_empty());
    assert_eq!(of(any_of(&["b", "c"]), 900).await, [5]);
    assert_eq!(of(glob("?"), 100).await, [4]);
}

pub async fn large_payloads_are_passed_over(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let sized = |number, bytes| NewJob {
        payload: Payload::Inline(vec![b'x'; bytes].into()),
        ..job(number)
    };
    store.add([sized(1, 101), sized(2, 100), sized(3, 5000), sized(4, 0)]).await;
    let small = Take { payload_bytes_max: 100, ..take(glob("*"), 3, NOW) };
    assert_eq!(taken_numbers(&store.job_take(small).await.unwrap()), [2, 4]);
    assert_eq!(store.take_of(glob("*"), 9).await, [1, 3]);
}

pub async fn payloads_fit_together_and_a_job_that_never_fits_is_named(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let sized = |number, bytes| NewJob {
        payload: Payload::Inline(vec![b'x'; bytes].into()),
        ..job(number)
    };
    let sizes = [60, 40, 0, 1, 100, 101, 0];
    store.add((1..).zip(sizes).map(|(number, bytes)| sized(number, bytes))).await;
    let some = Take { bytes_max: 100, ..take(glob("*"), 9, NOW) };
    for expected in [vec![1, 2, 3], vec![4], vec![5], vec![]] {
        let took = store.job_take(some.clone()).await.unwrap();
        assert_eq!(taken_numbers(&took), expected);
        assert_eq!((took.oversized, took.kept), (expected.is_empty(), 0));
    }
    let larger = Take { bytes_max: 101, ..some.clone() };
    assert_eq!(taken_numbers(&store.job_take(larger).await.unwrap()), [6, 7]);
    assert_eq!(store.job_take(some).await.unwrap(), TakeAnswer::default());
}

pub async fn suspended_types_give_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let hidden = Extra { hidden: true, ..Extra::default() };
    store.add([job_of("a", 1), job_of("b", 2), NewJob { extra: hidden, ..job_of("a", 3) }]).await;
    store.type_suspend(&key("a"), true).await.unwrap();
    let hidden = |names| Take { hidden: true, ..take(names, 9, NOW) };
    assert_eq!(taken_numbers(&store.job_take(hidden(glob("*"))).await.unwrap()), [2]);
    for names in [glob("a"), glob("a*"), any_of(&["a", "b"])] {
        assert!(store.job_take(hidden(names)).await.unwrap().given.is_empty());
    }
    store.type_suspend(&key("a"), false).await.unwrap();
    assert_eq!(taken_numbers(&store.job_take(hidden(glob("?"))).await.unwrap()), [1, 3]);
}

pub async fn tenants_take_their_own(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let hidden = Extra { hidden: true, ..Extra::default() };
    let theirs = || TypeKey { tenant: globex(), ..key("t") };
    store.add([NewJob { key: theirs(), ..job(1) }, job(2)]).await;
    store.add([NewJob { key: theirs(), extra: hidden, ..job(3) }]).await;
    let hidden = Take { hidden: true, ..take(glob("*"), 9, NOW) };
    assert_eq!(taken_numbers(&store.job_take(hidden.clone()).await.unwrap()), [2]);
    let took = store.job_take(Take { tenant: globex(), ..hidden }).await.unwrap();
    assert_eq!(taken_numbers(&took), [1, 3]);
    assert_eq!(took.given[0].job.key, theirs());
}

pub async fn a_job_comes_with_its_parent_or_its_ended_children(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let claimed = store.parent_with([2, 3, 4, 5]).await;
    store.settle(settlement(&claimed, FINISHED)).await;
    let took = store.job_take(take(glob("child"), 9, NOW)).await.unwrap();
    assert_eq!(taken_numbers(&took), [2, 3, 4, 5]);
    let parent = store.full_job(1).await;
    assert!(took.given.iter().all(|taken| taken.parent.as_ref() == Some(&parent)));
    assert!(took.given.iter().all(|taken| taken.finished.is_empty()));

    store.alter(2, |job| job.state = State::Finished).await;
    store.alter(3, |job| job.state = State::Cancelled).await;
    store.alter(4, |job| job.state = State::Failed).await;
    store.alter(5, |job| job.state = State::Finished).await;
    store.alter(1, |job| job.state = State::Queued).await;
    let took = store.job_take(take(glob("parent"), 9, NOW)).await.unwrap();
    let of = |number| (id(number), job(number).payload);
    assert_eq!(took.given[0].finished, [of(2), of(5)]);
    assert_eq!(took.given[0].cancelled, [of(3)]);
}

pub async fn jobs_have_to_fit_together_with_their_parents(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let claimed = store.parent_with([2, 3, 4, 5]).await;
    store.settle(settlement(&claimed, FINISHED)).await;
    let bytes = store.get(1).await.payload_bytes;
    for (jobs, expected) in [(1, vec![]), (2, vec![2]), (5, vec![3, 4]), (2, vec![5])] {
        let some = Take { bytes_max: jobs * bytes, ..take(glob("child"), 9, NOW) };
        assert_eq!(taken_numbers(&store.job_take(some).await.unwrap()), expected);
    }
}

pub async fn ended_children_are_shown_with_the_payloads_that_fit(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let claimed = store.parent_with([2, 3, 4, 5]).await;
    store.settle(settlement(&claimed, FINISHED)).await;
    for (number, state) in [(2, State::Finished), (3, State::Cancelled), (5, State::Finished)] {
        store.alter(number, |job| job.state = state).await;
    }
    store.alter(1, |job| job.state = State::Queued).await;
    let bytes = store.get(1).await.payload_bytes;
    let some = Take { payload_bytes_max: 2 * bytes, ..take(glob("parent"), 9, NOW) };
    let took = store.job_take(some).await.unwrap();
    let of = |number| (id(number), job(number).payload);
    assert_eq!(took.given[0].finished, [of(2), of(5)]);
    assert_eq!(took.given[0].cancelled, [(id(3), Payload::Pieces { bytes })], "no room is left");
}

pub async fn few_names_are_found_among_very_many(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=1200).map(|n| urgent(&format!("many/{n:04}"), n, 900))).await;
    store.add((1201..=1203).map(|n| urgent(&format!("rare/{n}"), n, n - 1000))).await;
    store.add([urgent("many/x", 1204, 1000)]).await;
    assert_eq!(store.take_of(glob("rare/*"), 2).await, [1203, 1202]);
    assert_eq!(store.take_of(glob("*/1*01"), 9).await, [1001, 1101, 1201]);
    assert_eq!(store.take_of(glob("many/*[x9]"), 3).await, [1204, 9, 19]);
    assert_eq!(store.take_of(glob("many/12*"), 2).await, [1200]);
}

pub async fn whoever_takes_looks_after_a_type(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    store.at(after(10)).job_take(take(glob("*"), 1, after(10))).await.unwrap();
    let unhandled = |seconds| GiveUp {
        which: Overdue::Unhandled { key: key("t"), due_for: Duration::from_secs(seconds) },
        ..give_up_expired()
    };
    assert_eq!(store.at(after(30)).job_give_up(unhandled(21)).await.unwrap(), []);
    assert_eq!(store.job_give_up(unhandled(10)).await.unwrap().len(), 1);
}

pub async fn takers_never_take_the_same_job(harness: &dyn Harness) {
    const JOBS: i64 = 60;
    let store = Subject::fresh(harness).await;
    store.add((1..=JOBS).map(|n| job_of(["a", "b", "c"][n as usize % 3], n))).await;
    let mut takers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        takers.spawn(async move {
            let mut taken = Vec::new();
            loop {
                match store.take_of(glob("*"), 4).await {
                    none if none.is_empty() => return taken,
                    some => taken.extend(some),
                }
            }
        });
    }
    let mut taken = takers.join_all().await.concat();
    taken.sort();
    assert_eq!(taken, Vec::from_iter(1..=JOBS));
}

pub async fn a_decision_that_cannot_be_carried_out_takes_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let decide = |whole: &FullJob, _, _| {
        let lease = leased(whole, NOW).lease.filter(|_| whole.job.id == id(1));
        let job = Job { lease, ..leased(whole, NOW) };
        TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true }
    };
    let odd = Take { decide: Arc::new(decide), ..take(glob("*"), 9, NOW) };
    assert!(store.job_take(odd).await.is_err());
    assert_eq!(store.take_of(glob("*"), 9).await, [1, 2]);
    store.edit(vec![put(Job { state: State::Queued, ..store.get(1).await })]).await;
    assert_eq!(store.take_of(glob("*"), 9).await, [1]);
}

/// There are more types than one call reads, and only the last one matches.
pub async fn a_search_that_ends_early_says_where_it_goes_on(harness: &dyn Harness) {
    const TYPES: i64 = 10_500;
    let store = Subject::fresh(harness).await;
    let others = (1..TYPES).map(|n| job_of(&format!("other/{n}"), n));
    for others in others.collect::<Vec<_>>().chunks(2000) {
        store.add(others.to_vec()).await;
    }
    store.add([urgent("the/one", TYPES, 1)]).await;
    let mut wanted = take(glob("*one"), 1, NOW);
    for _ in 0..TYPES {
        let took = store.job_take(wanted.clone()).await.unwrap();
        if !took.given.is_empty() {
            assert_eq!(taken_numbers(&took), [TYPES]);
            return;
        }
        assert!(took.next.is_some(), "it has not come to the end");
        wanted.after = took.next;
    }
    panic!("the search does not come to an end");
}

pub async fn a_take_with_a_smaller_token_takes_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job_of("other", 2)]).await;
    let early = take(glob("*"), 5, NOW);
    let claimed = store.claim_one("t", NOW).await;
    store.settle(settlement(&claimed, release(NOW))).await;
    let before = store.listed(everything_of(acme())).await;
    let refused = store.job_take(early).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(store.listed(everything_of(acme())).await, before, "nothing was taken");
    assert_eq!(store.take_of(glob("*"), 5).await, [2, 1], "equally urgent, so by name");
}
