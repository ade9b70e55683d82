//! `order`, `fairness`, `counts`, `whole`.

use super::story::{
    MS, NONE, Story, add, began, cancel, claim_of, claimed, done, ids, plain, retry, seen, unknown,
};
use crate::history::{
    Add, Answer, Began, Event, FaultKind, Form, JobId, Operation, Outcome, Seen, State, Target,
};

fn claim_each(story: &mut Story, jobs: &[u64]) -> Vec<&'static str> {
    for job in jobs {
        story.claim("w", *job, *job).finish(*job, *job, 200).seen(*job, State::Finished);
    }
    story.broken()
}

#[test]
fn plain_jobs_start_in_the_order_of_their_adds() {
    assert_eq!(claim_each(Story::new().add(1).add(2).add(3), &[1, 2, 3]), NONE);
    assert_eq!(claim_each(Story::new().add(1).add(2).add(3), &[1, 3, 2]), ["order"]);
    let together = || {
        let mut story = Story::new();
        story.request(add(70, 2, None, plain()), ids(&[1, 2]));
        story
    };
    assert_eq!(claim_each(&mut together(), &[1, 2]), NONE);
    assert_eq!(claim_each(&mut together(), &[2, 1]), ["order"]);
}

#[test]
fn adds_at_the_same_time_have_no_order() {
    let mut story = Story::new();
    let one = story.send("x", add(1, 1, None, plain()));
    let two = story.send("y", add(2, 1, None, plain()));
    story.answer(one, ids(&[1])).answer(two, ids(&[2]));
    assert_eq!(claim_each(&mut story, &[2, 1]), NONE);
}

#[test]
fn delays_and_priorities_have_their_own_order() {
    let later = Form { delay_ns: Some(1), ..plain() };
    assert_eq!(claim_each(Story::new().add_as(1, later).add(2), &[2, 1]), NONE);
    let urgent = Form { priority: Some(900), ..plain() };
    assert_eq!(claim_each(Story::new().add(1).add_as(2, urgent), &[2, 1]), NONE);
    let ordinary = Form { priority: Some(500), ..plain() };
    assert_eq!(claim_each(Story::new().add(1).add_as(2, ordinary), &[2, 1]), ["order"]);
}

#[test]
fn lost_claims_and_faults_leave_the_order_open() {
    let mut lost = Story::new();
    lost.add(1).add(2).request(claim_of(&["t"]), unknown());
    assert_eq!(claim_each(&mut lost, &[2, 1]), NONE);
    let mut cut = Story::new();
    cut.add(1).add(2).fault(FaultKind::Kill, "d1", 10);
    assert_eq!(claim_each(&mut cut, &[2, 1]), NONE);
    let mut moved = Story::new();
    moved.add(1).add(2).request(cancel(1), done()).request(retry(1), done());
    assert_eq!(claim_each(&mut moved, &[2, 1]), NONE, "it starts anew");
    let mut in_front = Story::new();
    let (tenant, jobs) = ("a".to_owned(), vec![JobId(2)]);
    in_front.add(1).add(2).request(Operation::RequeueJobs { tenant, jobs }, done());
    assert_eq!(claim_each(&mut in_front, &[2, 1]), NONE, "it is put in front");
    let mut earlier = Story::new();
    earlier.request(claim_of(&["t"]), unknown()).wait(60_000).add(1).add(2);
    assert_eq!(claim_each(&mut earlier, &[2, 1]), ["order"], "long over");
}

/// A worker takes jobs of two types; one job of the type `u` waits while `passed` of `t` start.
fn passing(passed: u64, most: Option<u64>) -> Story {
    let mut story = Story::new();
    story.terms.passed_over_max = most;
    waiting(&mut story);
    (100..100 + passed).for_each(|job| taken(&mut story, job, "t"));
    taken(&mut story, 1, "u");
    story
}

/// Job 1 of the type `u` is added.
fn waiting(story: &mut Story) {
    let other = Add {
        tenant: "a".into(),
        type_name: "u".into(),
        count: 1,
        mark: 1,
        idempotency_key: None,
        bedrock: false,
        form: plain(),
    };
    story.request(Operation::Add(Box::new(other)), ids(&[1]));
}

/// A worker of both types claims and finishes this job.
fn taken(story: &mut Story, job: u64, type_name: &str) {
    let op = story.send("w", claim_of(&["t", "u"]));
    story.answer(op, Answer::Done(Outcome::Jobs(vec![claimed(job, type_name, job)])));
    story.finish(job, job, 200);
    story.seen_as(Seen { type_name: type_name.into(), ..seen(job) });
}

#[test]
fn a_type_is_not_passed_over_too_often() {
    assert_eq!(passing(10, Some(9)).broken(), ["fairness"]);
    assert_eq!(passing(9, Some(9)).broken(), NONE);
    assert_eq!(passing(10, None).broken(), NONE);
}

#[test]
fn a_type_that_was_suspended_or_whose_time_was_ahead_was_not_passed_over() {
    let of_u = |suspends: bool| {
        let (tenant, type_name) = ("a".to_owned(), "u".to_owned());
        match suspends {
            true => Operation::Suspend { tenant, type_name },
            false => Operation::Resume { tenant, type_name },
        }
    };
    let passed = |before: &dyn Fn(&mut Story), between: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.terms.passed_over_max = Some(9);
        before(&mut story);
        waiting(&mut story);
        between(&mut story);
        (100..110).for_each(|job| taken(&mut story, job, "t"));
        story.request(of_u(false), done());
        taken(&mut story, 1, "u");
        story.broken()
    };
    let suspend = |story: &mut Story| {
        story.request(of_u(true), done());
    };
    assert_eq!(passed(&suspend, &|_| {}), NONE);
    let back = |story: &mut Story| {
        let kind = FaultKind::ClockStep { by_ms: -3_600_000 };
        story.fault_on(kind, Target::All, 1).wait(2000);
    };
    assert_eq!(passed(&|_| {}, &back), NONE);
}

#[test]
fn many_busy_types_pass_each_other_over() {
    let passed = |types: u64| {
        let mut story = Story::new();
        story.terms.passed_over_max = Some(9);
        waiting(&mut story);
        for job in 100..112 {
            taken(&mut story, job, &format!("t{}", job % types));
        }
        taken(&mut story, 1, "u");
        story.broken()
    };
    assert_eq!(passed(1), ["fairness"]);
    assert_eq!(passed(2), NONE);
}

#[test]
fn what_could_not_have_been_a_breach_was_not_judged() {
    let judged = |mut story: Story| story.report().coverage.judged["fairness"];
    assert_eq!(judged(passing(9, Some(9))), 0, "too few others were started");
    assert!(judged(passing(10, Some(9))) > 0);
    let mut fair = passing(0, Some(9));
    (100..120).for_each(|job| taken(&mut fair, job, "t"));
    assert!(judged(fair) > 0, "it was taken before them");
}

#[test]
fn the_start_of_a_context_is_not_passing_over() {
    let passed = |start_ms| {
        let mut story = passing(0, Some(9));
        story.terms.context_start_ns = start_ms * MS;
        story.add(2);
        for job in 100..120 {
            let other = Began { type_name: "u".into(), ..began("d1/c", job) };
            story.event(Event::Began(other)).ended("d1/c", job, 200);
        }
        story.run("d1/d", 2, 1, 200).seen(2, State::Finished).broken()
    };
    assert_eq!(passed(0), ["fairness"]);
    assert_eq!(passed(500), NONE);
}

#[test]
fn the_status_counts_what_is_listed() {
    let counted = |finished, queued| {
        let mut story = Story::new();
        story.add(1).add(2).seen(1, State::Queued).seen(2, State::Queued);
        story.counted(State::Queued, queued).counted(State::Finished, finished).broken()
    };
    assert_eq!(counted(0, 2), NONE);
    assert_eq!(counted(1, 2), ["counts"]);
    assert_eq!(counted(0, 1), ["counts"]);
    let mut twice = Story::new();
    assert_eq!(twice.add(1).seen(1, State::Queued).seen(1, State::Queued).broken(), ["counts"]);
}

#[test]
fn a_history_with_holes_is_found() {
    assert_eq!(Story::new().answer(7, done()).broken(), ["whole"]);
    assert_eq!(Story::new().ended("d1/c", 1, 200).broken(), ["whole"]);
    assert_eq!(Story::new().event(Event::FaultEnded { fault: 3 }).broken(), ["whole"]);
    let mut short = Story::new();
    short.request(add(70, 2, None, plain()), ids(&[1])).seen(1, State::Queued);
    assert_eq!(short.broken(), ["whole"]);
    let mut twice = Story::new();
    let what = || Operation::Cancel { tenant: "a".into(), job: JobId(1) };
    for _ in 0..2 {
        twice.event(Event::Sent { op: 1, who: "x".into(), via: None, what: what() });
    }
    assert_eq!(twice.broken(), ["whole"]);
    let mut open = Story::new();
    open.send("x", what());
    assert_eq!(open.broken(), NONE, "a request without an answer is unknown");
}
