//! `add_once`, `payload`, `refused`, `idempotency`, `unique`.

use super::story::{NONE, Story, add, cancel, done, ids, plain, refused, retry, seen, unknown};
use crate::history::{
    Answer, Body, Event, FaultKind, Flaw, Form, JobId, Operation, Origin, Seen, State, Target,
};

const FIRST: Origin = Origin::Add { mark: 70, index: 0 };
const SECOND: Origin = Origin::Add { mark: 70, index: 1 };

#[test]
fn an_add_whose_answer_was_lost_adds_at_most_once() {
    let sent = |times| {
        let mut story = Story::new();
        (0..times).for_each(|_| {
            story.request(add(70, 1, None, plain()), unknown());
        });
        story.seen_from(1, State::Queued, FIRST).seen_from(2, State::Queued, FIRST).broken()
    };
    assert_eq!(sent(1), ["add_once"]);
    assert_eq!(sent(2), NONE, "it was sent twice, without a key");
    let mut never = Story::new();
    assert_eq!(never.request(add(70, 1, None, plain()), unknown()).broken(), NONE);
}

#[test]
fn a_job_beside_the_one_that_was_answered_is_found() {
    let mut story = Story::new();
    story.request(add(70, 1, None, plain()), ids(&[1]));
    story.seen(1, State::Queued).seen_from(2, State::Queued, FIRST);
    assert_eq!(story.broken(), ["add_once"]);
}

#[test]
fn a_job_has_the_payload_of_its_add() {
    let listed = |one, two| {
        let mut story = Story::new();
        story.request(add(70, 2, None, plain()), ids(&[1, 2]));
        story.seen_from(1, State::Queued, one).seen_from(2, State::Queued, two).broken()
    };
    assert_eq!(listed(FIRST, SECOND), NONE);
    assert_eq!(listed(SECOND, FIRST), ["add_once"]);
}

/// A job of an add in this form, whose payload is read.
fn read(form: Form, bodies: &[Body]) -> Story {
    let mut story = Story::new();
    story.request(add(70, 1, None, form), ids(&[1]));
    bodies.iter().for_each(|body| {
        story.event(Event::Read { job: JobId(1), body: *body });
    });
    story.seen(1, State::Queued);
    story
}

#[test]
fn a_payload_that_was_read_is_whole() {
    assert_eq!(read(plain(), &[Body::Intact(FIRST), Body::Intact(FIRST)]).broken(), NONE);
    for wrong in [Body::Other, Body::Empty, Body::Intact(SECOND)] {
        assert_eq!(read(plain(), &[Body::Intact(FIRST), wrong]).broken(), ["payload"], "{wrong:?}");
    }
    let empty = || Form { payload_bytes: 0, ..plain() };
    assert_eq!(read(empty(), &[Body::Empty]).broken(), NONE);
    assert_eq!(read(empty(), &[Body::Other]).broken(), ["payload"]);
    let unique = Form { unique: Some("u".into()), ..plain() };
    assert_eq!(read(unique, &[Body::Other]).broken(), NONE, "it may be the job of another add");
}

#[test]
fn a_bedrock_worker_may_replace_a_payload() {
    let (tenant, job, data) = ("a".to_owned(), JobId(1), "{}".to_owned());
    let update = Operation::UpdateJob { tenant, job, data };
    let updated = |answer: Answer| {
        let mut story = read(plain(), &[Body::Intact(FIRST)]);
        story.request(update.clone(), answer);
        story.event(Event::Read { job: JobId(1), body: Body::Other }).broken()
    };
    assert_eq!([done(), unknown()].map(updated), [NONE; 2]);
    assert_eq!(updated(refused()), ["payload"]);
    let (tenant, job, data) = ("a".to_owned(), JobId(1), Some("{}".to_owned()));
    let mut retried = read(plain(), &[]);
    retried.request(Operation::RetryJob { tenant, job, data }, unknown());
    retried.event(Event::Read { job: JobId(1), body: Body::Other });
    assert_eq!(retried.broken(), NONE);
}

#[test]
fn a_refused_add_adds_nothing() {
    let listed = |answer| {
        let mut story = Story::new();
        story.request(add(70, 1, None, plain()), answer);
        story.seen_from(1, State::Queued, FIRST).broken()
    };
    assert_eq!(listed(refused()), ["refused"]);
    assert_eq!(listed(unknown()), NONE);
}

#[test]
fn an_invalid_request_is_refused() {
    let invalid = || {
        let (tenant, type_name) = ("a".to_owned(), "t".to_owned());
        Operation::Invalid { tenant, type_name, flaw: Flaw::Priority }
    };
    assert_eq!(Story::new().request(invalid(), done()).broken(), ["refused"]);
    assert_eq!(Story::new().request(invalid(), refused()).broken(), NONE);
    assert_eq!(Story::new().request(invalid(), unknown()).broken(), NONE);
}

fn keyed(second: &[u64]) -> Story {
    let mut story = Story::new();
    story.request(add(70, 1, Some("k"), plain()), ids(&[1])).seen(1, State::Queued);
    story.request(add(70, 1, Some("k"), plain()), ids(second));
    story
}

#[test]
fn one_key_means_one_job() {
    assert_eq!(keyed(&[1]).broken(), NONE);
    assert_eq!(keyed(&[2]).seen(2, State::Queued).broken(), ["idempotency"]);
    let mut twins = keyed(&[1]);
    twins.seen_from(2, State::Queued, FIRST).seen_from(3, State::Queued, FIRST);
    assert_eq!(twins.broken(), ["add_once"]);
}

#[test]
fn a_keyed_add_that_was_too_late_may_enter_as_cancelled() {
    assert_eq!(keyed(&[2]).seen(2, State::Cancelled).broken(), NONE);
    let mut ran = keyed(&[2]);
    ran.run("d1/c", 2, 1, 200);
    assert_eq!(ran.seen(2, State::Cancelled).broken(), ["idempotency"]);
}

#[test]
fn a_key_is_forgotten_after_its_time() {
    let step = |hours: i64| {
        let mut story = Story::new();
        story.request(add(70, 1, Some("k"), plain()), ids(&[1])).seen(1, State::Queued);
        let kind = FaultKind::ClockStep { by_ms: hours * 3_600_000 };
        story.fault_on(kind, Target::All, 1);
        story.request(add(71, 1, Some("k"), plain()), ids(&[2])).seen(2, State::Queued).broken()
    };
    assert_eq!(step(25), NONE);
    assert_eq!(step(2), ["idempotency"]);
}

#[test]
fn an_add_that_is_sent_again_when_its_key_is_forgotten_adds_again() {
    let step = |hours: i64| {
        let mut story = Story::new();
        story.request(add(70, 1, Some("k"), plain()), unknown());
        let kind = FaultKind::ClockStep { by_ms: hours * 3_600_000 };
        story.fault_on(kind, Target::All, 1);
        story.request(add(70, 1, Some("k"), plain()), ids(&[2]));
        story.seen_from(1, State::Queued, FIRST).seen_from(2, State::Queued, FIRST).broken()
    };
    assert_eq!(step(-25), NONE);
    assert_eq!(step(2), ["add_once"]);
}

#[test]
fn a_keyed_add_that_is_sent_again_after_that_time_adds_its_jobs_again() {
    let step = |hours: i64| {
        let mut story = Story::new();
        story.request(add(70, 1, Some("k"), plain()), ids(&[1]));
        let kind = FaultKind::ClockStep { by_ms: hours * 3_600_000 };
        story.fault_on(kind, Target::All, 1);
        story.request(add(70, 1, Some("k"), plain()), unknown());
        story.seen_from(1, State::Queued, FIRST).seen_from(2, State::Queued, FIRST).broken()
    };
    assert_eq!(step(25), NONE);
    assert_eq!(step(2), ["add_once"]);
}

/// The store had carried it out, its answer was lost, and the add went into the journal.
#[test]
fn a_keyed_add_enters_twice_only_if_its_key_is_forgotten_on_the_way_through_a_journal() {
    let entered = |cut_off: &str, hours: i64, jobs: u64| {
        let mut story = Story::new();
        let op = story.send("client", add(70, 1, Some("k"), plain()));
        story.fault(FaultKind::Partition, cut_off, 5).answer(op, ids(&[2]));
        let kind = FaultKind::ClockStep { by_ms: hours * 3_600_000 };
        story.fault_on(kind, Target::All, 1);
        (1..=jobs).for_each(|job| {
            story.seen_from(job, State::Queued, FIRST);
        });
        story.broken()
    };
    assert_eq!(entered("d1", 25, 2), NONE);
    assert_eq!(entered("d1", 2, 2), ["add_once"]);
    assert_eq!(entered("d2", 25, 2), ["add_once"], "it was in contact");
    assert_eq!(entered("d1", 25, 3), ["add_once"], "two tries, three jobs");
}

#[test]
fn a_second_set_of_a_key_may_run_if_a_client_asks_for_it() {
    let revived = |asked: bool| {
        let mut story = Story::new();
        story.request(add(70, 1, Some("k"), plain()), ids(&[1]));
        story.request(add(70, 1, Some("k"), plain()), ids(&[2]));
        if asked {
            story.request(retry(2), done());
        }
        story.run("d1/c", 2, 1, 200).seen_from(2, State::Finished, FIRST);
        story.seen_from(1, State::Queued, FIRST).broken()
    };
    assert_eq!(revived(true), NONE);
    assert!(revived(false).contains(&"idempotency"));
}

#[test]
fn a_keyed_add_runs_twice_only_if_a_client_asks_for_it() {
    let revived = |asked: bool| {
        let mut story = Story::new();
        story.request(add(70, 1, Some("k"), plain()), ids(&[1]));
        story.run("d1/c", 2, 1, 200).seen_from(2, State::Finished, FIRST);
        if asked {
            story.request(retry(1), done());
        }
        story.run("d1/c", 1, 1, 200).seen_from(1, State::Finished, FIRST).broken()
    };
    assert_eq!(revived(true), NONE);
    assert_eq!(revived(false), ["add_once"]);
}

fn unique() -> Form {
    Form { unique: Some("u".into()), ..plain() }
}

#[test]
fn two_live_jobs_with_one_unique_key_are_found() {
    let two = |first, second| {
        let mut story = Story::new();
        let one = story.send("x", add(70, 1, None, unique()));
        let other = story.send("y", add(71, 1, None, unique()));
        story.answer(one, ids(&[1])).answer(other, ids(&[2]));
        story.seen(1, first).seen(2, second).broken()
    };
    assert_eq!(two(State::Queued, State::Running), ["unique"]);
    assert_eq!(two(State::Finished, State::Running), NONE);
}

#[test]
fn a_unique_key_is_not_given_away_while_its_holder_lives() {
    let story = |claim_first: bool| {
        let mut story = Story::new();
        story.add_as(1, unique());
        if claim_first {
            story.claim("w", 1, 5).finish(1, 5, 200);
        }
        story.add_as(2, unique()).request(cancel(2), done());
        if !claim_first {
            story.claim("w", 1, 5).finish(1, 5, 200);
        }
        story.seen(1, State::Finished).seen(2, State::Cancelled).broken()
    };
    assert_eq!(story(false), ["unique"]);
    assert_eq!(story(true), NONE);
}

#[test]
fn a_unique_add_may_be_answered_with_the_holder() {
    let mut story = Story::new();
    story.add_as(1, unique()).request(add(71, 1, None, unique()), ids(&[1]));
    story.seen_as(Seen { state: State::Queued, ..seen(1) });
    assert_eq!(story.broken(), NONE);
}

#[test]
fn a_holder_that_was_retried_says_nothing_about_its_key() {
    let mut story = Story::new();
    story.add_as(1, unique()).claim("w", 1, 5).finish(1, 5, 200);
    story.add_as(2, unique()).claim("w", 2, 6).finish(2, 6, 200);
    story.request(retry(1), done()).claim("w", 1, 7);
    story.seen(1, State::Running).seen(2, State::Finished);
    assert_eq!(story.broken(), NONE);
}
