//! `concurrency`, `rate` and `suspended`.

use super::story::{
    LEASE_MS, MS, NONE, PULL_LEASE_MS, Story, done, limits, refused, release, unknown,
};
use crate::history::{Answer, DaemonEvent, Event, FaultKind, Operation, State, Target};

/// The limit is one at a time.
fn one_at_a_time() -> Story {
    let mut story = Story::new();
    story.request(limits(Some(1), None), done()).add(1).add(2).wait(100);
    story
}

fn both_running(story: &mut Story) -> Vec<&'static str> {
    story.seen(1, State::Running).seen(2, State::Running).broken()
}

#[test]
fn more_than_the_limit_at_once_is_found() {
    let mut story = one_at_a_time();
    story.claim("w", 1, 5).claim("v", 2, 6);
    assert_eq!(both_running(&mut story), ["concurrency"]);
    let mut handlers = one_at_a_time();
    handlers.began("d1/c", 1, 1).wait(10).began("d1/e", 2, 1).ended("d1/c", 1, 200);
    assert_eq!(both_running(&mut handlers), ["concurrency"]);
}

#[test]
fn jobs_one_after_the_other_are_within_the_limit() {
    let mut released = one_at_a_time();
    released.claim("w", 1, 5).request(release(1, 5), unknown()).claim("v", 2, 6);
    assert_eq!(both_running(&mut released), NONE);
    let mut lapsed = one_at_a_time();
    lapsed.claim("w", 1, 5).wait(PULL_LEASE_MS).claim("v", 2, 6);
    assert_eq!(both_running(&mut lapsed), NONE);
    let mut cut = one_at_a_time();
    cut.claim("w", 1, 5).fault_on(FaultKind::PowerCut, Target::All, 10).claim("v", 2, 6);
    assert_eq!(both_running(&mut cut), NONE);
}

#[test]
fn jobs_that_ran_before_a_limit_go_on() {
    let mut story = Story::new();
    story.add(1).add(2).claim("w", 1, 5);
    story.request(limits(Some(1), None), done()).claim("v", 2, 6);
    assert_eq!(both_running(&mut story), NONE);
}

#[test]
fn a_limit_is_not_in_force_while_it_changes() {
    let with = |answer| {
        let mut story = one_at_a_time();
        story.request(limits(Some(2), None), answer).claim("w", 1, 5).claim("v", 2, 6);
        both_running(&mut story)
    };
    assert_eq!(with(done()), NONE);
    assert_eq!(with(unknown()), NONE);
    assert_eq!(with(refused()), ["concurrency"]);
}

/// Ten jobs, started with these pauses, at two starts in a second.
fn started_every(ms: u64, each_time: impl Fn(&mut Story)) -> Vec<&'static str> {
    let mut story = Story::new();
    story.request(limits(None, Some(2.0)), done()).wait(LEASE_MS + 100);
    for job in 1..=10 {
        story.add(job).claim("w", job, job).seen(job, State::Running).wait(ms);
        each_time(&mut story);
    }
    story.broken()
}

#[test]
fn more_starts_than_the_rate_allows_are_found() {
    assert_eq!(started_every(500, |_| {}), NONE);
    assert_eq!(started_every(300, |_| {}), ["rate"]);
    let starts = |story: &mut Story| {
        let daemon = "d1".to_owned();
        story.event(Event::Daemon { daemon, what: DaemonEvent::Started });
    };
    assert_eq!(started_every(300, starts), ["rate"], "a daemon that starts brings no burst");
    let forgets = |story: &mut Story| {
        story.fault_on(FaultKind::StoreForgets, Target::All, 1);
    };
    assert_eq!(started_every(300, forgets), NONE, "the store may have forgotten starts");
}

#[test]
fn a_burst_of_a_second_is_within_the_rate() {
    let burst = |jobs| {
        let mut story = Story::new();
        story.request(limits(None, Some(2.0)), done()).wait(LEASE_MS + 100);
        for job in 1..=jobs {
            story.add(job).claim("w", job, job).seen(job, State::Running);
        }
        story.broken()
    };
    assert_eq!(burst(2), NONE);
    assert_eq!(burst(3), ["rate"]);
}

#[test]
fn the_time_of_a_handlers_claim_is_not_known_exactly() {
    let started = |claim_ahead_ms: u64| {
        let mut story = Story::new();
        story.terms.claim_ahead_ns = claim_ahead_ms * MS;
        story.request(limits(None, Some(2.0)), done()).wait(LEASE_MS + 2 * claim_ahead_ms);
        for job in 1..=3 {
            story.add(job).run("d1/c", job, 1, 200).seen(job, State::Finished);
        }
        story.broken()
    };
    assert_eq!(started(10), ["rate"]);
    assert_eq!(started(1000), NONE);
}

fn suspend(suspended: bool) -> Operation {
    let (tenant, type_name) = ("a".to_owned(), "t".to_owned());
    match suspended {
        true => Operation::Suspend { tenant, type_name },
        false => Operation::Resume { tenant, type_name },
    }
}

#[test]
fn nothing_of_a_suspended_type_starts() {
    let claimed_after = |requests: &[(bool, Answer)]| {
        let mut story = Story::new();
        story.add(1);
        requests.iter().for_each(|(suspended, answer)| {
            story.request(suspend(*suspended), answer.clone());
        });
        story.claim("w", 1, 5).finish(1, 5, 200).seen(1, State::Finished).broken()
    };
    assert_eq!(claimed_after(&[(true, done())]), ["suspended"]);
    assert_eq!(claimed_after(&[(true, unknown())]), NONE);
    assert_eq!(claimed_after(&[(true, done()), (false, done())]), NONE);
    assert_eq!(claimed_after(&[(true, done()), (false, unknown())]), NONE);
    assert_eq!(claimed_after(&[(true, done()), (false, refused())]), ["suspended"]);
    assert_eq!(claimed_after(&[(false, unknown()), (true, done())]), NONE, "it may come later");
    let mut crossed = Story::new();
    let op = crossed.add(1).send("x", suspend(false));
    crossed.request(suspend(true), done()).answer(op, done()).claim("w", 1, 5).finish(1, 5, 200);
    assert_eq!(crossed.seen(1, State::Finished).broken(), NONE, "the resume may have been last");
}

#[test]
fn a_handler_may_have_been_claimed_before_its_type_was_suspended() {
    let begins_after = |ms| {
        let mut story = Story::new();
        story.add(1).request(suspend(true), done()).wait(ms).run("d1/c", 1, 1, 200);
        story.seen(1, State::Finished).broken()
    };
    assert_eq!(begins_after(90), NONE, "claimed up to 100 ms ahead");
    assert_eq!(begins_after(110), ["suspended"]);
}
