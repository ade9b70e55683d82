//! Claims: due jobs get new leases, each for one caller, in the right order.

use std::time::Duration;

use bytes::Bytes;

use windlass_core::job::Token;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{Claim, Error, Hold, Pick, Settled};
use windlass_core::{Job, Lease, NewJob, Payload, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, LEASE, NOW, Subject, acme, after, claim_of, claimed_numbers, everything_of,
    globex, handler_spec, id, job, job_of, key, pick, priority, queued, release, settlement, sysid,
};

pub async fn s0_13_a_claimed_job_has_an_owner_and_a_time_out(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claim = Claim {
        picks: vec![pick("t", 10)],
        owner: sysid(4095),
        token: Token(3),
        hold: Hold::For(LEASE),
        payload_bytes_max: u64::MAX,
    };
    let claimed = store.at(after(2)).job_claim(claim).await.unwrap().jobs;

    let running = Job {
        state: State::Running,
        attempt: 1,
        started_at: Some(after(2)),
        lease: Some(Lease {
            owner: sysid(4095),
            token: Token(3),
            expires_at: after(12),
            on_beat: false,
        }),
        ..queued(&job(1))
    };
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].job, running);
    assert_eq!(claimed[0].payload, job(1).payload);
    assert_eq!(claimed[0].handler, None);
    assert_eq!(store.get(1).await, running);
}

pub async fn s0_5_a_job_is_not_claimed_before_its_time(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { run_at: after(2), ..job(1) }]).await;
    assert!(store.claim("t", 10, NOW).await.is_empty());
    assert!(store.claim("t", 10, after(2) - Duration::from_millis(1)).await.is_empty());
    assert_eq!(claimed_numbers(&store.claim("t", 10, after(2)).await), [1]);
}

pub async fn s2_26_the_oldest_goes_first(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    // The one that has been due the longest, then the smallest id; the order of arrival does not
    // matter.
    let later_due = NewJob { run_at: after(1), ..job(1) };
    store.add([job(5), job(3), job(4), later_due, job(2)]).await;
    assert_eq!(claimed_numbers(&store.claim("t", 2, after(1)).await), [2, 3]);
    assert_eq!(claimed_numbers(&store.claim("t", 10, after(1)).await), [4, 5, 1]);
}

pub async fn the_most_urgent_go_first(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let with = |number, urgency| NewJob { priority: priority(urgency), ..job(number) };
    store.add([with(1, 0), with(2, 500), with(3, 1000), with(4, 500), with(5, 999)]).await;
    assert_eq!(claimed_numbers(&store.claim("t", 3, NOW).await), [3, 5, 2]);
    assert_eq!(claimed_numbers(&store.claim("t", 3, NOW).await), [4, 1]);
}

pub async fn no_more_than_the_limit(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=5).map(job)).await;
    assert!(store.claim("t", 0, NOW).await.is_empty());
    assert_eq!(store.claim("t", 2, NOW).await.len(), 2);
    assert_eq!(store.claim("t", u32::MAX, NOW).await.len(), 3);
    assert!(store.claim("t", 10, NOW).await.is_empty());
}

pub async fn payloads_have_a_limit_together(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let with_payload = |number, bytes| {
        let payload = Payload::Inline(Bytes::from(vec![b'x'; bytes]));
        NewJob { payload, ..job(number) }
    };
    let other = NewJob { key: key("u"), ..with_payload(5, 1) };
    store.add([1, 2, 3].map(|number| with_payload(number, 10))).await;
    store.add([with_payload(4, 30), other]).await;
    let claim = |payload_bytes_max| {
        let picks = vec![pick("t", 9), pick("u", 9)];
        let store = &store;
        async move {
            let claim = Claim { payload_bytes_max, ..claim_of(picks) };
            store.at(NOW).job_claim(claim).await.unwrap().jobs
        }
    };
    let first = claim(11).await;
    assert_eq!(claimed_numbers(&first), [1, 2], "the second brings them to the limit");
    assert_eq!(first[0].left, 2, "the others are ready");
    assert_eq!(claimed_numbers(&claim(1).await), [3], "one job at least");
    assert_eq!(claimed_numbers(&claim(31).await), [4, 5], "the types behind it, too");
}

pub async fn skips_suspended_types(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job_of("other", 2)]).await;
    store.type_suspend(&key("t"), true).await.unwrap();
    let both = || vec![pick("t", 10), pick("other", 10)];
    let claimed = store.at(NOW).job_claim(claim_of(both())).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2]);

    store.type_suspend(&key("t"), false).await.unwrap();
    let claimed = store.at(NOW).job_claim(claim_of(both())).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [1]);
}

pub async fn each_pick_gets_its_own(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job_of("a", 1), job_of("b", 2), job_of("a", 3), job_of("b", 4)]).await;
    let picks = vec![pick("b", 1), pick("none", 5), pick("a", 5)];
    let claimed = store.at(NOW).job_claim(claim_of(picks)).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2, 1, 3]);
}

pub async fn a_type_may_be_picked_twice(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=4).map(job)).await;
    let claimed =
        store.at(NOW).job_claim(claim_of(vec![pick("t", 1), pick("t", 2)])).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [1, 2, 3]);
}

pub async fn an_unknown_type_gives_nothing_and_stays_unknown(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert!(store.claim("t", 10, NOW).await.is_empty());
    assert_eq!(store.type_stats(None).await.unwrap(), []);
}

pub async fn a_running_job_is_not_claimed_again(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    assert!(store.claim("t", 10, NOW).await.is_empty());

    // Not even after its lease has expired: it has to be broken first.
    assert!(store.claim("t", 10, NOW + LEASE * 100).await.is_empty());
    assert_eq!(store.get(1).await, claimed.job);
}

pub async fn an_ended_job_is_not_claimed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.ran(job(2), FAILED).await;
    store.add([job(3)]).await;
    store.cancel(3, NOW).await;
    assert!(store.claim("t", 10, after(3600)).await.is_empty());
}

async fn store_with_urgencies(harness: &dyn Harness) -> Subject {
    let store = Subject::fresh(harness).await;
    let with = |number, urgency| NewJob { priority: priority(urgency), ..job(number) };
    store.add([with(1, 100), with(2, 300), with(3, 300), with(4, 900), with(5, 900)]).await;
    store
}

fn floored(limit: u32, floor: i64) -> Vec<Pick> {
    vec![Pick { floor: Some(priority(floor)), ..pick("t", limit) }]
}

pub async fn a_floor_gives_the_less_urgent_the_first_turn(harness: &dyn Harness) {
    let store = store_with_urgencies(harness).await;
    let claimed = store.at(NOW).job_claim(claim_of(floored(1, 500))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2], "the oldest of the most urgent under the floor");
    let claimed = store.at(NOW).job_claim(claim_of(floored(3, 200))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [1, 4, 5], "only the first job is below its turn");
}

pub async fn a_floor_counts_its_own_priority_in(harness: &dyn Harness) {
    let store = store_with_urgencies(harness).await;
    let claimed = store.at(NOW).job_claim(claim_of(floored(1, 300))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2]);
    let claimed = store.at(NOW).job_claim(claim_of(floored(1, 299))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [1]);
    let claimed = store.at(NOW).job_claim(claim_of(floored(1, 1000))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [4]);
}

pub async fn a_floor_that_nothing_is_under_changes_nothing(harness: &dyn Harness) {
    let store = store_with_urgencies(harness).await;
    let claimed = store.at(NOW).job_claim(claim_of(floored(3, 99))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [4, 5, 2]);
}

pub async fn a_floor_skips_what_is_not_due(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let deferred = NewJob { run_at: after(60), priority: priority(300), ..job(1) };
    let low = NewJob { priority: priority(100), ..job(2) };
    store.add([deferred, low, job(3)]).await;
    let claimed = store.at(NOW).job_claim(claim_of(floored(5, 400))).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2, 3]);
}

pub async fn every_claim_has_the_token_that_its_caller_brought(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let by = |token| Claim { token, ..claim_of(vec![pick("t", 2)]) };
    for number in [30, 900, 7_000_000_000_000_000] {
        let claimed = store.job_claim(by(Token(number))).await.unwrap().jobs;
        assert_eq!(claimed.len(), 2);
        for claimed in claimed {
            assert_eq!(claimed.job.lease.expect("a lease").token, Token(number));
            assert_eq!(store.settle(settlement(&claimed, release(NOW))).await, Settled::Done);
        }
    }
}

pub async fn the_handler_in_force_comes_along(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=3).map(job)).await;
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    assert_eq!(store.claim("t", 1, NOW).await[0].handler, Some(id(100)));
    store.at(NOW).handler_put(id(101), &key("t"), handler_spec()).await.unwrap();
    assert_eq!(store.claim("t", 1, NOW).await[0].handler, Some(id(101)));
    store.handler_delete(&key("t")).await.unwrap();
    assert_eq!(store.claim("t", 1, NOW).await[0].handler, None);
}

pub async fn types_of_the_same_name_are_apart(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let theirs = TypeKey { tenant: globex(), ..key("t") };
    store.add([job(1), NewJob { key: theirs.clone(), ..job(2) }]).await;
    store.type_suspend(&theirs, true).await.unwrap();
    assert_eq!(claimed_numbers(&store.claim("t", 10, NOW).await), [1]);

    store.type_suspend(&theirs, false).await.unwrap();
    let pick = Pick { key: theirs.clone(), limit: 10, floor: None };
    let claimed = store.at(NOW).job_claim(claim_of(vec![pick])).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2]);
    assert_eq!(claimed[0].job.key, theirs);
    assert_eq!(store.job_get(&acme(), id(2)).await.unwrap(), None);
}

pub async fn the_tokens_of_one_job_grow(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2), job_of("other", 3)]).await;
    let claim = |token: i64| {
        let picks = vec![pick("other", 1), pick("t", 2)];
        store.job_claim(Claim { token: Token(token), ..claim_of(picks) })
    };
    let first = Claim { token: Token(100), ..claim_of(vec![pick("t", 1)]) };
    let claimed = store.job_claim(first).await.unwrap().jobs.remove(0);
    store.settle(settlement(&claimed, release(NOW))).await;
    let before = store.listed(everything_of(acme())).await;
    let refused = claim(99).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(store.listed(everything_of(acme())).await, before, "nothing was taken");
    assert_eq!(claim(101).await.unwrap().jobs.len(), 3);
}

/// A store may promote very many due jobs in steps; it still finds this one.
pub async fn a_due_job_is_found_behind_very_many_that_came_due_before_it(harness: &dyn Harness) {
    const GLUT: i64 = 12_000;
    let store = Subject::fresh(harness).await;
    let glut: Vec<NewJob> =
        (1..=GLUT).map(|n| NewJob { run_at: after(60), ..job_of("glut", n) }).collect();
    for some in glut.chunks(BATCH_JOBS_MAX) {
        store.add(some.to_vec()).await;
    }
    store.add([NewJob { run_at: after(61), ..job_of("last", GLUT + 1) }]).await;
    assert!(store.claim("last", 1, after(60)).await.is_empty());
    assert_eq!(claimed_numbers(&store.claim("last", 1, after(61)).await), [GLUT + 1]);
    assert!(store.claim("none", 1, after(61)).await.is_empty());
    assert_eq!(store.claim("glut", 3, after(61)).await.len(), 3);
}
