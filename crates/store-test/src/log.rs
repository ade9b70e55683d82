//! Logs of attempts, results, and the progress of running attempts.

use windlass_core::job::{Progress, Token};
use windlass_core::limit::{LOG_ATTEMPTS_MAX, LOG_BYTES_MAX, RESULT_BYTES_MAX};
use windlass_core::log::Stream;
use windlass_core::store::{AttemptLog, LeaseRef, Settled, Settlement};
use windlass_core::{Json, Log, State};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, everything_of, id, job, job_of, lease_ref,
    release, said, settlement,
};

async fn logs(store: &Subject, number: i64) -> Vec<AttemptLog> {
    store.job_log(&acme(), id(number)).await.unwrap().expect("the job is there")
}

pub async fn every_attempt_has_its_log(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    assert_eq!(logs(&store, 1).await, []);
    let mut mixed = said("first\nline");
    mixed.push(Stream::Err, "e wrong");
    mixed.note("exit code 1");
    let texts = [mixed, Log::new(), said("third \u{1F600}")];
    for (log, second) in texts.clone().into_iter().zip([10, 20, 30]) {
        let claimed = store.claim_one("t", after(second)).await;
        let end = Settlement { log, ..settlement(&claimed, again(NOW)) };
        store.at(after(second + 1)).settle(end).await;
    }
    let [first, _, third] = texts;
    let log = |attempt, ended_at, log| AttemptLog { attempt, ended_at, log };
    let expected = [log(1, after(11), first), log(3, after(31), third)];
    assert_eq!(logs(&store, 1).await, expected, "an empty log is not kept");
}

pub async fn the_newest_logs_are_kept(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let last = LOG_ATTEMPTS_MAX + 3;
    for attempt in 1..=last {
        let claimed = store.claim_one("t", after(attempt.into())).await;
        let log = said(&format!("attempt {attempt}"));
        store.settle(Settlement { log, ..settlement(&claimed, again(NOW)) }).await;
    }
    let kept = logs(&store, 1).await;
    let attempts: Vec<u32> = kept.iter().map(|log| log.attempt).collect();
    assert_eq!(attempts, (4..=last).collect::<Vec<_>>());
    assert_eq!(kept[0].log, said("attempt 4"));
}

pub async fn a_long_log_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let log = said(&"ü\0\n".repeat(LOG_BYTES_MAX / 8));
    store.settle(Settlement { log: log.clone(), ..settlement(&claimed, FAILED) }).await;
    assert!(logs(&store, 1).await[0].log == log);
}

pub async fn an_unknown_job_has_no_log(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), None);
    assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), None);
}

pub async fn s0_61_the_newest_result_counts(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let result = async || store.job_result(&acme(), id(1)).await.unwrap();
    assert_eq!(result().await, None);
    let steps = [(None, None), (Some("a"), Some("a")), (None, Some("a")), (Some("b"), Some("b"))];
    for ((given, expected), second) in steps.into_iter().zip(1..) {
        let claimed = store.claim_one("t", after(second)).await;
        let data = given.map(Json::string);
        store.settle(Settlement { data, ..settlement(&claimed, again(NOW)) }).await;
        assert_eq!(result().await, expected.map(Json::string), "step {second}");
    }
    let claimed = store.claim_one("t", after(9)).await;
    let text = r#"{ "a" : [1.0, 1e400, "\u0000ü"], "a": null }"#;
    let data = Some(Json::parse(text.to_owned()).unwrap());
    store.settle(Settlement { data: data.clone(), ..settlement(&claimed, FINISHED) }).await;
    assert_eq!(result().await, data, "the text is kept as it was given");
    assert_eq!(result().await.expect("a result").as_str(), text);
}

pub async fn s0_61_every_json_value_is_a_result(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let number = "-12345678901234567890.00100e+3";
    let values = ["null", "false", "0", "\"\"", "[]", "{}", number, "\"\\ud800\"", &deep];
    for (value, number) in values.into_iter().zip(1..) {
        let name = format!("t{number}");
        store.add([job_of(&name, number)]).await;
        let claimed = store.claim_one(&name, NOW).await;
        let data = Some(Json::parse(value.to_owned()).unwrap());
        store.settle(Settlement { data: data.clone(), ..settlement(&claimed, FINISHED) }).await;
        assert_eq!(store.job_result(&acme(), id(number)).await.unwrap(), data);
    }
}

pub async fn a_large_result_comes_back(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let data = Some(Json::string(&"x".repeat(RESULT_BYTES_MAX - 2)));
    store.settle(Settlement { data: data.clone(), ..settlement(&claimed, FINISHED) }).await;
    assert!(store.job_result(&acme(), id(1)).await.unwrap() == data);
}

fn progress(percent: f64) -> Progress {
    Progress { percent, message: format!("{percent} of it \u{1F600}"), at: after(2) }
}

pub async fn a_running_job_says_how_far_it_has_come(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    assert_eq!(store.get(1).await.progress, None);
    for percent in [0.0, 12.5, 100.0] {
        let said =
            store.job_progress(vec![(lease_ref(&claimed), progress(percent))]).await.unwrap()[0];
        assert_eq!(said, Settled::Done);
        assert_eq!(store.get(1).await.progress, Some(progress(percent)));
    }
    let listed = store.listed(everything_of(acme())).await;
    assert_eq!(listed[0].progress, None, "a list does not show it");
    assert_eq!(listed[0], claimed.job);
}

pub async fn progress_is_shown_until_the_next_claim(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.job_progress(vec![(lease_ref(&claimed), progress(50.0))]).await.unwrap();
    store.settle(settlement(&claimed, again(after(5)))).await;
    assert_eq!(store.get(1).await.progress, Some(progress(50.0)));
    store.claim_one("t", after(5)).await;
    assert_eq!(store.get(1).await.progress, None);
}

pub async fn progress_is_shown_until_a_rerun(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.job_progress(vec![(lease_ref(&claimed), progress(99.0))]).await.unwrap();
    store.settle(settlement(&claimed, FINISHED)).await;
    let seen = store.get(1).await;
    assert_eq!((seen.state, seen.progress), (State::Finished, Some(progress(99.0))));
    store.rerun(1, after(5)).await;
    assert_eq!(store.get(1).await.progress, None);
}

pub async fn the_last_progress_comes_with_the_verdict(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    store.job_progress(vec![(lease_ref(&claimed), progress(50.0))]).await.unwrap();
    let end = Settlement { progress: Some(progress(75.0)), ..settlement(&claimed, again(NOW)) };
    assert_eq!(store.settle(end.clone()).await, Settled::Done);
    assert_eq!(store.get(1).await.progress, Some(progress(75.0)));
    let claimed = store.claim_one("t", after(5)).await;
    assert_eq!(store.settle(end).await, Settled::Stale);
    assert_eq!(store.get(1).await.progress, None, "not that of an earlier attempt");
    let end = Settlement { progress: Some(progress(99.5)), ..settlement(&claimed, FINISHED) };
    assert_eq!(store.settle(end).await, Settled::Done);
    assert_eq!(store.get(1).await.progress, Some(progress(99.5)));
}

pub async fn s0_50_only_the_owner_says_how_far_a_job_has_come(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let claimed = store.claim_one("t", NOW).await;
    let right = lease_ref(&claimed);
    let wrong = LeaseRef { token: Token(right.token.0 + 1), ..right.clone() };
    let say = async |lease| store.job_progress(vec![(lease, progress(1.0))]).await.unwrap()[0];
    assert_eq!(say(wrong).await, Settled::Stale);
    assert_eq!(say(LeaseRef { id: id(2), ..right.clone() }).await, Settled::Stale);
    assert_eq!(store.get(1).await.progress, None);
    store.settle(settlement(&claimed, release(NOW))).await;
    assert_eq!(say(right).await, Settled::Stale);
    assert_eq!(store.get(1).await.progress, None);
}

pub async fn progress_of_many_is_answered_in_order(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2), job(3)]).await;
    let claimed = store.claim("t", 3, NOW).await;
    store.settle(settlement(&claimed[1], FINISHED)).await;
    let said = claimed.iter().zip([10.0, 20.0, 30.0]);
    let said = said.map(|(claimed, percent)| (lease_ref(claimed), progress(percent))).collect();
    let answers = store.job_progress(said).await.unwrap();
    assert_eq!(answers, [Settled::Done, Settled::Stale, Settled::Done]);
    for (number, expected) in [(1, Some(progress(10.0))), (2, None), (3, Some(progress(30.0)))] {
        assert_eq!(store.get(number).await.progress, expected);
    }
    assert_eq!(store.job_progress(Vec::new()).await.unwrap(), []);
}
