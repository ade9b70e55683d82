//! `family`.

use super::story::{NONE, Story, cancel, done, plain, retry, seen};
use crate::history::{FaultKind, Form, JobId, Operation, Seen, State, Target};

/// A worker has job 1, and has added job 2 below it.
fn parent() -> Story {
    let mut story = Story::new();
    story.add(1).claim("w", 1, 5).add_as(2, Form { parent: Some(JobId(1)), ..plain() });
    story
}

/// Both are finished at the end.
fn broken(story: &mut Story) -> Vec<&'static str> {
    story.seen(1, State::Finished);
    story.seen_as(Seen { parent: Some(JobId(1)), ..seen(2) }).broken()
}

#[test]
fn a_parent_runs_again_after_its_children() {
    let mut good = parent();
    good.finish(1, 5, 200).claim("w", 2, 6).finish(2, 6, 200);
    assert_eq!(broken(good.claim("w", 1, 7).finish(1, 7, 200)), NONE);
    let mut early = parent();
    early.finish(1, 5, 200).claim("w", 1, 6).finish(1, 6, 200);
    assert_eq!(broken(early.claim("w", 2, 7).finish(2, 7, 200)), ["family"]);
}

#[test]
fn a_child_does_not_run_while_its_parent_does() {
    let mut together = parent();
    together.claim("v", 2, 6).finish(2, 6, 200).finish(1, 5, 200);
    assert_eq!(broken(together.claim("w", 1, 7).finish(1, 7, 200)), ["family"]);
    let mut resumed = parent();
    resumed.finish(1, 5, 200).claim("v", 2, 6).claim("w", 1, 7);
    assert_eq!(broken(resumed.finish(2, 6, 200).finish(1, 7, 200)), ["family"]);
}

#[test]
fn a_child_whose_parent_failed_or_lost_its_lease_is_no_reason_to_wait() {
    let mut failed = parent();
    failed.finish(1, 5, 500).wait(50).claim_attempt("w", 1, 6, 2).finish(1, 6, 200);
    failed.claim("w", 2, 7).finish(2, 7, 200);
    assert_eq!(broken(failed.claim("w", 1, 8).finish(1, 8, 200)), NONE);
}

#[test]
fn a_retried_member_leaves_the_family_open() {
    for job in [1, 2] {
        let mut retried = parent();
        retried.finish(1, 5, 200).request(retry(job), done()).claim("w", 1, 6);
        assert_eq!(broken(retried.finish(1, 6, 200).claim("w", 2, 7).finish(2, 7, 200)), NONE);
    }
    let mut cut = parent();
    cut.finish(1, 5, 200).fault_on(FaultKind::PowerCut, Target::All, 1).claim("w", 1, 6);
    assert_eq!(broken(cut.finish(1, 6, 200).claim("w", 2, 7).finish(2, 7, 200)), NONE);
}

#[test]
fn a_cancelled_child_lets_its_parent_go_on() {
    let mut story = parent();
    story.finish(1, 5, 200).request(cancel(2), done()).claim("w", 1, 6).finish(1, 6, 200);
    story.seen(1, State::Finished);
    let child = Seen { parent: Some(JobId(1)), state: State::Cancelled, ..seen(2) };
    assert_eq!(story.seen_as(child).broken(), NONE);
}

#[test]
fn a_bedrock_worker_that_reports_a_parent_may_detach_its_children() {
    let detached = |what: Operation| {
        let mut story = parent();
        story.finish(1, 5, 200).claim("w", 2, 6).finish(2, 6, 200).claim("w", 1, 7);
        story.request(what, done()).seen(1, State::Finished).seen(2, State::Finished).broken()
    };
    let (tenant, job, data) = ("a".to_owned(), JobId(1), None);
    assert_eq!(detached(Operation::FinishJob { tenant, job, data }), NONE);
    assert_eq!(detached(super::story::finish(1, 7, 200)), ["lost"]);
}

#[test]
fn a_bedrock_worker_that_reports_a_child_may_detach_it_from_a_parent_that_has_ended() {
    let detached = |what: Operation| {
        let mut story = parent();
        story.finish(1, 5, 200).claim("w", 2, 6).finish(2, 6, 200).claim("w", 1, 7);
        story.finish(1, 7, 200).request(super::story::retry(2), done()).claim("w", 2, 8);
        story.request(what, done()).seen(1, State::Finished).seen(2, State::Finished).broken()
    };
    let (tenant, job, data) = ("a".to_owned(), JobId(2), None);
    assert_eq!(detached(Operation::FinishJob { tenant, job, data }), NONE);
    assert_eq!(detached(super::story::finish(2, 8, 200)), ["lost"]);
}
