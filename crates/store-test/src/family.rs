//! Parents wait for their children, whatever ends them; the native calls follow the rules.

use std::time::Duration;

use windlass_core::job::Ended;
use windlass_core::limit::ORPHAN_RETENTION;
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{Changed, Claimed, Settled, Settlement};
use windlass_core::{Extra, Job, Json, NewJob, State, Status};

use crate::Harness;
use crate::fixture::{
    DAY, FAILED, FINISHED, NOW, Subject, acme, after, again, claimed_numbers, give_up_expired, id,
    job, job_of, release, said, settlement,
};
use crate::kin::{child, insert, put, run_at_text};

const QUEUED: State = State::Queued;
const PAUSED: State = State::Paused;
const CANCELLED: State = State::Cancelled;
const ENDED_CANCELLED: Verdict = Verdict::End(Ending::Cancelled);

/// Parent job 1, which waits for these children.
async fn waiting(harness: &dyn Harness, children: impl IntoIterator<Item = i64>) -> Subject {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with(children).await;
    assert_eq!(store.settle(settlement(&parent, FINISHED)).await, Settled::Paused);
    assert_eq!(store.state(1).await, PAUSED);
    store
}

async fn end(store: &Subject, claimed: &Claimed, verdict: Verdict) {
    assert_ne!(store.settle(settlement(claimed, verdict)).await, Settled::Stale);
}

pub async fn a_child_is_not_run_while_its_parent_is(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.parent_with([2]).await;
    assert_eq!(store.state(2).await, PAUSED);
    assert!(store.claim("child", 9, after(3600)).await.is_empty());
    assert!(store.take_of(crate::kin::glob("*"), 9).await.is_empty());
    let (parent, child) = (store.get(1).await, store.get(2).await);
    assert!(parent.children && parent.parent.is_none());
    assert!(!child.children && child.parent == Some(id(1)));
    let claimed = store.parent_shown().await;
    assert_eq!((claimed.children, claimed.parent), (true, None));
}

impl Subject {
    /// The parent as a claim shows it.
    async fn parent_shown(&self) -> Job {
        let running = self.get(1).await;
        let token = running.lease.unwrap().token;
        let lease = windlass_core::store::LeaseRef { tenant: acme(), id: id(1), token };
        let back = Settlement {
            lease,
            verdict: release(NOW),
            ended: None,
            data: None,
            progress: None,
            log: said("back"),
            adds: Vec::new(),
            follow: None,
            keep: DAY,
            only_if_expired: false,
        };
        assert_eq!(self.settle(back).await, Settled::Done);
        self.claim_one("parent", NOW).await.job
    }
}

pub async fn a_parent_that_ended_well_waits_for_its_children(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2, 3]).await;
    let data = Some(Json::string("half"));
    let follow = Some(job_of("next", 9));
    let ended = settlement(&parent, FINISHED);
    let ended = Settlement { data: data.clone(), log: said("spawned"), follow, ..ended };
    assert_eq!(store.settle(ended).await, Settled::Paused);

    let seen = store.get(1).await;
    let expected = Job {
        state: PAUSED,
        attempt: 0,
        lease: None,
        run_at: NOW,
        last: Some(windlass_core::Status::OK.into()),
        children: true,
        extra: Extra { order_key: -1, ..run_at_text("2027-01-15 08:00:00") },
        ..parent.job.clone()
    };
    assert_eq!(seen, expected);
    assert_eq!(store.states([2, 3]).await, [QUEUED, QUEUED]);
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), data);
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap().unwrap().len(), 1);
    assert_eq!(store.find(9).await, None, "nothing follows what has not ended");
    assert!(store.claim("parent", 9, after(3600)).await.is_empty());
    assert_eq!(store.settle(settlement(&parent, FINISHED)).await, Settled::Stale);
    let stats = store.stats("parent", NOW).await.unwrap();
    assert_eq!((stats.paused, stats.running, stats.finished), (1, 0, 0));
}

pub async fn the_last_child_wakes_its_parent(harness: &dyn Harness) {
    let store = waiting(harness, [2, 3]).await;
    let children = store.claim("child", 9, after(2)).await;
    assert_eq!(claimed_numbers(&children), [2, 3]);
    end(&store, &children[0], FINISHED).await;
    assert_eq!(store.state(1).await, PAUSED);
    end(&store, &children[1], FINISHED).await;
    let parent = store.claim_one("parent", NOW).await;
    assert_eq!((parent.job.attempt, parent.job.children), (1, true));
    end(&store, &parent, FINISHED).await;
    assert_eq!(store.states(1..=3).await, [State::Finished; 3]);
}

pub async fn a_child_that_is_tried_again_is_waited_for(harness: &dyn Harness) {
    let store = waiting(harness, [2]).await;
    for verdict in [again(NOW), release(NOW), Verdict::Repeat { run_at: NOW }] {
        let child = store.claim_one("child", NOW).await;
        end(&store, &child, verdict).await;
        assert_eq!(store.states([1, 2]).await, [PAUSED, QUEUED], "{verdict:?}");
    }
}

pub async fn a_failed_child_wakes_nobody(harness: &dyn Harness) {
    let store = waiting(harness, [2]).await;
    let child = store.claim_one("child", NOW).await;
    end(&store, &child, FAILED).await;
    assert_eq!(store.states([1, 2]).await, [PAUSED, State::Failed]);
    store.rerun(2, NOW).await;
    let child = store.claim_one("child", NOW).await;
    end(&store, &child, FINISHED).await;
    assert_eq!(store.state(1).await, QUEUED);
}

pub async fn a_given_up_child_wakes_nobody(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([]).await;
    store.edit(vec![insert(NewJob { expires_at: Some(after(5)), ..child(2, 1) })]).await;
    end(&store, &parent, FINISHED).await;
    assert_eq!(store.at(after(5)).job_give_up(give_up_expired()).await.unwrap().len(), 1);
    assert_eq!(store.states([1, 2]).await, [PAUSED, State::Failed]);
    assert!(matches!(store.delete(2).await, Changed::Done(_)));
    assert_eq!(store.state(1).await, QUEUED);
}

pub async fn who_waits_may_expire(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.parent_with([]).await;
    store.edit(vec![insert(NewJob { expires_at: Some(after(5)), ..child(2, 1) })]).await;
    let given_up = store.at(after(5)).job_give_up(give_up_expired()).await.unwrap();
    assert_eq!(given_up.len(), 1);
    assert_eq!((given_up[0].id, given_up[0].state), (id(2), State::Failed));
}

pub async fn a_cancelled_child_wakes_its_parent(harness: &dyn Harness) {
    let store = waiting(harness, [2, 3]).await;
    store.cancel(2, after(2)).await;
    assert_eq!(store.state(1).await, PAUSED);
    let child = store.claim_one("child", NOW).await;
    end(&store, &child, ENDED_CANCELLED).await;
    assert_eq!(store.states(1..=3).await, [QUEUED, CANCELLED, CANCELLED]);
    assert_eq!(store.claim("parent", 9, NOW).await.len(), 1);
}

pub async fn a_removed_child_wakes_its_parent(harness: &dyn Harness) {
    let store = waiting(harness, [2, 3]).await;
    store.delete(2).await;
    assert_eq!(store.state(1).await, PAUSED);
    let child = store.claim_one("child", NOW).await;
    end(&store, &child, FAILED).await;
    assert_eq!(store.state(1).await, PAUSED);
    let kept = Duration::from_secs(24 * 3600);
    assert_eq!(store.at(after(1) + kept).job_purge(9).await.unwrap(), 1);
    assert_eq!(store.state(1).await, QUEUED);
}

pub async fn a_parent_without_pending_children_ends(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2, 3, 4]).await;
    store.alter(2, |job| job.state = State::Failed).await;
    store.alter(3, |job| job.state = State::Finished).await;
    store.cancel(4, NOW).await;
    end(&store, &parent, FINISHED).await;
    assert_eq!(store.state(1).await, State::Finished);
}

pub async fn a_parent_that_repeats_after_a_failure_leaves_them_too(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let mut parent = store.parent_with([2]).await;
    let repeat = Verdict::Repeat { run_at: NOW };
    for ended in [Some(Status::FAILED), Some(Status::ERROR), None] {
        let failed = Settlement { ended: ended.map(Ended::from), ..settlement(&parent, repeat) };
        assert_eq!(store.settle(failed).await, Settled::Done, "{ended:?}");
        assert_eq!(store.states([1, 2]).await, [QUEUED, PAUSED], "{ended:?}");
        parent = store.claim_one("parent", NOW).await;
    }
    assert_eq!(store.settle(settlement(&parent, repeat)).await, Settled::Paused);
    assert_eq!(store.states([1, 2]).await, [PAUSED, QUEUED]);
}

pub async fn a_parent_that_fails_leaves_its_children(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2]).await;
    end(&store, &parent, FAILED).await;
    assert_eq!(store.states([1, 2]).await, [State::Failed, PAUSED]);
    store.rerun(1, NOW).await;
    let parent = store.claim_one("parent", NOW).await;
    end(&store, &parent, FINISHED).await;
    assert_eq!(store.states([1, 2]).await, [PAUSED, QUEUED]);
}

pub async fn a_cancelled_parent_takes_its_waiting_children_along(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.parent_with([2, 3, 4]).await;
    store.alter(3, |job| job.state = QUEUED).await;
    store.alter(4, |job| job.state = QUEUED).await;
    let claimed = store.claim("child", 1, NOW).await.remove(0);
    assert!(matches!(store.cancel(1, after(2)).await, Changed::Done(_)));
    let expected = [CANCELLED, CANCELLED, State::Running, CANCELLED];
    assert_eq!(store.states(1..=4).await, expected);
    let cancelled = store.get(2).await;
    assert_eq!((cancelled.finished_at, cancelled.parent), (Some(after(2)), Some(id(1))));
    end(&store, &claimed, FINISHED).await;
    assert_eq!(store.states([1, 3]).await, [CANCELLED, State::Finished]);
    let stats = store.stats("child", NOW).await.unwrap();
    assert_eq!((stats.cancelled, stats.finished, stats.ready), (2, 1, 0));
}

pub async fn a_parent_settled_as_cancelled_takes_them_along_too(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2]).await;
    end(&store, &parent, ENDED_CANCELLED).await;
    assert_eq!(store.states([1, 2]).await, [CANCELLED, CANCELLED]);
}

pub async fn a_removed_parent_leaves_no_child_paused(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2, 3]).await;
    store.alter(3, |job| job.state = QUEUED).await;
    end(&store, &parent, FAILED).await;
    assert!(matches!(store.delete(1).await, Changed::Done(_)));
    assert_eq!(store.states([2, 3]).await, [CANCELLED, QUEUED]);
    let child = store.claim_one("child", NOW).await;
    end(&store, &child, FINISHED).await;
    assert_eq!(store.state(3).await, State::Finished);
}

pub async fn a_purged_parent_leaves_no_child_paused(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let parent = store.parent_with([2]).await;
    let ended = Settlement { keep: after(9).since(store.now()), ..settlement(&parent, FAILED) };
    assert_eq!(store.settle(ended).await, Settled::Done);
    assert_eq!(store.at(after(9)).job_purge(9).await.unwrap(), 1);
    assert_eq!(store.state(2).await, CANCELLED);
    assert_eq!(store.get(2).await.finished_at, Some(after(9)));
    let its_time = after(9) + ORPHAN_RETENTION;
    let just_before = its_time - Duration::from_millis(1);
    assert_eq!(store.at(just_before).job_purge(9).await.unwrap(), 0);
    assert_eq!(store.at(its_time).job_purge(9).await.unwrap(), 1);
}

pub async fn only_a_paused_parent_is_woken(harness: &dyn Harness) {
    let store = waiting(harness, [2]).await;
    let child = store.claim_one("child", NOW).await;
    for state in [State::Finished, State::Failed, CANCELLED] {
        store.alter(1, |job| job.state = state).await;
        let again = settlement(&child, FINISHED);
        let _ = store.settle(again).await;
        assert_eq!(store.state(1).await, state);
    }
    assert_eq!(store.state(2).await, State::Finished);
}

pub async fn a_child_without_its_parent_is_like_any_job(harness: &dyn Harness) {
    let store = waiting(harness, [2]).await;
    let child = store.claim_one("child", NOW).await;
    store.edit(vec![windlass_core::edit::Edit::Delete(id(1))]).await;
    end(&store, &child, FINISHED).await;
    assert_eq!(store.state(2).await, State::Finished);
    store.delete(2).await;
    assert_eq!(store.find(2).await, None);
}

pub async fn words_for_an_old_time_go_with_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let worded = async || {
        let extra = Extra { order_key: -5, ..run_at_text("then") };
        store.alter(1, |job| job.extra = extra).await;
        store.claim_one("t", NOW).await
    };
    for verdict in [again(NOW), release(NOW), Verdict::Repeat { run_at: NOW }] {
        let claimed = worded().await;
        assert_eq!(claimed.job.extra.run_at_text.as_deref(), Some("then"));
        end(&store, &claimed, verdict).await;
        assert!(store.get(1).await.extra.is_none(), "{verdict:?}");
    }
    let claimed = worded().await;
    end(&store, &claimed, FINISHED).await;
    assert_eq!(
        store.get(1).await.extra.run_at_text.as_deref(),
        Some("then"),
        "the time is the same"
    );
    store.rerun(1, NOW).await;
    assert!(store.get(1).await.extra.is_none());
}

pub async fn what_else_a_job_has_stays_through_its_attempts(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let extra = Extra {
        repeat: Some("FINISHED, +1 DAY".into()),
        door_text: Some("+1 HOUR".into()),
        ..run_at_text("then")
    };
    let with = Job { extra: extra.clone(), ..store.get(1).await };
    store.edit(vec![put(with)]).await;
    let claimed = store.claim_one("t", NOW).await;
    assert_eq!(claimed.job.extra, extra);
    end(&store, &claimed, again(NOW)).await;
    let kept = Extra { run_at_text: None, ..extra };
    assert_eq!(store.get(1).await.extra, kept);
    let listed = store.listed(crate::fixture::everything_of(acme())).await;
    assert_eq!(listed[0].extra, kept);
}
