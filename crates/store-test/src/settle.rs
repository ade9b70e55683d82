//! Settlements of running jobs: finish and retry; refused for callers that do not hold the lease.

use windlass_core::job::{Ended, Token};
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{Claim, LeaseRef, List, Settled, Settlement};
use windlass_core::{Code, Job, NewJob, State, Status};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, LEASE, NOW, Subject, acme, after, again, claim_of, everything_of, id, job,
    lease_ref, numbers, pick, queued, release, said, settlement, sysid, token,
};

pub async fn s0_16_a_finished_job_is_kept_with_its_true_finish_time_and_never_runs_again(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", after(3)).await;
    let end = settlement(&claimed, FINISHED);
    assert_eq!(store.at(after(8)).settle(end).await, Settled::Done);

    let archive = List { state: Some(State::Finished), ..everything_of(acme()) };
    let expected = Job {
        state: State::Finished,
        attempt: 1,
        started_at: Some(after(3)),
        finished_at: Some(after(8)),
        last: Some(Ended::from(Status::OK)),
        ..queued(&job(1))
    };
    assert_eq!(store.get(1).await, expected);
    assert_eq!(store.listed(archive).await, [expected]);

    let thousand_years = after(1000 * 366 * 24 * 3600);
    assert!(store.claim("t", 10, thousand_years).await.is_empty());
    assert!(store.waiting(thousand_years).await.types.is_empty());
}

pub async fn s0_49_an_archived_job_keeps_how_it_ended(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let ended = Ended { code: Code::Error, status: Status::new(404).unwrap() };
    let end = Settlement { ended: Some(ended), ..settlement(&claimed, FAILED) };
    assert_eq!(store.settle(end).await, Settled::Done);

    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.last), (State::Failed, Some(ended)));
}

pub async fn s0_49_a_retried_job_comes_back_after_its_delay(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", after(1)).await;
    assert_eq!(store.settle(settlement(&claimed, store.again(after(30)))).await, Settled::Done);

    let expected = Job {
        run_at: after(30),
        attempt: 1,
        started_at: Some(after(1)),
        last: Some(Ended::from(Status::RETRY)),
        ..queued(&job(1))
    };
    assert_eq!(store.get(1).await, expected, "first due when it was added, next at the delay");
    assert!(store.claim("t", 10, after(29)).await.is_empty());
    assert_eq!(store.claim_one("t", after(30)).await.job.attempt, 2);
}

pub async fn s2_36_a_job_may_end_in_each_of_the_endings(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    for (number, ending) in [(1, Ending::Finished), (2, Ending::Failed), (3, Ending::Cancelled)] {
        store.ran(job(number), Verdict::End(ending)).await;
        let seen = store.get(number).await;
        assert_eq!(seen.state, ending.state());
        assert_eq!((seen.lease, seen.finished_at), (None, Some(store.now())));
        let alike = List { state: Some(ending.state()), ..everything_of(acme()) };
        assert_eq!(numbers(&store.listed(alike).await), [number]);
    }
}

pub async fn answers_come_in_the_order_of_the_settlements(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=3).map(job)).await;
    let claimed = store.claim("t", 3, NOW).await;
    let mut wrong = settlement(&claimed[1], FINISHED);
    wrong.lease.token = Token(wrong.lease.token.0 + 1);
    let batch =
        vec![settlement(&claimed[2], FINISHED), wrong, settlement(&claimed[0], again(after(5)))];
    let answers = store.settle_all(batch).await.settled;
    assert_eq!(answers, [Settled::Done, Settled::Stale, Settled::Done]);
    assert_eq!(store.settle_all([]).await.settled, []);

    let mut states = Vec::new();
    for number in 1..=3 {
        states.push(store.get(number).await.state);
    }
    assert_eq!(states, [State::Queued, State::Running, State::Finished]);
}

pub async fn s0_50_a_wrong_token_changes_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let right = lease_ref(&claimed).token;
    for verdict in [FINISHED, FAILED, again(NOW), release(NOW)] {
        for token in [Token(right.0 - 1), Token(right.0 + 1), Token(0)] {
            let mut wrong = settlement(&claimed, verdict);
            wrong.lease.token = token;
            wrong.log = said("not mine");
            assert_eq!(store.settle(wrong).await, Settled::Stale);
        }
    }
    assert_eq!(store.get(1).await, claimed.job);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(Vec::new()));
}

pub async fn s0_50_a_late_owner_cannot_settle_what_another_runs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let late = store.claim_one("t", NOW).await;
    let broken_at = NOW + LEASE;
    let broken = Settlement { only_if_expired: true, ..settlement(&late, again(NOW)) };
    assert_eq!(store.at(broken_at).settle(broken).await, Settled::Done);
    let other = Claim { owner: sysid(8), ..claim_of(vec![pick("t", 1)]) };
    let present = store.job_claim(other).await.unwrap().jobs.remove(0);

    for verdict in [FINISHED, FAILED, again(broken_at), release(broken_at)] {
        assert_eq!(store.settle(settlement(&late, verdict)).await, Settled::Stale);
    }
    assert_eq!(store.get(1).await, present.job);
    assert_eq!(store.settle(settlement(&present, FINISHED)).await, Settled::Done);
    assert_eq!(store.settle(settlement(&late, FAILED)).await, Settled::Stale);
    assert_eq!(store.get(1).await.state, State::Finished);
}

pub async fn a_job_is_settled_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    assert_eq!(store.settle(settlement(&claimed, FINISHED)).await, Settled::Done);
    let before = store.get(1).await;
    let repeated = settlement(&claimed, FINISHED);
    assert_eq!(store.at(after(99)).settle(repeated).await, Settled::Stale);
    assert_eq!(store.settle(settlement(&claimed, again(NOW))).await, Settled::Stale);
    assert_eq!(store.get(1).await, before);
}

pub async fn the_second_settlement_of_a_batch_is_stale(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let batch = vec![settlement(&claimed, FINISHED), settlement(&claimed, FAILED)];
    let answers = store.settle_all(batch).await.settled;
    assert_eq!(answers, [Settled::Done, Settled::Stale]);
    assert_eq!(store.get(1).await.state, State::Finished);
}

pub async fn an_unknown_job_is_stale(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), NewJob { run_at: after(60), ..job(2) }]).await;
    let claimed = store.claim_one("t", NOW).await;
    for number in [2, 3] {
        let token = token();
        let lease = LeaseRef { tenant: acme(), id: id(number), token };
        let unknown = Settlement { lease, ..settlement(&claimed, FINISHED) };
        assert_eq!(store.settle(unknown).await, Settled::Stale);
    }
    assert_eq!(store.find(3).await, None);
    assert_eq!(store.get(2).await.state, State::Queued);
}

pub async fn a_lease_that_ran_out_unbroken_still_settles(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let late = settlement(&claimed, FINISHED);
    assert_eq!(store.at(NOW + LEASE * 5).settle(late).await, Settled::Done);
    assert_eq!(store.get(1).await.finished_at, Some(NOW + LEASE * 5));
}
