//! Expired leases are broken; jobs that waited too long are given up.

use std::time::Duration;

use windlass_core::job::Ended;
use windlass_core::store::{AttemptLog, GiveUp, Overdue, Settled, Settlement};
use windlass_core::{Job, NewJob, State, Status};

use crate::Harness;
use crate::fixture::{
    DAY, FAILED, FINISHED, LEASE, NOW, Subject, acme, after, again, claim_of, give_up_expired,
    globex, handler_spec, id, job, job_of, key, lease_ref, numbers, pick, queued, release, said,
    settlement,
};

pub async fn a_lease_runs_out_at_its_time(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let just_before = NOW + LEASE - Duration::from_millis(1);
    assert_eq!(store.at(just_before).lease_expired(10).await.unwrap(), []);
    let expired = store.at(NOW + LEASE).lease_expired(10).await.unwrap();
    assert_eq!(expired, [claimed.job]);
    assert_eq!(store.get(1).await, expired[0], "looking changes nothing");
    assert_eq!(store.at(NOW + LEASE).lease_expired(10).await.unwrap().len(), 1);
}

pub async fn the_oldest_expiry_comes_first(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=4).map(job)).await;
    let claimed = store.claim("t", 4, NOW).await;
    for (claimed, seconds) in claimed.iter().zip([40, 20, 30, 50]) {
        store.renew(vec![lease_ref(claimed)], after(seconds)).await;
    }
    let at = |limit| store.at(after(45)).lease_expired(limit);
    assert_eq!(numbers(&at(10).await.unwrap()), [2, 3, 1]);
    assert_eq!(numbers(&at(2).await.unwrap()), [2, 3]);
}

pub async fn only_running_jobs_have_leases_that_run_out(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=4).map(job)).await;
    let claimed = store.claim("t", 4, NOW).await;
    store.settle(settlement(&claimed[0], FINISHED)).await;
    store.settle(settlement(&claimed[1], again(after(9999)))).await;
    store.settle(settlement(&claimed[2], release(after(9999)))).await;
    store.cancel(4, NOW).await;
    assert_eq!(store.at(after(3600)).lease_expired(10).await.unwrap(), []);
}

fn broken(job: &Job) -> Settlement {
    let token = job.lease.expect("a running job has a lease").token;
    Settlement {
        lease: windlass_core::store::LeaseRef { tenant: job.key.tenant.clone(), id: job.id, token },
        verdict: again(NOW),
        ended: Some(Ended::from(Status::ERROR)),
        data: None,
        progress: None,
        log: said("lease lost"),
        adds: Vec::new(),
        follow: None,
        keep: DAY,
        only_if_expired: true,
    }
}

pub async fn s0_15_a_job_whose_lease_was_broken_runs_again(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    store.claim_one("t", NOW).await;
    let at = NOW + LEASE;
    let expired = store.at(at).lease_expired(10).await.unwrap().remove(0);
    assert_eq!(store.settle(broken(&expired)).await, Settled::Done);
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.attempt, seen.lease), (State::Queued, 1, None));
    assert_eq!(seen.last, Some(Ended::from(Status::ERROR)));
    assert_eq!(store.claim_one("t", at).await.job.attempt, 2, "the lost attempt counts");
    assert_eq!(store.at(after(99)).settle(broken(&expired)).await, Settled::Stale);
}

pub async fn a_lease_renewed_meanwhile_is_not_broken(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let at = NOW + LEASE;
    let expired = store.at(at).lease_expired(10).await.unwrap().remove(0);
    store.renew(vec![lease_ref(&claimed)], at + LEASE).await;
    let before = store.get(1).await;
    assert_eq!(store.settle(broken(&expired)).await, Settled::Stale);
    assert_eq!(store.get(1).await, before);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(Vec::new()));

    let just_before = at + LEASE - Duration::from_millis(1);
    assert_eq!(store.at(just_before).settle(broken(&expired)).await, Settled::Stale);
    assert_eq!(store.at(at + LEASE).settle(broken(&expired)).await, Settled::Done);
}

pub async fn a_job_past_its_expiry_is_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let new = NewJob { run_at: after(2), expires_at: Some(after(5)), ..job(1) };
    store.add([new.clone(), job(2)]).await;
    let just_before = after(5) - Duration::from_millis(1);
    assert_eq!(store.at(just_before).job_give_up(give_up_expired()).await.unwrap(), []);

    let given_up = store.at(after(5)).job_give_up(give_up_expired()).await.unwrap();
    let expected = Job {
        state: State::Failed,
        finished_at: Some(after(5)),
        last: Some(Ended::from(Status::ERROR)),
        ..queued(&new)
    };
    assert_eq!(given_up, [expected]);
    assert_eq!(store.get(1).await, given_up[0]);
    let log = AttemptLog { attempt: 0, ended_at: after(5), log: said("expired") };
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(vec![log]));
    assert!(store.claim("t", 10, NOW).await.iter().all(|claimed| claimed.job.id == id(2)));
    assert_eq!(store.at(after(9)).job_give_up(give_up_expired()).await.unwrap(), [], "once");
}

pub async fn only_queued_jobs_are_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let expiring = |number| NewJob { expires_at: Some(after(5)), ..job(number) };
    store.ran(expiring(1), FINISHED).await;
    store.ran(expiring(2), FAILED).await;
    store.add([expiring(3)]).await;
    store.cancel(3, NOW).await;
    store.ran(expiring(4), again(after(99))).await;
    store.add([expiring(5), NewJob { run_at: after(99), ..expiring(6) }]).await;
    let running = store.claim_one("t", NOW).await;
    assert_eq!(running.job.id, id(5));

    let mut given_up = store.at(after(10)).job_give_up(give_up_expired()).await.unwrap();
    given_up.sort_by_key(|job| job.id);
    assert_eq!(numbers(&given_up), [4, 6], "to be tried again, deferred");
    assert_eq!(given_up[0].attempt, 1);
    assert_eq!(store.get(5).await, running.job);
}

pub async fn no_more_than_the_limit_are_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=5).map(|n| NewJob { expires_at: Some(after(1)), ..job(n) })).await;
    let some = |limit| GiveUp { limit, ..give_up_expired() };
    assert_eq!(store.at(after(2)).job_give_up(some(3)).await.unwrap().len(), 3);
    assert_eq!(store.job_give_up(some(3)).await.unwrap().len(), 2);
    assert_eq!(store.job_give_up(some(3)).await.unwrap().len(), 0);
}

pub async fn a_lost_job_is_given_up_unless_it_runs_or_has_ended(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.add([job(2), NewJob { paused: true, ..job(3) }, job_of("other", 4)]).await;
    let running = store.claim_one("t", NOW).await;
    assert_eq!(running.job.id, id(2));
    let store = store.at(after(5));
    let lost = |tenant, number| {
        let (which, log) = (Overdue::Lost { tenant, id: id(number) }, said("lost"));
        store.job_give_up(GiveUp { which, log, ..give_up_expired() })
    };
    for number in [1, 2, 9] {
        assert_eq!(lost(acme(), number).await.unwrap(), [], "{number}");
    }
    assert_eq!(lost(globex(), 4).await.unwrap(), [], "of another tenant");
    for number in [3, 4] {
        let given_up = lost(acme(), number).await.unwrap();
        assert_eq!((given_up[0].id, given_up[0].state), (id(number), State::Failed));
        assert_eq!(store.get(number).await, given_up[0]);
        let log = AttemptLog { attempt: 0, ended_at: after(5), log: said("lost") };
        assert_eq!(store.job_log(&acme(), id(number)).await.unwrap(), Some(vec![log]));
        assert_eq!(lost(acme(), number).await.unwrap(), [], "once");
    }
    assert_eq!(store.get(2).await, running.job);
}

/// Gives up unhandled jobs that came due this many seconds ago.
fn unhandled(name: &str, seconds: u64) -> GiveUp {
    let due_for = Duration::from_secs(seconds);
    GiveUp {
        which: Overdue::Unhandled { key: key(name), due_for },
        log: said("no handler"),
        ..give_up_expired()
    }
}

pub async fn s0_46_a_job_that_never_got_a_handler_is_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let due = |number, seconds| NewJob { run_at: after(seconds), ..job(number) };
    store.add([due(1, 10), due(2, 11), due(3, 0), job_of("other", 4)]).await;
    let mut given_up = store.at(after(60)).job_give_up(unhandled("t", 50)).await.unwrap();
    given_up.sort_by_key(|job| job.id);
    assert_eq!(numbers(&given_up), [1, 3]);
    assert!(given_up.iter().all(|job| job.finished_at == Some(after(60))));
    assert_eq!(store.get(1).await.state, State::Failed);
    let log = store.job_log(&acme(), id(1)).await.unwrap().expect("the job is there");
    assert_eq!(log[0].log, said("no handler"));
    assert_eq!(store.get(2).await.state, State::Queued, "came due later");
    assert_eq!(store.get(4).await.state, State::Queued, "another type");
}

pub async fn a_type_with_a_handler_is_not_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    store.at(NOW).handler_put(id(100), &key("t"), handler_spec()).await.unwrap();
    let give_up = || unhandled("t", 50);
    assert_eq!(store.at(after(60)).job_give_up(give_up()).await.unwrap(), []);
    store.handler_delete(&key("t")).await.unwrap();
    assert_eq!(numbers(&store.job_give_up(give_up()).await.unwrap()), [1]);
    assert_eq!(store.job_give_up(unhandled("none", 0)).await.unwrap(), []);
}

pub async fn a_type_that_workers_claim_is_not_given_up(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=3).map(job)).await;
    store.at(after(20)).job_claim(claim_of(vec![pick("t", 1)])).await.unwrap();
    let give_up = |seconds| store.at(after(60)).job_give_up(unhandled("t", seconds));
    assert_eq!(give_up(50).await.unwrap(), [], "claimed from since then");
    assert_eq!(give_up(40).await.unwrap(), [], "claimed from at that moment");
    assert_eq!(numbers(&give_up(30).await.unwrap()), [2, 3], "not claimed from since then");
}

pub async fn what_counts_is_when_a_job_was_first_due(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), again(after(100))).await;
    let give_up = unhandled("t", 50);
    assert_eq!(numbers(&store.at(after(60)).job_give_up(give_up).await.unwrap()), [1]);
}

pub async fn only_queued_jobs_are_given_up_as_unhandled(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { paused: true, ..job(1) }, job(2), job(3)]).await;
    store.cancel(3, NOW).await;
    let given_up = store.at(after(60)).job_give_up(unhandled("t", 50)).await.unwrap();
    assert_eq!(numbers(&given_up), [2]);
    let states = [State::Paused, State::Failed, State::Cancelled];
    assert_eq!(store.states(1..=3).await, states);
}

pub async fn no_more_than_the_limit_are_given_up_as_unhandled(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=5).map(job)).await;
    let some = || GiveUp { limit: 3, ..unhandled("t", 50) };
    for expected in [3, 2, 0] {
        assert_eq!(store.at(after(60)).job_give_up(some()).await.unwrap().len(), expected);
    }
}
