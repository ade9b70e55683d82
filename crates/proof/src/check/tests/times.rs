//! `early`, `expired` and `round`.

use super::story::{
    MS, NONE, STEP_MS, Story, add, cancel, done, ids, limits, plain, retry, unknown,
};
use crate::history::{FaultKind, Form, State, Target};

const DELAY_MS: u64 = 500;

fn delayed() -> Form {
    Form { delay_ns: Some(DELAY_MS * MS), ..plain() }
}

/// A job with a delay, claimed so long after its add was sent.
fn claimed_after(story: &mut Story, ms: u64) -> Vec<&'static str> {
    story.wait(ms - 2 * STEP_MS).claim("w", 1, 5).finish(1, 5, 200);
    story.seen(1, State::Finished).broken()
}

#[test]
fn a_job_does_not_start_before_its_time() {
    assert_eq!(claimed_after(Story::new().add_as(1, delayed()), DELAY_MS), NONE);
    assert_eq!(claimed_after(Story::new().add_as(1, delayed()), DELAY_MS - 20), ["early"]);
    assert_eq!(claimed_after(Story::new().add(1), DELAY_MS - 20), NONE, "without a delay");
}

#[test]
fn a_delay_counts_from_the_first_time_that_an_add_was_sent() {
    let mut again = Story::new();
    let keyed = || add(1, 1, Some("k"), delayed());
    again.request(keyed(), unknown()).wait(DELAY_MS).request(keyed(), ids(&[1]));
    again.claim("w", 1, 5).finish(1, 5, 200).seen(1, State::Finished);
    assert_eq!(again.broken(), NONE);
}

#[test]
fn retries_and_steps_of_the_clock_let_a_job_start_at_once() {
    let mut retried = Story::new();
    retried.add_as(1, delayed()).request(retry(1), done());
    assert_eq!(claimed_after(&mut retried, 50), NONE);
    let mut stepped = Story::new();
    let step = FaultKind::ClockStep { by_ms: 3_600_000 };
    stepped.add_as(1, delayed()).fault_on(step, Target::All, 1);
    assert_eq!(claimed_after(&mut stepped, 50), NONE);
    let mut set_before = Story::new();
    set_before.fault_on(step, Target::All, 1).add_as(1, delayed());
    assert_eq!(claimed_after(&mut set_before, 50), NONE);
}

/// A job that fails, and is claimed again so long after its finish was sent.
fn tried_again_after(ms: u64, pause_ms: Option<u64>) -> Story {
    let mut story = Story::new();
    story.terms.retry_pause_ns = pause_ms.map(|ms| ms * MS);
    story.add(1).claim("w", 1, 5).finish(1, 5, 500).wait(ms - 3 * STEP_MS);
    story
}

fn then_finished(mut story: Story) -> Vec<&'static str> {
    story.claim_attempt("w", 1, 6, 2).finish(1, 6, 200).seen(1, State::Finished).broken()
}

#[test]
fn another_attempt_waits_for_its_pause() {
    assert_eq!(then_finished(tried_again_after(200, Some(180))), NONE);
    assert_eq!(then_finished(tried_again_after(150, Some(180))), ["early"]);
    assert_eq!(then_finished(tried_again_after(150, None)), NONE);
    let mut handled = Story::new();
    handled.terms.retry_pause_ns = Some(180 * MS);
    handled.add(1).run("d1/c", 1, 1, 503).wait(100).run("d1/c", 1, 2, 200);
    assert_eq!(handled.seen(1, State::Finished).broken(), ["early"]);
    let mut touched = tried_again_after(150, Some(180));
    touched.fault(FaultKind::Kill, "d1", 1);
    assert_eq!(then_finished(touched), NONE, "its lease may have been broken");
}

const LIFE_MS: u64 = 300;

fn expiring(claimed_after_ms: u64) -> Story {
    let mut story = Story::new();
    story.add_as(1, Form { expires_ns: Some(LIFE_MS * MS), ..plain() });
    story.wait(claimed_after_ms - STEP_MS);
    story
}

fn then_run(mut story: Story) -> Vec<&'static str> {
    story.claim("w", 1, 5).finish(1, 5, 200).seen(1, State::Finished).broken()
}

#[test]
fn a_job_whose_time_is_over_does_not_start() {
    assert_eq!(then_run(expiring(LIFE_MS + 10)), ["expired"]);
    assert_eq!(then_run(expiring(LIFE_MS - 10)), NONE);
    let mut retried = expiring(LIFE_MS + 10);
    retried.request(retry(1), unknown());
    assert_eq!(then_run(retried), NONE);
    let mut failed = expiring(LIFE_MS + 10);
    assert_eq!(failed.seen(1, State::Failed).broken(), NONE);
}

#[test]
fn a_handler_may_have_been_claimed_before_the_time_was_over() {
    let run = |ms| {
        let mut story = expiring(ms);
        story.run("d1/c", 1, 1, 200).seen(1, State::Finished).broken()
    };
    assert_eq!(run(LIFE_MS + 90), NONE, "claimed up to 100 ms ahead");
    assert_eq!(run(LIFE_MS + 110), ["expired"]);
}

/// A repeating job, whose rounds are at most `MS` apart.
fn repeating() -> Story {
    let mut story = Story::new();
    story.terms.round_max_ns = Some(1000 * MS);
    story.terms.round_interval_ns = MS;
    story.add_as(1, Form { repeat: Some("FINISHED, +0 SECONDS".into()), ..plain() });
    story
}

/// A job that was added later runs.
fn younger(story: &mut Story) -> &mut Story {
    story.add(9).run("d1/c", 9, 1, 200).seen(9, State::Finished)
}

/// It runs once, a younger one runs, and then something happens.
fn once(then: impl Fn(&mut Story)) -> Vec<&'static str> {
    let mut story = repeating();
    younger(story.run("d1/c", 1, 1, 200));
    then(&mut story);
    story.seen(1, State::Cancelled).broken()
}

#[test]
fn a_job_that_repeats_comes_due_again() {
    let cancelled_after = |ms| {
        once(|story| {
            story.wait(ms).request(cancel(1), done()).wait(2000);
        })
    };
    assert_eq!(cancelled_after(1000), NONE, "claimed up to 100 ms ahead");
    assert_eq!(cancelled_after(1100), ["round"]);
    let again = once(|story| {
        story.wait(900).run("d1/c", 1, 1, 200).wait(900).request(cancel(1), done());
    });
    assert_eq!(again, NONE);
}

#[test]
fn a_round_may_wait_in_line_but_not_behind_younger_jobs() {
    let mut alone = repeating();
    alone.run("d1/c", 1, 1, 200).wait(2000).request(cancel(1), done());
    assert_eq!(alone.seen(1, State::Cancelled).broken(), NONE);
    let mut urgent = repeating();
    urgent.run("d1/c", 1, 1, 200).add_as(9, Form { priority: Some(900), ..plain() });
    urgent.run("d1/c", 9, 1, 200).seen(9, State::Finished).wait(2000);
    assert_eq!(urgent.request(cancel(1), done()).seen(1, State::Cancelled).broken(), NONE);
    let mut pulled = repeating();
    pulled.claim("w", 1, 5).finish(1, 5, 200);
    younger(&mut pulled).wait(1010).request(cancel(1), done());
    assert_eq!(pulled.seen(1, State::Cancelled).broken(), ["round"], "nobody claims ahead");
}

#[test]
fn cancels_limits_faults_and_steps_of_the_clock_leave_rounds_open() {
    let mut crossed = repeating();
    let op = crossed.send("client", cancel(1));
    younger(crossed.run("d1/c", 1, 1, 200).answer(op, done())).wait(2000);
    assert_eq!(crossed.seen(1, State::Cancelled).broken(), NONE, "sent before it began");
    let mut elsewhere = repeating();
    elsewhere.request(cancel(1), done()).wait(1);
    younger(elsewhere.run("d2/c", 1, 1, 200)).wait(2000);
    assert_eq!(elsewhere.seen(1, State::Cancelled).broken(), NONE, "its daemon did not know yet");
    let limited = once(|story| {
        story.request(limits(Some(1), None), done()).wait(1100).request(cancel(1), done());
    });
    assert_eq!(limited, NONE);
    let killed = once(|story| {
        story.fault(FaultKind::Kill, "d1", 1).wait(1100).request(cancel(1), done());
    });
    assert_eq!(killed, NONE);
    let mut stepped = repeating();
    let back = FaultKind::ClockStep { by_ms: -3_600_000 };
    stepped.fault_on(back, Target::All, 1).wait(2000).run("d1/c", 1, 1, 200);
    younger(&mut stepped).wait(2000).request(cancel(1), done());
    assert_eq!(stepped.seen(1, State::Cancelled).broken(), NONE, "its time is ahead of the clock");
}
