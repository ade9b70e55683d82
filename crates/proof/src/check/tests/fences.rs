//! `fence`; runs of jobs that repeat, by `extra_run`; and what clients saw, by `after_end` and
//! `in_force`.

use super::story::{
    LEASE_MS, NONE, PULL_LEASE_MS, Story, done, ended, finish, plain, refused, release, renew,
    retry, seen,
};
use crate::history::{Ended, FaultKind, Form, JobId, Operation, Seen, State, Target, Token};

/// The lease of the first claim has run out, and there is a second one.
fn two_claims() -> Story {
    let mut story = Story::new();
    story.add(1).claim("w", 1, 5).wait(PULL_LEASE_MS).claim_attempt("v", 1, 6, 2);
    story
}

fn progress(token: u64) -> Operation {
    Operation::Progress { tenant: "a".into(), job: JobId(1), token: Token(token), percent: 1 }
}

#[test]
fn an_old_token_is_not_obeyed() {
    for what in [renew(1, 5), progress(5), release(1, 5)] {
        let mut obeyed = two_claims();
        obeyed.request(what.clone(), done()).finish(1, 6, 200);
        // A renewal also says that the first lease did not run out.
        assert!(obeyed.seen(1, State::Finished).broken().contains(&"fence"), "{what:?}");
        let mut kept = two_claims();
        kept.request(what, refused()).finish(1, 6, 200);
        assert_eq!(kept.seen(1, State::Finished).broken(), NONE);
    }
    let mut newest = two_claims();
    newest.request(renew(1, 6), done()).request(progress(6), done()).finish(1, 6, 200);
    assert_eq!(newest.seen(1, State::Finished).broken(), NONE);
    let mut finished = two_claims();
    assert_eq!(finished.finish(1, 5, 200).seen(1, State::Finished).broken(), ["fence"]);
}

#[test]
fn a_power_cut_may_undo_a_claim() {
    let mut story = two_claims();
    story.fault_on(FaultKind::PowerCut, Target::All, 1).request(finish(1, 5, 200), done());
    assert_eq!(story.seen(1, State::Finished).broken(), NONE);
}

#[test]
fn damage_of_a_journal_undoes_no_claim() {
    for kind in [FaultKind::TornTail, FaultKind::DamagedJournal] {
        let mut story = two_claims();
        story.fault(kind, "d1", 1).request(finish(1, 5, 200), done());
        assert_eq!(story.seen(1, State::Finished).broken(), ["fence"], "{kind:?}");
    }
}

/// A daemon is stopped past its lease while it runs a job; the job ends with this result.
fn result_of(by: &str) -> Vec<&'static str> {
    let with = |context, data: &str| Ended { data: Some(data.into()), ..ended(context, 1, 200) };
    let mut story = Story::new();
    story.add(1).began("d1/c", 1, 1).fault(FaultKind::Stop, "d1", 2 * LEASE_MS);
    story.began("d2/c", 1, 2).ended_as(with("d1/c", "old")).ended_as(with("d2/c", "new"));
    story.seen_as(Seen { result: Some(by.into()), ..seen(1) }).broken()
}

#[test]
fn the_result_is_that_of_the_newest_attempt() {
    assert_eq!(result_of("new"), NONE);
    assert_eq!(result_of("old"), ["fence"]);
}

fn repeating() -> Story {
    let mut story = Story::new();
    let repeat = Some("FINISHED, +0 SECONDS".into());
    story.add_as(1, Form { repeat, ..plain() });
    story
}

#[test]
fn an_attempt_beyond_the_first_of_a_round_has_a_reason() {
    let rounds = |attempts: &[u32], status| {
        let mut story = repeating();
        attempts.iter().for_each(|attempt| {
            story.run("d1/c", 1, *attempt, status);
        });
        story.seen(1, State::Queued).broken()
    };
    assert_eq!(rounds(&[1, 1, 1], 200), NONE);
    assert_eq!(rounds(&[1, 2, 1], 200), ["extra_run"]);
    assert_eq!(rounds(&[1, 2, 3], 500), NONE);
    let mut killed = repeating();
    killed.began("d1/c", 1, 1).fault(FaultKind::Kill, "d1", 10).run("d2/c", 1, 2, 200);
    assert_eq!(killed.seen(1, State::Queued).broken(), NONE);
    let mut unseen = repeating();
    unseen.run("d1/c", 1, 1, 200).fault(FaultKind::Kill, "d2", 10).run("d1/c", 1, 2, 200);
    assert_eq!(unseen.seen(1, State::Queued).broken(), NONE, "d2 may have had the first attempt");
}

/// A client sees that job 1 has ended.
fn look() -> Operation {
    Operation::Look { tenant: "a".into(), job: JobId(1), state: State::Finished }
}

fn seen_finished() -> Story {
    let mut story = Story::new();
    story.add(1).run("d1/c", 1, 1, 200).request(look(), done());
    story
}

#[test]
fn a_job_that_a_client_saw_to_have_ended_does_not_run_again() {
    let again = |story: &mut Story| story.run("d2/c", 1, 2, 200).seen(1, State::Finished).broken();
    let mut plain = seen_finished();
    assert_eq!(again(plain.fault(FaultKind::Kill, "d1", 1).wait(LEASE_MS)), ["after_end"]);
    let mut retried = seen_finished();
    assert_eq!(again(retried.request(retry(1), done())), NONE);
    let mut cut = seen_finished();
    assert_eq!(again(cut.fault_on(FaultKind::PowerCut, Target::All, 1)), NONE);
}

#[test]
fn what_a_client_saw_is_in_force() {
    assert_eq!(seen_finished().seen(1, State::Finished).broken(), NONE);
    assert_eq!(seen_finished().seen(1, State::Queued).broken(), ["in_force"]);
    let mut cut = seen_finished();
    cut.fault_on(FaultKind::PowerCut, Target::All, 1);
    assert_eq!(cut.seen(1, State::Queued).broken(), NONE);
    let mut ended = Story::new();
    ended.add(1).claim("w", 1, 5).finish(1, 5, 200).request(look(), done());
    assert_eq!(ended.seen(1, State::Finished).broken(), NONE, "it is not another end");
}
