//! A job that has not ended can be cancelled.

use windlass_core::job::Ended;
use windlass_core::state::State;
use windlass_core::store::{Changed, Settled};
use windlass_core::{Job, NewJob, Status};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, after, again, job, queued, release, settlement,
};

pub async fn a_queued_job_is_cancelled_at_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let deferred = NewJob { run_at: after(60), ..job(2) };
    store.add([job(1), deferred.clone()]).await;
    for new in [job(1), deferred] {
        let number = new.id.get();
        let before = queued(&new);
        let changed = store.cancel(number, after(3)).await;
        assert_eq!(changed, Changed::Done(Box::new(before.clone())));
        let expected = Job { state: State::Cancelled, finished_at: Some(after(3)), ..before };
        assert_eq!(store.get(number).await, expected);
    }
    assert!(store.claim("t", 10, after(99)).await.is_empty());
    assert!(store.waiting(after(99)).await.types.is_empty());
}

pub async fn a_running_job_loses_its_lease(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let changed = store.cancel(1, after(3)).await;
    assert_eq!(changed, Changed::Done(Box::new(claimed.job.clone())), "as it was before");

    let cancelled = store.get(1).await;
    let finished_at = Some(after(3));
    let expected = Job { state: State::Cancelled, lease: None, finished_at, ..claimed.job.clone() };
    assert_eq!(cancelled, expected);
    for verdict in [FINISHED, FAILED, again(NOW), release(NOW)] {
        assert_eq!(store.settle(settlement(&claimed, verdict)).await, Settled::Stale);
    }
    assert_eq!(store.get(1).await, cancelled);
}

pub async fn an_ended_job_cannot_be_cancelled(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.ran(job(2), FAILED).await;
    store.add([job(3)]).await;
    store.cancel(3, NOW).await;
    for (number, state) in [(1, State::Finished), (2, State::Failed), (3, State::Cancelled)] {
        let before = store.get(number).await;
        assert_eq!(store.cancel(number, after(9)).await, Changed::Refused(state));
        assert_eq!(store.get(number).await, before);
    }
}

pub async fn an_unknown_job_is_not_found(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.cancel(1, NOW).await, Changed::NotFound);
}

pub async fn how_an_earlier_attempt_ended_stays(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), again(after(60))).await;
    store.cancel(1, after(3)).await;
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.attempt), (State::Cancelled, 1));
    assert_eq!(seen.last, Some(Ended::from(Status::RETRY)));
}

pub async fn a_paused_job_is_cancelled_too(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([NewJob { paused: true, ..job(1) }]).await;
    assert!(matches!(store.cancel(1, after(3)).await, Changed::Done(_)));
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.finished_at), (State::Cancelled, Some(after(3))));
    let stats = store.stats("t", after(3)).await.expect("the type is there");
    assert_eq!((stats.paused, stats.cancelled), (0, 1));
}
