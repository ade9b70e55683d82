//! `lost`, `stuck`, `after_end`, `in_force`, `deleted`, `refused` by result.

use super::story::{
    LEASE_MS, MS, NONE, Story, add, cancel, claim_of, claimed, delete, done, finish, ids, plain,
    refused, retry, seen, unknown,
};
use crate::history::{Answer, FaultKind, Form, JobId, Operation, Outcome, Seen, State, Target};

#[test]
fn an_acknowledged_job_that_is_gone_is_lost() {
    assert_eq!(Story::new().add(1).broken(), ["lost"]);
    assert_eq!(Story::new().add(1).request(delete(1), refused()).broken(), ["lost"]);
    assert_eq!(Story::new().add(1).seen(1, State::Queued).broken(), NONE);
    assert_eq!(Story::new().add(1).request(delete(1), done()).broken(), NONE);
    assert_eq!(Story::new().add(1).request(delete(1), unknown()).broken(), NONE);
}

#[test]
fn a_violation_names_the_job_and_the_events_that_prove_it() {
    let report = Story::new().add(7).report();
    let [violation] = &report.violations[..] else { panic!("{report}") };
    assert_eq!(violation.jobs, [JobId(7)]);
    assert_eq!(violation.evidence[0].at, 2 * MS);
    let text = violation.to_string();
    assert!(text.starts_with("lost: job 7 is not there at the end"), "{text}");
    assert!(text.contains("0.002000000 s  add of job 7 to a/t was acknowledged  (:2)"), "{text}");
}

#[test]
fn a_tenant_that_nobody_listed_proves_nothing() {
    assert_eq!(Story::new().add(1).report_unlisted().totals, [("lost", 1)]);
}

#[test]
fn a_job_whose_end_was_acknowledged_is_not_lost_either() {
    assert_eq!(Story::new().claim("w", 1, 5).finish(1, 5, 200).broken(), ["lost"]);
    let finish_job = Operation::FinishJob { tenant: "a".into(), job: JobId(1), data: None };
    assert_eq!(Story::new().add(1).request(finish_job, done()).broken(), ["lost"]);
}

#[test]
fn a_job_is_listed_as_it_was_added() {
    let elsewhere = Seen { tenant: "b".into(), ..seen(1) };
    assert_eq!(Story::new().add(1).seen_as(elsewhere).broken(), ["lost"]);
    let orphan = Form { parent: Some(JobId(9)), ..plain() };
    assert_eq!(Story::new().add_as(1, orphan.clone()).seen_as(seen(1)).broken(), ["lost"]);
    let child = Seen { parent: Some(JobId(9)), ..seen(1) };
    assert_eq!(Story::new().add_as(1, orphan).seen_as(child).broken(), NONE);
}

#[test]
fn a_job_that_entered_as_cancelled_for_its_key_is_gone_after_some_days() {
    let later = |days: i64, adds: u64| {
        let mut story = Story::new();
        (1..=adds).for_each(|job| {
            story.request(add(70, 1, Some("k"), plain()), ids(&[job]));
        });
        let kind = FaultKind::ClockStep { by_ms: days * 24 * 3_600_000 };
        story.fault_on(kind, Target::All, 1);
        (2..=adds).for_each(|job| {
            story.seen(job, State::Queued);
        });
        story.broken().contains(&"lost")
    };
    assert!(!later(5, 2));
    assert!(later(3, 2), "it is kept so long");
    assert!(later(5, 1), "no other add had its key");
}

#[test]
fn ended_jobs_may_be_purged_after_their_retention_and_not_before() {
    let purged = |retention_ms: u64, wait_ms| {
        let mut story = Story::new();
        story.terms.retention_ns = Some(retention_ms * MS);
        story.add(1).claim("w", 1, 5).finish(1, 5, 200).wait(wait_ms).broken()
    };
    assert_eq!(purged(1000, 1000), NONE);
    assert_eq!(purged(1000, 900), ["lost"]);
    let mut stepped = Story::new();
    stepped.terms.retention_ns = Some(1000 * MS);
    stepped.add(1).run("d1/c", 1, 1, 200);
    let step = FaultKind::ClockStep { by_ms: 3_600_000 };
    assert_eq!(stepped.fault_on(step, Target::All, 1).broken(), NONE);
}

#[test]
fn in_a_drained_run_a_job_that_could_run_is_stuck() {
    let drained = |job_two: Form| {
        let mut story = Story::new();
        story.terms.drained = true;
        story.add(1).claim("w", 1, 5).finish(1, 5, 200).seen(1, State::Finished);
        story.add_as(2, job_two).seen(2, State::Queued);
        story
    };
    assert_eq!(drained(plain()).broken(), ["stuck"]);
    assert_eq!(drained(Form { delay_ns: Some(1), ..plain() }).broken(), NONE);
    let (tenant, type_name) = ("a".to_owned(), "t".to_owned());
    let suspend = Operation::Suspend { tenant, type_name };
    assert_eq!(drained(plain()).request(suspend, done()).broken(), NONE);
    let mut open = drained(plain());
    open.terms.drained = false;
    assert_eq!(open.broken(), NONE);
}

/// Job 1 is paused; job 2 is its child, listed in this state.
fn waiting_for(child: State) -> Vec<&'static str> {
    let mut story = Story::new();
    story.terms.drained = true;
    story.add(1).claim("w", 1, 5).add_as(2, Form { parent: Some(JobId(1)), ..plain() });
    story.finish(1, 5, 200).claim("w", 2, 6);
    story.seen_as(Seen { state: State::Paused, ..seen(1) });
    story.seen_as(Seen { parent: Some(JobId(1)), state: child, ..seen(2) }).broken()
}

#[test]
fn in_a_drained_run_no_parent_waits_for_children_that_are_done() {
    assert_eq!(waiting_for(State::Finished), ["stuck"]);
    assert_eq!(waiting_for(State::Cancelled), ["stuck"]);
    assert_eq!(waiting_for(State::Failed), NONE, "until it is retried, cancelled or deleted");
    let mut childless = Story::new();
    childless.terms.drained = true;
    childless.add(1).claim("w", 1, 5).add_as(2, Form { parent: Some(JobId(1)), ..plain() });
    childless.finish(1, 5, 200).request(delete(2), done());
    assert_eq!(childless.seen_as(Seen { state: State::Paused, ..seen(1) }).broken(), ["stuck"]);
}

#[test]
fn a_deleted_job_is_gone() {
    let deleted = |answer| {
        let mut story = Story::new();
        story.add(1).request(delete(1), answer);
        story
    };
    assert_eq!(deleted(done()).broken(), NONE);
    assert_eq!(deleted(done()).seen(1, State::Queued).broken(), ["deleted"]);
    assert_eq!(deleted(unknown()).seen(1, State::Queued).broken(), NONE);
    assert_eq!(deleted(done()).claim("w", 1, 5).broken(), ["deleted"]);
    assert_eq!(deleted(unknown()).claim("w", 1, 5).broken(), NONE);
    assert_eq!(deleted(done()).request(cancel(1), done()).broken(), ["deleted"]);
    assert_eq!(deleted(done()).request(cancel(1), refused()).broken(), NONE);
    let mut crossed = Story::new();
    let op = crossed.add(1).send("w", claim_of(&["t"]));
    crossed.request(delete(1), done());
    crossed.answer(op, Answer::Done(Outcome::Jobs(vec![claimed(1, "t", 5)])));
    assert_eq!(crossed.broken(), NONE, "it was asked for before");
}

#[test]
fn a_handler_may_begin_what_was_deleted_elsewhere_within_a_lease() {
    let began_after = |ms, faulty: bool| {
        let mut story = Story::new();
        story.add(1).request(delete(1), done()).wait(ms);
        if faulty {
            story.fault(FaultKind::Stop, "d2", 10);
        }
        story.run("d2/c", 1, 1, 200).broken()
    };
    assert_eq!(began_after(LEASE_MS - 10, false), NONE);
    assert_eq!(began_after(LEASE_MS + 10, false), ["deleted"]);
    assert_eq!(began_after(LEASE_MS + 10, true), NONE);
}

#[test]
fn a_claim_after_an_acknowledged_finish_is_found() {
    let ended = || {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).finish(1, 5, 200).wait(LEASE_MS);
        story
    };
    let mut again = ended();
    again.claim("w", 1, 6);
    assert_eq!(again.seen(1, State::Finished).broken(), ["after_end"]);
    let mut retried = ended();
    retried.request(retry(1), unknown()).claim("w", 1, 6);
    assert_eq!(retried.seen(1, State::Running).broken(), NONE);
    let mut refused_retry = ended();
    refused_retry.request(retry(1), refused()).claim("w", 1, 6);
    assert_eq!(refused_retry.seen(1, State::Finished).broken(), ["after_end"]);
}

#[test]
fn repeating_jobs_run_after_a_finish_but_not_after_a_cancel() {
    let repeats = || {
        let mut story = Story::new();
        story.add_as(1, Form { repeat: Some("FINISHED, +1 SECONDS".into()), ..plain() });
        story.claim("w", 1, 5).finish(1, 5, 200).wait(1000);
        story
    };
    assert_eq!(repeats().claim("w", 1, 6).seen(1, State::Running).broken(), NONE);
    let mut cancelled = repeats();
    cancelled.request(cancel(1), done()).claim("w", 1, 6);
    assert_eq!(cancelled.seen(1, State::Cancelled).broken(), ["after_end"]);
}

#[test]
fn a_daemon_may_notice_a_cancel_elsewhere_within_a_lease() {
    let began_after = |context: &str, ms| {
        let mut story = Story::new();
        story.add(1).request(cancel(1), done()).wait(ms);
        story.run(context, 1, 1, 200).seen(1, State::Cancelled).broken()
    };
    assert_eq!(began_after("d1/c", 10), ["after_end"]);
    assert_eq!(began_after("d2/c", 10), NONE);
    assert_eq!(began_after("d2/c", LEASE_MS + 10), ["after_end"]);
}

#[test]
fn a_stopped_daemon_may_begin_what_was_cancelled_meanwhile() {
    let mut story = Story::new();
    story.add(1).request(cancel(1), done()).fault(FaultKind::Stop, "d2", 5000);
    story.run("d2/c", 1, 1, 200).seen(1, State::Cancelled);
    assert_eq!(story.broken(), NONE);
}

/// A claim is at most so much older than the run.
#[test]
fn a_fault_long_before_a_run_does_not_explain_that_it_comes_after_the_end() {
    let began_after = |ms| {
        let mut story = Story::new();
        story.add(1).request(cancel(1), done()).fault(FaultKind::Stop, "d2", 10).wait(ms);
        story.run("d2/c", 1, 1, 200).seen(1, State::Cancelled).broken()
    };
    let ahead_ms = Story::new().terms.claim_ahead_ns / MS;
    assert_eq!(began_after(LEASE_MS + ahead_ms - 10), NONE);
    assert_eq!(began_after(LEASE_MS + ahead_ms + 10), ["after_end"]);
}

#[test]
fn an_acknowledged_end_is_in_force() {
    let finished = |seen: Seen| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).finish(1, 5, 200).seen_as(seen).broken()
    };
    let listed = Seen { status: Some(200), result: Some("result 5".into()), ..seen(1) };
    assert_eq!(finished(listed.clone()), NONE);
    assert_eq!(finished(Seen { state: State::Queued, ..listed.clone() }), ["in_force"]);
    assert_eq!(finished(Seen { status: Some(201), ..listed.clone() }), ["in_force"]);
    assert_eq!(finished(Seen { attempts: 2, ..listed.clone() }), ["in_force"]);
    assert_eq!(finished(Seen { result: Some("other".into()), ..listed }), ["in_force"]);

    let cancelled = |state| Story::new().add(1).request(cancel(1), done()).seen(1, state).broken();
    assert_eq!(cancelled(State::Cancelled), NONE);
    assert_eq!(cancelled(State::Queued), ["in_force"]);
}

#[test]
fn an_unknown_end_may_be_in_force_or_not() {
    for state in [State::Finished, State::Running, State::Queued] {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).request(finish(1, 5, 200), unknown());
        assert_eq!(story.seen(1, state).broken(), NONE);
    }
}

#[test]
fn a_finish_and_a_cancel_of_one_life_are_not_both_acknowledged() {
    let both = |between: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).finish(1, 5, 200);
        between(&mut story);
        story.request(cancel(1), done()).seen(1, State::Cancelled).broken()
    };
    assert_eq!(both(&|_| {}), ["in_force"]);
    assert_eq!(
        both(&|story| {
            story.request(retry(1), done());
        }),
        NONE
    );
}

#[test]
fn a_late_owner_whose_finish_is_accepted_is_found_although_a_fault_explains_its_run() {
    let mut story = Story::new();
    story.add(1).claim("d1/w", 1, 5).wait(600).claim_attempt("d1/v", 1, 6, 2);
    story.finish(1, 6, 200).finish(1, 5, 200).seen(1, State::Finished);
    assert_eq!(story.broken(), ["in_force", "fence"]);
    let mut fenced = Story::new();
    fenced.add(1).claim("d1/w", 1, 5).wait(600).claim_attempt("d1/v", 1, 6, 2);
    fenced.finish(1, 6, 200).request(finish(1, 5, 200), refused());
    assert_eq!(fenced.seen(1, State::Finished).broken(), NONE);
}

/// The first finish is acknowledged last.
#[test]
fn a_job_may_end_again_after_a_retry_between_two_ends_that_overlap() {
    let twice = |retried: bool| {
        let mut story = Story::new();
        let first = story.add(1).claim("w", 1, 5).send("w", finish(1, 5, 200));
        if retried {
            story.request(retry(1), done());
        }
        story.claim_attempt("v", 1, 6, 1).finish(1, 6, 200).answer(first, done());
        story.seen(1, State::Finished).broken()
    };
    assert_eq!(twice(true), NONE);
    assert!(twice(false).contains(&"in_force"));
}

#[test]
fn the_result_of_a_refused_finish_must_not_be_in_force() {
    let story = |result: &str| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).request(finish(1, 5, 200), refused());
        story.wait(600).claim_attempt("w", 1, 6, 2).request(finish(1, 6, 200), unknown());
        story.seen_as(Seen { result: Some(result.into()), ..seen(1) }).broken()
    };
    assert_eq!(story("result 5"), ["refused"]);
    assert_eq!(story("result 6"), NONE);
}
