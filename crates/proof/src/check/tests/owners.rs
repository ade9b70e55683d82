//! `overlap`, `token`, `extra_run`.

use super::story::{
    LEASE_MS, MS, NONE, PULL_LEASE_MS, Story, cancel, claim_of, claimed, done, plain, release,
    renew, retry, unknown,
};
use crate::history::{Answer, FaultKind, Form, JobId, Operation, Outcome, State, Target};

#[test]
fn two_workers_with_valid_leases_are_found() {
    let second_after = |ms| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).wait(ms).claim_attempt("v", 1, 6, 2);
        story.seen(1, State::Running).broken()
    };
    assert_eq!(second_after(100), ["overlap", "extra_run"]);
    assert_eq!(second_after(PULL_LEASE_MS), NONE);
}

#[test]
fn a_renewed_lease_is_valid_for_longer() {
    let mut story = Story::new();
    story.add(1).claim("w", 1, 5).wait(400).request(renew(1, 5), done());
    story.wait(200).claim_attempt("v", 1, 6, 2).seen(1, State::Running);
    assert_eq!(story.broken(), ["overlap", "extra_run"]);
    let mut story = Story::new();
    story.add(1).claim("w", 1, 5).wait(400).request(renew(1, 5), unknown());
    story.wait(200).claim_attempt("v", 1, 6, 2).seen(1, State::Running);
    assert_eq!(story.broken(), NONE, "the renewal may have come to nothing");
}

#[test]
fn a_released_job_may_be_claimed_at_once() {
    for answer in [done(), unknown()] {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).request(release(1, 5), answer).claim("v", 1, 6);
        assert_eq!(story.seen(1, State::Running).broken(), NONE);
    }
}

#[test]
fn a_power_cut_may_undo_a_claim() {
    let mut story = Story::new();
    story.add(1).claim("w", 1, 5).fault_on(FaultKind::PowerCut, Target::All, 50);
    story.claim("v", 1, 6).seen(1, State::Running);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn runs_of_two_handlers_overlap_only_if_the_first_daemon_was_touched() {
    let overlap = |kind: Option<FaultKind>, daemon: &str| {
        let mut story = Story::new();
        story.add(1).began("d1/c", 1, 1);
        if let Some(kind) = kind {
            story.fault(kind, daemon, 2 * LEASE_MS);
        }
        story.wait(10).began("d2/c", 1, 2).wait(10).ended("d1/c", 1, 200).ended("d2/c", 1, 200);
        story.seen(1, State::Finished).broken()
    };
    assert_eq!(overlap(None, ""), ["overlap", "extra_run"]);
    assert_eq!(overlap(Some(FaultKind::Stop), "d1"), NONE);
    assert_eq!(overlap(Some(FaultKind::Kill), "d3"), ["overlap", "extra_run"]);
}

#[test]
fn a_stale_daemon_may_begin_a_job_that_another_has() {
    let mut story = Story::new();
    story.add(1).fault(FaultKind::Stop, "d1", 2 * LEASE_MS);
    story.began("d2/c", 1, 2).wait(10).began("d1/c", 1, 1);
    story.ended("d1/c", 1, 200).ended("d2/c", 1, 200).seen(1, State::Finished);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn tokens_grow() {
    let tokens = |first, second| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, first).wait(600).claim_attempt("v", 1, second, 2);
        story.seen(1, State::Running).broken()
    };
    assert_eq!(tokens(5, 6), NONE);
    assert_eq!(tokens(6, 5), ["token"]);
    assert_eq!(tokens(5, 5), ["token"]);
}

#[test]
fn tokens_may_shrink_only_if_the_store_has_forgotten_a_claim() {
    let tokens = |kind, first, second| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, first).fault_on(kind, Target::All, 1).wait(600);
        story.claim_attempt("v", 1, second, 2).seen(1, State::Running).broken()
    };
    assert_eq!(tokens(FaultKind::StoreForgets, 6, 5), NONE);
    assert_eq!(tokens(FaultKind::StoreForgets, 5, 5), ["token"]);
    assert_eq!(tokens(FaultKind::PowerCut, 6, 5), ["token"]);
}

#[test]
fn a_report_needs_the_token_of_the_newest_claim() {
    let story = |token, fault: Option<FaultKind>| {
        let mut story = Story::new();
        story.add(1).claim("w", 1, 5).wait(600).claim_attempt("v", 1, 6, 2);
        if let Some(kind) = fault {
            story.fault_on(kind, Target::All, 1);
        }
        story.wait(1).finish(1, token, 200).seen(1, State::Finished).broken()
    };
    assert_eq!(story(6, None), NONE);
    assert_eq!(story(5, None), ["fence"]);
    assert_eq!(story(7, None), ["token"]);
    assert_eq!(story(5, Some(FaultKind::PowerCut)), NONE);
    assert_eq!(story(5, Some(FaultKind::Kill)), ["fence"]);
}

#[test]
fn tokens_of_claims_at_the_same_time_have_no_order() {
    let mut story = Story::new();
    story.add(1);
    let get = |job: u64, token| Answer::Done(Outcome::Jobs(vec![claimed(job, "t", token)]));
    let first = story.send("w", claim_of(&["t"]));
    let second = story.send("v", claim_of(&["t"]));
    story.answer(first, get(1, 6)).request(release(1, 6), done());
    story.answer(second, get(1, 5)).seen(1, State::Running);
    assert_eq!(story.broken(), NONE);
}

#[test]
fn a_second_run_needs_a_reason() {
    let twice = |first_status, between: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.add(1).run("d1/c", 1, 1, first_status);
        between(&mut story);
        story.wait(10).run("d1/c", 1, 2, 200).seen(1, State::Finished).broken()
    };
    assert_eq!(twice(200, &|_| {}), ["extra_run"]);
    assert_eq!(twice(400, &|_| {}), ["extra_run"]);
    assert_eq!(twice(500, &|_| {}), NONE);
    assert_eq!(twice(100, &|_| {}), NONE);
    assert_eq!(
        twice(200, &|story| {
            story.request(retry(1), unknown());
        }),
        NONE
    );
    assert_eq!(
        twice(200, &|story| {
            story.fault(FaultKind::Kill, "d1", 10);
        }),
        NONE
    );
    assert_eq!(
        twice(200, &|story| {
            story.fault(FaultKind::Kill, "d2", 10);
        }),
        ["extra_run"]
    );
    let context = Target::Holder("d1/c".into());
    let kill = |story: &mut Story| {
        story.fault_on(FaultKind::Kill, context.clone(), 10);
    };
    assert_eq!(twice(200, &kill), NONE);
}

/// What happens long after the end of a run has nothing to do with it, unless it undoes the end.
#[test]
fn a_fault_long_after_its_end_does_not_explain_that_a_job_runs_again() {
    let twice = |first_status, between: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.add(1).run("d1/c", 1, 1, first_status);
        between(&mut story);
        story.wait(10).run("d1/e", 1, 2, 200).seen(1, State::Finished).broken()
    };
    // Later, so that the second run was certainly not claimed before the first one's end.
    let ahead_ms = Story::new().terms.claim_ahead_ns / MS;
    let late = |kind, target: Target| {
        move |story: &mut Story| {
            story.wait(LEASE_MS + ahead_ms).fault_on(kind, target.clone(), 10);
        }
    };
    let daemon = Target::Daemon("d1".into());
    for kind in [FaultKind::Kill, FaultKind::Stop, FaultKind::StoreHang, FaultKind::TornTail] {
        assert_eq!(twice(200, &late(kind, daemon.clone())), ["extra_run"], "{kind:?}");
        assert_eq!(twice(500, &late(kind, daemon.clone())), NONE, "{kind:?}");
    }
    let step = FaultKind::ClockStep { by_ms: 3_600_000 };
    assert_eq!(twice(200, &late(step, Target::All)), ["extra_run"]);
    assert_eq!(twice(200, &late(FaultKind::Kill, Target::Holder("d1/c".into()))), ["extra_run"]);
    for kind in [FaultKind::PowerCut, FaultKind::StoreForgets, FaultKind::FailedSync] {
        assert_eq!(twice(200, &late(kind, Target::All)), NONE, "{kind:?}");
    }
    let mut under_way = Story::new();
    let hang = FaultKind::StoreHang;
    under_way.add(1).began("d1/c", 1, 1);
    under_way.during(hang, Target::All, |story| {
        story.ended("d1/c", 1, 200).wait(3 * LEASE_MS);
    });
    under_way.wait(2 * LEASE_MS).run("d2/c", 1, 2, 200).seen(1, State::Finished);
    assert_eq!(under_way.broken(), NONE, "the end could not be stored");
}

/// It may have been stopped while it held the store's lock, so that no other daemon could write.
#[test]
fn an_end_is_not_stored_while_another_daemon_is_stopped() {
    let killed_after = |stop_ms, wait_ms| {
        let mut story = Story::new();
        story.add(1).began("d1/c", 1, 1);
        story.during(FaultKind::Stop, Target::Daemon("d2".into()), |story| {
            story.ended("d1/c", 1, 200).wait(stop_ms);
        });
        story.wait(wait_ms).fault(FaultKind::Kill, "d1", 10);
        story.wait(10).run("d2/c", 1, 2, 200).seen(1, State::Finished).broken()
    };
    assert_eq!(killed_after(3 * LEASE_MS, LEASE_MS / 2), NONE);
    let ahead_ms = Story::new().terms.claim_ahead_ns / MS;
    assert_eq!(killed_after(10, LEASE_MS + ahead_ms), ["extra_run"]);
}

/// The first claim is answered after the second one, which a retry explains.
#[test]
fn a_second_run_comes_after_the_one_with_the_smaller_token() {
    let answered_late = |retried: bool| {
        let mut story = Story::new();
        let early = story.add(1).send("w", claim_of(&["t"]));
        story.request(cancel(1), done());
        if retried {
            story.request(retry(1), done());
        }
        let late = Answer::Done(Outcome::Jobs(vec![claimed(1, "t", 5)]));
        story.claim("v", 1, 6).finish(1, 6, 200).answer(early, late);
        story.seen(1, State::Finished).broken()
    };
    assert_eq!(answered_late(true), NONE);
    assert!(answered_late(false).contains(&"extra_run"));
}

#[test]
fn a_fault_explains_runs_up_to_a_lease_after_its_end() {
    let after = |ms| {
        let mut story = Story::new();
        story.add(1).fault(FaultKind::StoreHang, "d1", 10).wait(ms).run("d1/c", 1, 1, 200);
        story.wait(200).run("d1/c", 1, 2, 200).seen(1, State::Finished).broken()
    };
    assert_eq!(after(LEASE_MS / 2), NONE);
    assert_eq!(after(LEASE_MS + 10), ["extra_run"]);
}

#[test]
fn a_handler_that_reaches_its_time_limit_runs_again() {
    let after = |ms| {
        let mut story = Story::new();
        story.terms.attempt_timeout_ns = 1000 * MS;
        story.add(1).began("d1/c", 1, 1).wait(ms).run("d1/e", 1, 2, 200);
        story.seen(1, State::Finished).broken()
    };
    assert_eq!(after(1000), NONE);
    assert_eq!(after(500), ["extra_run"]);
}

#[test]
fn repeats_and_parents_run_again() {
    let mut story = Story::new();
    story.add_as(1, Form { repeat: Some("cron: * * * * *".into()), ..plain() });
    story.run("d1/c", 1, 1, 200).run("d1/c", 1, 1, 200).seen(1, State::Queued);
    assert_eq!(story.broken(), NONE);

    let mut story = Story::new();
    story.add(1).claim("w", 1, 5).add_as(2, Form { parent: Some(JobId(1)), ..plain() });
    story.finish(1, 5, 200).claim("w", 2, 6).finish(2, 6, 200).claim("w", 1, 7);
    story.finish(1, 7, 200).seen(1, State::Finished);
    let child = super::story::seen(2);
    story.seen_as(crate::history::Seen { parent: Some(JobId(1)), ..child });
    assert_eq!(story.broken(), NONE);
}

#[test]
fn bedrock_workers_keep_a_job_until_they_report() {
    let twice = |retried: bool| {
        let mut story = Story::new();
        story.add(1);
        for worker in ["w", "v"] {
            let get = Operation::GetJob { tenant: "a".into(), types: vec!["t".into()] };
            let op = story.send(worker, get);
            let job = crate::history::Claimed { token: None, ..claimed(1, "t", 0) };
            story.answer(op, Answer::Done(Outcome::Jobs(vec![job])));
            if retried {
                let back = Operation::RetryJob { tenant: "a".into(), job: JobId(1), data: None };
                story.request(back, done());
            }
            story.wait(60_000);
        }
        story.seen(1, State::Running).broken()
    };
    assert_eq!(twice(false), ["overlap", "extra_run"]);
    assert_eq!(twice(true), NONE);
}

#[test]
fn a_retry_that_crosses_a_claim_may_take_the_job_from_it() {
    let crossed = |retried: bool| {
        let mut story = Story::new();
        let early = story.add(1).send("w", claim_of(&["t"]));
        let again = retried.then(|| story.send("client", retry(1)));
        story.answer(early, Answer::Done(Outcome::Jobs(vec![claimed(1, "t", 5)])));
        story.claim_attempt("v", 1, 6, 2);
        if let Some(again) = again {
            story.answer(again, done());
        }
        story.seen(1, State::Running).broken()
    };
    assert_eq!(crossed(true), NONE);
    assert_eq!(crossed(false), ["overlap", "extra_run"]);
}

#[test]
fn a_cancelled_run_may_still_be_stopping_when_its_retry_begins() {
    let mut story = Story::new();
    story.add(1).began("d1/c", 1, 1).request(cancel(1), done()).request(retry(1), done());
    story.began("d2/c", 1, 1).ended("d1/c", 1, 200).ended("d2/c", 1, 200);
    assert_eq!(story.seen(1, State::Finished).broken(), NONE);
}
