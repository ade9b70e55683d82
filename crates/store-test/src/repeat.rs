//! Repeats: the same job is queued as if new, at its next time.

use windlass_core::job::Ended;
use windlass_core::retry::Verdict;
use windlass_core::store::{Inserted, Settled, Settlement};
use windlass_core::{Extra, Job, Json, NewJob, State, Status};

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, again, id, job, queued, said, settlement};

fn repeat(seconds: u64) -> Verdict {
    Verdict::Repeat { run_at: after(seconds) }
}

fn daily(number: i64) -> NewJob {
    let repeat = Some("FINISHED, +1 DAY".into());
    NewJob { extra: Extra { repeat, ..Extra::default() }, ..job(number) }
}

pub async fn a_repeated_job_waits_for_its_next_time(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([daily(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    assert_eq!(claimed.job.extra, daily(1).extra);
    let data = Some(Json::string("done"));
    let end =
        Settlement { data: data.clone(), log: said("did it"), ..settlement(&claimed, repeat(60)) };
    assert_eq!(store.settle(end).await, Settled::Done);

    let expected = Job {
        run_at: after(60),
        due_at: after(60),
        started_at: Some(NOW),
        last: Some(Ended::from(Status::OK)),
        ..queued(&daily(1))
    };
    assert_eq!(store.get(1).await, expected);
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), data);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap().unwrap().len(), 1);
    assert!(store.claim("t", 9, after(59)).await.is_empty());
    assert_eq!(store.claim_one("t", after(60)).await.job.attempt, 1, "attempts begin anew");
}

pub async fn a_job_repeats_after_attempts_that_failed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([daily(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.settle(settlement(&claimed, again(NOW))).await;
    let claimed = store.claim_one("t", NOW).await;
    assert_eq!(claimed.job.attempt, 2);
    let failed = Some(Ended::from(Status::FAILED));
    store.settle(Settlement { ended: failed, ..settlement(&claimed, repeat(5)) }).await;
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.attempt, seen.last), (State::Queued, 0, failed));
    assert_eq!(seen.finished_at, None);
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(9).await.unwrap(), 0);
}

pub async fn a_repeated_job_keeps_its_unique_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let unique = |number| NewJob { unique: Some("k".into()), ..daily(number) };
    store.ran(unique(1), repeat(60)).await;
    assert_eq!(store.insert([unique(2)]).await, [Inserted::Held(id(1))]);
}

pub async fn a_job_follows_each_repetition(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([daily(1)]).await;
    for (round, number) in [(0, 5), (60, 6)] {
        let claimed = store.claim_one("t", after(round)).await;
        let follow = Some(crate::fixture::job_of("next", number));
        let end = Settlement { follow, ..settlement(&claimed, repeat(round + 60)) };
        assert_eq!(store.settle(end).await, Settled::Done);
        assert_eq!(store.state(number).await, State::Queued);
    }
}

pub async fn a_parent_repeats_when_its_children_have_ended(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2]).await;
    store.settle(settlement(&parent, repeat(60))).await;
    assert_eq!(store.states([1, 2]).await, [State::Paused, State::Queued]);
    store.cancel(2, NOW).await;
    let parent = store.claim_one("parent", NOW).await;
    store.settle(settlement(&parent, repeat(60))).await;
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.run_at, seen.extra.run_at_text), (State::Queued, after(60), None));
}

pub async fn a_cancelled_one_does_not_repeat(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(daily(1), repeat(60)).await;
    store.cancel(1, after(2)).await;
    assert!(store.claim("t", 9, after(3600)).await.is_empty());
    assert_eq!(store.get(1).await.extra, daily(1).extra, "should somebody rerun it");
}
