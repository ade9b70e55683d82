//! From a job's `expires_at` on, claims and takes skip it, and it waits to be given up.

use std::time::Duration;

use windlass_core::edit::Take;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{Claim, GiveUp, Pick};
use windlass_core::{Extra, NewJob, State};

use crate::Harness;
use crate::fixture::{
    Subject, after, again, claim_of, claimed_numbers, give_up_expired, job, job_of, numbers, pick,
    priority,
};
use crate::kin::{glob, take, taken_numbers};

/// When the jobs of these cases expire.
const END: u64 = 5;

fn expiring(new: NewJob) -> NewJob {
    NewJob { expires_at: Some(after(END)), ..new }
}

pub async fn a_job_is_claimed_only_before_its_expiry(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([expiring(job(1)), expiring(job(2))]).await;
    let just_before = after(END) - Duration::from_millis(1);
    assert_eq!(claimed_numbers(&store.claim("t", 1, just_before).await), [1]);
    assert!(store.claim("t", 1, after(END)).await.is_empty());
    assert!(store.claim("t", 1, after(END + 60)).await.is_empty());
    assert_eq!(store.state(2).await, State::Queued, "it is left to be given up");
}

pub async fn a_claim_gets_what_is_behind_expired_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([1, 2, 4, 6].map(|number| expiring(job(number)))).await;
    store.add([3, 5, 7].map(job)).await;
    assert_eq!(claimed_numbers(&store.claim("t", 2, after(END)).await), [3, 5]);
    assert_eq!(claimed_numbers(&store.claim("t", 9, after(END)).await), [7]);
    assert!(store.waiting(after(END)).await.types.is_empty(), "the type is closed");
    let stats = store.stats("t", after(END)).await.unwrap();
    assert_eq!((stats.ready, stats.deferred, stats.running), (0, 4, 3));
}

pub async fn a_floor_skips_what_has_expired(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let with = |number, urgency| NewJob { priority: priority(urgency), ..job(number) };
    store.add([expiring(with(1, 300)), with(2, 100), expiring(with(3, 900)), with(4, 900)]).await;
    let picks = vec![Pick { floor: Some(priority(400)), ..pick("t", 2) }];
    let claimed = store.at(after(END)).job_claim(claim_of(picks)).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2, 4]);
}

pub async fn an_expired_job_takes_no_room_for_payloads(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([expiring(job(1)), job(2)]).await;
    let claim = Claim { payload_bytes_max: 1, ..claim_of(vec![pick("t", 9)]) };
    let claimed = store.at(after(END)).job_claim(claim).await.unwrap().jobs;
    assert_eq!(claimed_numbers(&claimed), [2]);
}

pub async fn an_expired_job_that_claims_have_skipped_is_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([expiring(job(1)), job(2), expiring(job(3))]).await;
    assert_eq!(store.claim("t", 9, after(END)).await.len(), 1);
    let mut given_up = store.job_give_up(give_up_expired()).await.unwrap();
    given_up.sort_by_key(|job| job.id);
    assert_eq!(numbers(&given_up), [1, 3]);
    let states = [State::Failed, State::Running, State::Failed];
    assert_eq!(store.states(1..=3).await, states);
    let stats = store.stats("t", after(END)).await.unwrap();
    assert_eq!((stats.ready, stats.deferred, stats.failed), (0, 0, 2));
}

/// They can be cancelled, removed and changed as any other job.
pub async fn an_expired_job_that_claims_have_skipped_can_be_changed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=3).map(|number| expiring(job(number)))).await;
    assert!(store.claim("t", 9, after(END)).await.is_empty());
    store.cancel(1, after(END)).await;
    store.delete(2).await;
    store.alter(3, |job| job.expires_at = None).await;
    assert_eq!(claimed_numbers(&store.claim("t", 9, after(END)).await), [3]);
    let stats = store.stats("t", after(END)).await.unwrap();
    assert_eq!((stats.ready, stats.deferred, stats.cancelled), (0, 0, 1));
    assert!(store.job_give_up(give_up_expired()).await.unwrap().is_empty());
}

pub async fn a_job_that_expired_while_it_ran_is_not_claimed_again(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(expiring(job(1)), again(after(END))).await;
    assert!(store.claim("t", 1, after(2 * END)).await.is_empty());
    assert_eq!(store.job_give_up(give_up_expired()).await.unwrap().len(), 1);
}

pub async fn a_take_skips_expired_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let hidden = |new| NewJob { extra: Extra { hidden: true, ..Extra::default() }, ..new };
    store.add([expiring(job_of("a", 1)), job_of("a", 2), expiring(job_of("b", 3))]).await;
    store.add([expiring(hidden(job_of("b", 4))), hidden(job_of("c", 5))]).await;
    let wanted = |limit| Take { hidden: true, ..take(glob("*"), limit, after(END)) };
    let took = store.at(after(END)).job_take(wanted(1)).await.unwrap();
    assert_eq!(taken_numbers(&took), [2]);
    let took = store.job_take(wanted(9)).await.unwrap();
    assert_eq!(taken_numbers(&took), [5]);
    assert!(store.job_take(wanted(9)).await.unwrap().given.is_empty());
    assert_eq!(store.job_give_up(give_up_expired()).await.unwrap().len(), 3);
    for name in ["a", "b", "c"] {
        let stats = store.stats(name, after(END)).await.unwrap();
        assert_eq!((stats.ready, stats.deferred), (0, 0), "{name}");
    }
}

/// A store may skip very many in steps; it still finds the job behind them.
pub async fn a_job_is_found_behind_very_many_that_have_expired(harness: &dyn Harness) {
    const GLUT: i64 = 2_500;
    let store = Subject::fresh(harness).await;
    for name in ["claimed", "taken"] {
        let from = if name == "claimed" { 0 } else { 10_000 };
        let glut: Vec<NewJob> =
            (1..=GLUT).map(|number| expiring(job_of(name, from + number))).collect();
        for some in glut.chunks(BATCH_JOBS_MAX) {
            store.add(some.to_vec()).await;
        }
        store.add([job_of(name, from + GLUT + 1)]).await;
    }
    assert_eq!(claimed_numbers(&store.claim("claimed", 3, after(END)).await), [GLUT + 1]);
    let took = store.job_take(take(glob("taken"), 3, after(END))).await.unwrap();
    assert_eq!(taken_numbers(&took), [10_000 + GLUT + 1]);
    assert!(store.waiting(after(END)).await.types.is_empty());
    let all = GiveUp { limit: BATCH_JOBS_MAX, ..give_up_expired() };
    assert_eq!(store.job_give_up(all).await.unwrap().len() as i64, 2 * GLUT);
}

/// The clock was wrong when it had expired.
pub async fn an_expired_job_is_ready_again_when_the_clock_is_set_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let start = store.now();
    store.add([1, 2].map(|number| expiring(job(number)))).await;
    assert!(store.claim("t", 9, after(END)).await.is_empty());
    let closed = store.waiting(after(END)).await;
    assert!(closed.types.is_empty());
    store.set_clock(start);
    store.boot_next().await.unwrap();
    let opened = store.changed_since(closed.up_to, 9, start).await;
    assert_eq!(opened.types.iter().map(|of_type| of_type.ready).collect::<Vec<_>>(), [2]);
    assert_eq!(claimed_numbers(&store.claim("t", 9, start).await), [1, 2]);
}
