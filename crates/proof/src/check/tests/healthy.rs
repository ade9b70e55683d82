//! One healthy run with every feature, under faults; and that each rule has a name and a promise.

use std::io::{BufRead, Cursor};

use super::story::{
    LEASE_MS, NONE, PULL_LEASE_MS, Story, add, cancel, claim_of, claimed, delete, done, finish,
    ids, limits, plain, refused, release, renew, retry, seen, unknown,
};
use crate::check::{RULES, Terms, check};
use crate::history::{
    Answer, Claimed, DaemonEvent, Event, FaultKind, Flaw, Form, JobId, Merge, Operation, Origin,
    Outcome, Recorder, Seen, State, Target,
};

#[test]
fn a_healthy_run_passes_every_rule() {
    let mut story = Story::new();
    story.terms.passed_over_max = Some(20);
    story.event(Event::Daemon { daemon: "d1".into(), what: DaemonEvent::Started });
    pulled(&mut story);
    handled(&mut story);
    keys(&mut story);
    changes(&mut story);
    family(&mut story);
    story.counted(State::Finished, 13).counted(State::Cancelled, 2).counted(State::Queued, 3);
    let report = story.report();
    assert!(report.is_clean(), "{report}");
    let coverage = &report.coverage;
    assert!(coverage.jobs == 17 && coverage.listed == 18 && coverage.faults == 3, "{coverage:?}");
}

/// Claims, renewals, releases, a lost lease, a refused late finish.
fn pulled(story: &mut Story) {
    story.add(1).add(2).add(3);
    story.claim("w", 1, 5).wait(400).request(renew(1, 5), done()).wait(400).finish(1, 5, 200);
    story.claim("w", 2, 6).request(release(2, 6), done()).claim("w", 2, 7).finish(2, 7, 500);
    story.wait(50).claim_attempt("w", 2, 8, 2).finish(2, 8, 200);
    story.claim("w", 3, 9).wait(PULL_LEASE_MS).claim_attempt("v", 3, 10, 2);
    story.request(finish(3, 9, 200), refused()).finish(3, 10, 200);
    let result = |job, attempts, token: u64| Seen {
        attempts,
        result: Some(format!("result {token}")),
        status: Some(200),
        ..seen(job)
    };
    story.seen_as(result(1, 1, 5)).seen_as(result(2, 2, 8)).seen_as(result(3, 2, 10));
}

/// Handlers, a kill, a stop past the lease, a follower, emits.
fn handled(story: &mut Story) {
    story.add_as(11, Form { then: Some("t".into()), ..plain() });
    story.began("d1/c", 11, 1).fault(FaultKind::Kill, "d1", 100);
    story.event(Event::Daemon { daemon: "d1".into(), what: DaemonEvent::Ready });
    story.wait(LEASE_MS).began("d2/c", 11, 2).ended_with("d2/c", 11, 200, 1);
    story.seen(11, State::Finished);
    story.seen_from(12, State::Queued, Origin::Then { of: JobId(11) });
    story.seen_from(13, State::Queued, Origin::Emit { of: JobId(11), index: 0 });
    story.add(14).began("d1/e", 14, 1).fault(FaultKind::Stop, "d1", 2 * LEASE_MS);
    story.began("d2/c", 14, 2).ended("d1/e", 14, 200).ended("d2/c", 14, 200);
    story.seen(14, State::Finished);
    story.add(15).fault_on(FaultKind::PowerCut, Target::All, 100).wait(LEASE_MS);
    story.run("d1/f", 15, 1, 503).run("d1/f", 15, 2, 200).seen(15, State::Finished);
}

/// Idempotency keys, unique keys, lost answers, invalid requests.
fn keys(story: &mut Story) {
    let keyed = || add(70, 1, Some("k"), plain());
    story.request(keyed(), unknown()).request(keyed(), ids(&[21])).request(keyed(), ids(&[21]));
    story.run("d1/c", 21, 1, 200);
    story.seen_from(21, State::Finished, Origin::Add { mark: 70, index: 0 });
    let unique = || Form { unique: Some("u".into()), ..plain() };
    story.add_as(22, unique()).request(add(72, 1, None, unique()), ids(&[22]));
    story.run("d1/c", 22, 1, 200).seen(22, State::Finished);
    story.add_as(23, unique()).run("d1/c", 23, 1, 400).request(retry(23), unknown());
    story.run("d1/c", 23, 1, 200).seen(23, State::Finished);
    let (tenant, type_name) = ("a".to_owned(), "t".to_owned());
    let invalid = Operation::Invalid { tenant, type_name, flaw: Flaw::Repeat };
    story.request(invalid, refused()).request(add(73, 1, None, plain()), refused());
}

/// Cancels, retries, deletes, repeats, limits, Bedrock.
fn changes(story: &mut Story) {
    story.add(31).request(cancel(31), done()).seen(31, State::Cancelled);
    story.add(32).run("d1/c", 32, 1, 200).request(delete(32), done());
    let repeat = Some("FINISHED, +1 SECONDS".into());
    story.add_as(33, Form { repeat, ..plain() });
    (0..3).for_each(|_| {
        story.run("d1/c", 33, 1, 200).wait(1000);
    });
    story.seen(33, State::Queued);
    story.request(limits(Some(1), Some(5.0)), done()).add(34).wait(200);
    story.run("d1/c", 34, 1, 200).wait(300).seen(34, State::Finished);
    story.request(limits(None, None), done());
    story.add(35);
    let op = story.send("b", Operation::GetJob { tenant: "a".into(), types: vec!["t".into()] });
    let job = Claimed { token: None, ..claimed(35, "t", 0) };
    story.answer(op, Answer::Done(Outcome::Jobs(vec![job])));
    story.request(cancel(35), refused());
    let finish = Operation::FinishJob { tenant: "a".into(), job: JobId(35), data: None };
    story.request(finish, done()).seen(35, State::Finished);
    story.add(36).request(claim_of(&["t"]), unknown()).request(cancel(36), done());
    story.seen(36, State::Cancelled);
}

/// A parent waits for its child and runs again.
fn family(story: &mut Story) {
    story.add(41).claim("w", 41, 50).add_as(42, Form { parent: Some(JobId(41)), ..plain() });
    story.finish(41, 50, 200).claim("w", 42, 51).finish(42, 51, 200);
    story.claim("w", 41, 52).finish(41, 52, 200).seen(41, State::Finished);
    story.seen_as(Seen { parent: Some(JobId(41)), ..seen(42) });
}

#[test]
fn every_rule_has_its_own_name_and_a_promise() {
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
    assert!(RULES.iter().all(|rule| rule.promise.ends_with('.')));
}

#[test]
fn the_same_history_gives_the_same_verdict() {
    let verdict = || {
        let mut story = Story::new();
        (1..50).for_each(|job| {
            story.add(job);
        });
        story.report().to_string()
    };
    assert_eq!(verdict(), verdict());
    assert!(verdict().contains("lost: 49 violations"));
    assert_eq!(Story::new().broken(), NONE);
}

#[test]
fn a_history_in_files_is_checked_with_the_places_of_its_events() {
    let mut recorder = Recorder::new(Vec::new());
    let what = add(1, 1, None, plain());
    let sent = Event::Sent { op: 1, who: "x".into(), via: None, what };
    recorder.record(5, &sent).unwrap();
    recorder.record(9, &Event::Answered { op: 1, answer: ids(&[1]) }).unwrap();
    let mut client = recorder.into_inner();
    client.extend(b"{\"at\":12,");
    let listing = b"{\"at\":20,\"event\":{\"listed\":{\"tenant\":\"a\"}}}\n".to_vec();
    let files = [("client", client), ("listing", listing)].map(|(name, text)| {
        let input: Box<dyn BufRead> = Box::new(Cursor::new(text));
        (name.to_owned(), input)
    });
    let mut history = Merge::new(files).unwrap();
    let report = check(&mut history, &Terms::default()).unwrap();
    assert_eq!(report.coverage.torn_files, 1);
    assert!(report.to_string().contains("(client:2)"), "{report}");
}
