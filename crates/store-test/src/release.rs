//! Releases of running jobs: the attempt does not count.

use windlass_core::job::Ended;
use windlass_core::retry::Verdict;
use windlass_core::store::{Claimed, Inserted, Settled};
use windlass_core::{Extra, Job, NewJob, Payload, State, Status};

use crate::Harness;
use crate::fixture::{
    NOW, Subject, acme, after, again, claimed_numbers, id, job, job_of, priority, queued, release,
    settlement,
};
use crate::kin::{glob, take};

pub async fn s0_49_a_released_job_comes_back_and_its_attempt_does_not_count(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", after(1)).await;
    assert_eq!(store.settle(settlement(&claimed, release(NOW))).await, Settled::Done);
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.attempt), (State::Queued, 0));
    assert_eq!((seen.lease, seen.last, seen.finished_at), (None, None, None));
    assert_eq!((seen.run_at, seen.due_at), (after(1), NOW));

    let claimed = store.claim_one("t", after(1)).await;
    assert_eq!(claimed.job.attempt, 1);
    assert_eq!(store.settle(settlement(&claimed, store.release(after(9)))).await, Settled::Done);
    assert!(store.claim("t", 10, after(8)).await.is_empty(), "it may be released for later");
    assert_eq!(store.claim_one("t", after(9)).await.job.attempt, 1);
}

pub async fn a_release_keeps_how_an_earlier_attempt_ended(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), again(NOW)).await;
    let claimed = store.claim_one("t", after(1)).await;
    assert_eq!(claimed.job.last, Some(Ended::from(Status::RETRY)));
    store.settle(settlement(&claimed, release(after(1)))).await;
    let seen = store.get(1).await;
    assert_eq!((seen.attempt, seen.last), (1, Some(Ended::from(Status::RETRY))));
}

pub async fn s2_36_a_released_job_goes_back_to_its_place(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=4).map(job)).await;
    let claimed = store.claim("t", 2, NOW).await;
    assert_eq!(store.settle(settlement(&claimed[1], release(NOW))).await, Settled::Done);
    assert_eq!(claimed_numbers(&store.claim("t", 10, NOW).await), [2, 3, 4], "the oldest first");
}

pub async fn a_released_job_is_otherwise_as_it_was(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let new =
        NewJob { expires_at: Some(after(600)), unique: Some("k".into()), ..job_of("with more", 1) };
    // It is settled a second after its start.
    store.ran(new.clone(), release(after(4))).await;
    assert_eq!(store.get(1).await, Job { run_at: after(5), ..queued(&new) });
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(Vec::new()));
    let same_key = NewJob { id: id(2), ..new };
    assert_eq!(store.insert([same_key]).await, [Inserted::Held(id(1))]);
}

pub async fn a_released_job_shows_the_start_of_the_attempt_before(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let started = async || store.get(1).await.started_at;
    let give_back = [release(NOW), Verdict::Release { after: None }];
    for verdict in give_back {
        let claimed = store.claim_one("t", after(1)).await;
        store.settle(settlement(&claimed, verdict)).await;
        assert_eq!(started().await, None, "{verdict:?}");
    }
    let counted = store.claim_one("t", after(2)).await;
    store.settle(settlement(&counted, again(NOW))).await;
    for verdict in give_back {
        let claimed = store.claim_one("t", after(3)).await;
        assert_eq!(started().await, Some(after(3)));
        store.settle(settlement(&claimed, verdict)).await;
        assert_eq!(started().await, Some(after(2)), "{verdict:?}");
    }
}

/// A decision gave it its lease, and another one has changed it since.
pub async fn a_released_job_of_a_take_shows_the_start_of_the_attempt_before(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), again(NOW)).await;
    let before = store.get(1).await;
    assert_eq!(before.started_at, Some(NOW));
    let took = store.job_take(take(glob("t"), 1, after(2))).await.unwrap();
    store.alter(1, |job| job.priority = priority(900)).await;
    assert_eq!(store.get(1).await.started_at, Some(after(2)));
    let job = took.given[0].job.clone();
    let taken = Claimed { job, payload: Payload::Inline("".into()), handler: None, left: 0 };
    let given_back = settlement(&taken, Verdict::Release { after: None });
    assert_eq!(store.settle(given_back).await, Settled::Done);
    assert_eq!(store.get(1).await, Job { priority: priority(900), ..before });
}

pub async fn a_job_that_was_not_begun_keeps_its_order_and_the_text_of_its_time(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    let text = Some("2027-01-15 08:00:00".into());
    let extra = |order_key| Extra { order_key, run_at_text: text.clone(), ..Extra::default() };
    // Later numbers go first.
    let jobs = (1..=3).map(|number| NewJob { extra: extra(-number), ..job(number) });
    store.add(jobs).await;
    let claimed = store.claim("t", 2, NOW).await;
    assert_eq!(claimed_numbers(&claimed), [3, 2]);
    for claimed in &claimed {
        store.settle(settlement(claimed, Verdict::Release { after: None })).await;
    }
    assert_eq!(store.get(2).await.extra, extra(-2));
    assert_eq!(claimed_numbers(&store.claim("t", 3, NOW).await), [3, 2, 1]);
}

pub async fn a_job_that_was_not_begun_goes_back_to_its_old_place(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=3).map(job)).await;
    let first = store.claim("t", 1, after(5)).await.remove(0);
    store.settle(settlement(&first, Verdict::Release { after: None })).await;
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.attempt, seen.run_at), (State::Queued, 0, NOW));
    assert_eq!(claimed_numbers(&store.claim("t", 3, after(5)).await), [1, 2, 3]);
    // Also if the clock was set back in the meantime.
    let second = store.claim("t", 1, after(5)).await;
    assert!(second.is_empty());
    store.add([NewJob { run_at: after(5), created_at: after(5), ..job(4) }]).await;
    let fourth = store.claim_one("t", after(5)).await;
    store.set_clock(NOW);
    store.settle(settlement(&fourth, Verdict::Release { after: None })).await;
    assert_eq!(claimed_numbers(&store.claim("t", 3, NOW).await), [4]);
}
