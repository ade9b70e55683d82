//! `follower`: jobs that follow others, and jobs that handlers emit.

use super::story::{NONE, Story, delete, done, plain, retry};
use crate::history::{Began, Event, FaultKind, Form, JobId, Origin, State, Target};

const THEN: Origin = Origin::Then { of: JobId(1) };

fn emit(index: u32) -> Origin {
    Origin::Emit { of: JobId(1), index }
}

fn with_then() -> Story {
    let mut story = Story::new();
    story.add_as(1, Form { then: Some("t".into()), ..plain() });
    story
}

fn finished() -> Story {
    let mut story = with_then();
    story.claim("w", 1, 5).finish(1, 5, 200).seen(1, State::Finished);
    story
}

#[test]
fn exactly_one_job_follows_a_finished_one() {
    assert_eq!(finished().broken(), ["follower"]);
    assert_eq!(finished().seen_from(2, State::Queued, THEN).broken(), NONE);
    let mut twice = finished();
    twice.seen_from(2, State::Queued, THEN).seen_from(3, State::Finished, THEN);
    assert_eq!(twice.broken(), ["follower"]);
}

#[test]
fn nothing_follows_a_job_that_failed_or_that_has_no_follower() {
    let mut failed = with_then();
    failed.claim("w", 1, 5).finish(1, 5, 400).seen(1, State::Failed);
    assert_eq!(failed.seen_from(2, State::Queued, THEN).broken(), ["follower"]);
    let mut failed = with_then();
    failed.claim("w", 1, 5).finish(1, 5, 400);
    assert_eq!(failed.seen(1, State::Failed).broken(), NONE);
    let mut none = Story::new();
    none.add(1).claim("w", 1, 5).finish(1, 5, 200).seen(1, State::Finished);
    assert_eq!(none.seen_from(2, State::Queued, THEN).broken(), ["follower"]);
}

#[test]
fn a_retried_job_has_a_follower_for_each_end() {
    let mut story = with_then();
    story.claim("w", 1, 5).finish(1, 5, 200).request(retry(1), done());
    story.claim("w", 1, 6).finish(1, 6, 200).seen(1, State::Finished);
    story.seen_from(2, State::Queued, THEN).seen_from(3, State::Queued, THEN);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn a_missing_follower_may_be_a_job_that_somebody_deleted() {
    assert_eq!(finished().request(delete(2), done()).broken(), NONE);
}

fn emitting(status: u16, state: State) -> Story {
    let mut story = Story::new();
    story.add(1).began("d1/c", 1, 1).ended_with("d1/c", 1, status, 2);
    story.seen(1, state);
    story
}

#[test]
fn what_a_handler_emits_enters_once() {
    let mut both = emitting(200, State::Finished);
    both.seen_from(2, State::Queued, emit(0)).seen_from(3, State::Queued, emit(1));
    assert_eq!(both.broken(), NONE);
    let mut half = emitting(400, State::Failed);
    assert_eq!(half.seen_from(2, State::Queued, emit(0)).broken(), ["follower"]);
    let mut twice = emitting(200, State::Finished);
    twice.seen_from(2, State::Queued, emit(0)).seen_from(3, State::Queued, emit(1));
    assert_eq!(twice.seen_from(4, State::Queued, emit(1)).broken(), ["follower"]);
}

#[test]
fn an_attempt_that_runs_again_emits_nothing() {
    let mut early = emitting(500, State::Queued);
    assert_eq!(early.seen_from(2, State::Queued, emit(0)).broken(), ["follower"]);
    assert_eq!(emitting(500, State::Queued).broken(), NONE);
}

#[test]
fn a_power_cut_may_undo_an_end_with_a_follower_that_has_run_already() {
    let with = |fault: Option<(FaultKind, Target)>| {
        let mut story = with_then();
        story.run("d1/c", 1, 1, 200);
        story.event(Event::Began(Began {
            job: JobId(2),
            tenant: "a".into(),
            type_name: "t".into(),
            attempt: 1,
            daemon: "d1".into(),
            context: "d1/c".into(),
            token: None,
            origin: Some(THEN),
        }));
        if let Some((kind, target)) = fault {
            story.fault_on(kind, target, 10).run("d1/e", 1, 1, 200);
        }
        story.seen(1, State::Finished).seen_from(3, State::Queued, THEN).broken()
    };
    assert_eq!(with(Some((FaultKind::PowerCut, Target::All))), NONE);
    assert_eq!(with(None), ["follower"]);
    let daemon = || Target::Daemon("d1".into());
    for (kind, target) in [
        (FaultKind::Kill, daemon()),
        (FaultKind::TornTail, daemon()),
        (FaultKind::DamagedJournal, daemon()),
        (FaultKind::Stop, Target::Holder("d1/c".into())),
        (FaultKind::ClockStep { by_ms: 3_600_000 }, Target::All),
    ] {
        assert!(with(Some((kind, target))).contains(&"follower"), "{kind:?} undoes nothing");
    }
}
