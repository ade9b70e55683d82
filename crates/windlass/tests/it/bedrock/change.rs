//! Commands that show or change a job: QueryJob, UpdateJob, FailJob, CancelJob, DeleteJob,
//! RequeueJobs, CrashBedrockJob and ClearCrashedBedrockJobs.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{Door, JobId, Link, keys_of, sqlite_text};

const UNKNOWN: &str = "404 No job with this jobID";
const LATER: &str = "2999-01-01 00:00:00";

#[track_caller]
fn running(door: &Door, name: &str) -> JobId {
    let id = door.named(name);
    door.take(id, name);
    id
}

/// A waiting parent and its queued children.
fn family(door: &Door, children: &[&str]) -> (JobId, Vec<JobId>) {
    let parent = running(door, "p");
    let children = children.iter().map(|name| door.child(parent, name)).collect();
    door.about("FinishJob", parent).done();
    (parent, children)
}

#[track_caller]
fn requeue(door: &Door, ids: &str, more: &[(&str, &str)]) {
    let mut headers = vec![("jobIDs", ids)];
    headers.extend_from_slice(more);
    door.call("RequeueJobs", &headers).done();
}

#[test]
fn an_id_is_needed_and_must_be_known() {
    let door = Door::start();
    for verb in ["QueryJob", "UpdateJob", "FailJob", "CancelJob", "DeleteJob"] {
        let with = |id| [("jobID", id), ("data", "{}")];
        door.call(verb, &[("data", "{}")]).fails("402 Missing jobID");
        door.call(verb, &with("")).fails("402 Missing jobID");
        for bad in ["1a", "01", "+1", "a", "1.0", "9223372036854775808", "-", "0x1"] {
            door.call(verb, &with(bad)).fails("402 Malformed jobID");
        }
        for unknown in ["4711", "0", "-1", "9223372036854775807"] {
            door.call(verb, &with(unknown)).fails(UNKNOWN);
        }
    }
}

#[test]
fn a_query_has_ten_keys() {
    let door = Door::start();
    let id = door.create(&[
        ("name", "n"),
        ("data", "{\"a\": 1}"),
        ("firstRun", LATER),
        ("repeat", "hourly"),
        ("retryAfter", "+1 day"),
    ]);
    let created = door.row(id)["created"].as_str().unwrap().to_owned();
    let reply = door.about("QueryJob", id).ok();
    let wanted = format!(
        "{{\"created\":\"{created}\",\"data\":{{\"a\": 1}},\"jobID\":{id},\"lastRun\":\"\",\
         \"name\":\"n\",\"nextRun\":\"{LATER}\",\"priority\":500,\"repeat\":\"HOURLY\",\
         \"retryAfter\":\"+1 day\",\"state\":\"QUEUED\"}}"
    );
    assert_eq!(reply.text(), wanted);
    assert_eq!(keys_of(&reply.text()).len(), 10);
    assert_eq!(door.about("QueryJob", id).text(), wanted, "looking changes nothing");
}

#[test]
fn a_query_shows_children_and_parents_like_any_job() {
    let door = Door::start();
    let (parent, children) = family(&door, &["c"]);
    door.take(children[0], "c");
    door.about("FinishJob", children[0]).done();
    for (id, state) in [(parent, "QUEUED"), (children[0], "FINISHED")] {
        let reply = door.about("QueryJob", id).ok();
        assert_eq!(keys_of(&reply.text()).len(), 10);
        assert_eq!(reply.json()["state"], state);
    }
}

#[test]
fn an_update_needs_data_of_up_to_a_mebibyte() {
    let door = Door::embedded();
    let id = door.named("n");
    door.about("UpdateJob", id).fails("402 Missing data");
    door.about_with("UpdateJob", id, &[("data", "")]).fails("402 Missing data");
    let of_size = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    let (largest, too_large) = (of_size(1_048_576), of_size(1_048_577));
    door.about_with("UpdateJob", id, &[("data", &too_large)]).fails("402 Malformed data");
    assert_eq!(door.row(id)["data"], "{}");
    door.about_with("UpdateJob", id, &[("data", &largest)]).done();
    assert_eq!(
        door.value(&format!("(SELECT LENGTH(data) FROM jobs WHERE jobID = {id})")),
        1_048_576
    );
}

#[test]
fn the_first_check_of_an_update_that_fails_is_the_answer() {
    let door = Door::start();
    let bad = [("jobID", "x"), ("data", ""), ("repeat", "often"), ("jobPriority", "1")];
    door.call("UpdateJob", &bad).fails("402 Malformed jobID");
    let id = ("jobID", "4711");
    door.call("UpdateJob", &[id, bad[1], bad[2], bad[3]]).fails("402 Missing data");
    let data = ("data", "{}");
    door.call("UpdateJob", &[id, data, bad[2], bad[3]]).fails("402 Malformed repeat");
    door.call("UpdateJob", &[id, data, bad[3]]).fails("402 Invalid priority value");
    door.call("UpdateJob", &[id, data]).fails(UNKNOWN);
}

#[test]
fn an_update_replaces_the_data_and_nothing_else() {
    let door = Door::embedded();
    let id = door.create(&[
        ("name", "n"),
        ("data", "{\"old\":1}"),
        ("repeat", "HOURLY"),
        ("jobPriority", "750"),
        ("firstRun", LATER),
    ]);
    let mut wanted = door.row(id);
    let given = "{ \"b\" : {\"c\": null},  \"a\":\"x y\" }";
    door.about_with("UpdateJob", id, &[("data", given)]).done();
    wanted["data"] = json!("{\"b\":{\"c\":null},\"a\":\"x y\"}");
    assert_eq!(door.row(id), wanted, "written anew, not merged");
    for bad in ["x", "{\"a\":"] {
        door.about_with("UpdateJob", id, &[("data", bad)]).done();
        wanted["data"] = json!("{}");
        assert_eq!(door.row(id), wanted, "what is no JSON is empty");
    }
}

#[test]
fn an_update_is_possible_in_any_state_and_keeps_it() {
    let door = Door::start();
    let queued = door.named("q");
    let ran = running(&door, "r");
    let lent = door.create(&[("name", "l"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "l");
    let failed = running(&door, "f");
    door.about("FailJob", failed).done();
    let (parent, children) = family(&door, &["a", "b", "c"]);
    door.take(children[0], "a");
    door.about("FinishJob", children[0]).done();
    door.about("CancelJob", children[1]).done();
    let all = [
        (queued, "QUEUED"),
        (ran, "RUNNING"),
        (lent, "RUNQUEUED"),
        (failed, "FAILED"),
        (parent, "PAUSED"),
        (children[0], "FINISHED"),
        (children[1], "CANCELLED"),
    ];
    for (id, state) in all {
        door.about_with("UpdateJob", id, &[("data", "{\"new\":1}"), ("jobPriority", "250")]).done();
        let job = door.job(id);
        assert_eq!(job["data"], json!({"new": 1}), "{state}");
        assert_eq!((&job["state"], &job["priority"]), (&json!(state), &json!(250)));
    }
}

#[test]
fn an_update_keeps_a_job_mocked_or_real() {
    let door = Door::start();
    let real = door.named("n");
    door.about_with("UpdateJob", real, &[("data", "{\"mockRequest\":true,\"a\":1}")]).done();
    assert_eq!(door.job(real)["data"], json!({"a": 1}));
    let mocked = door.create(&[("name", "n"), ("mockRequest", "1")]);
    for data in ["{\"a\":1}", "{\"a\":1,\"mockRequest\":false}"] {
        door.about_with("UpdateJob", mocked, &[("data", data)]).done();
        assert_eq!(door.job(mocked)["data"], json!({"a": 1, "mockRequest": true}));
    }
}

#[test]
fn an_update_sets_or_clears_the_repeat() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("firstRun", LATER)]);
    let update = |more: &[(&str, &str)]| {
        let mut headers = vec![("data", "{}")];
        headers.extend_from_slice(more);
        door.about_with("UpdateJob", id, &headers).done();
        door.row(id)["repeat"].as_str().unwrap().to_owned()
    };
    assert_eq!(update(&[("repeat", "started, +1 hour"), ("nextRun", LATER)]), "STARTED, +1 HOUR");
    assert_eq!(update(&[("repeat", "")]), "STARTED, +1 HOUR", "empty is ignored");
    assert_eq!(update(&[("shouldClearRepeat", "0")]), "STARTED, +1 HOUR");
    assert_eq!(update(&[("shouldClearRepeat", "no")]), "STARTED, +1 HOUR");
    let both = [("shouldClearRepeat", "1"), ("repeat", "DAILY"), ("nextRun", LATER)];
    assert_eq!(update(&both), "");
    let bad = [("data", "{}"), ("repeat", "STARTED")];
    door.about_with("UpdateJob", id, &bad).fails("402 Malformed repeat");
}

#[test]
fn an_update_sets_the_next_run_or_computes_it_from_a_new_repeat() {
    let door = Door::embedded();
    let id = door.create(&[("name", "n"), ("firstRun", "2024-02-03 04:05:06")]);
    let update = |more: &[(&str, &str)]| {
        let mut headers = vec![("data", "{}")];
        headers.extend_from_slice(more);
        door.about_with("UpdateJob", id, &headers).done();
        door.row(id)["nextRun"].as_str().unwrap().to_owned()
    };
    assert_eq!(update(&[]), "2024-02-03 04:05:06");
    assert_eq!(update(&[("repeat", "SCHEDULED, +1 DAY")]), "2024-02-04 04:05:06");
    assert_eq!(update(&[]), "2024-02-04 04:05:06", "an old repeat computes nothing");
    let both = [("repeat", "SCHEDULED, +1 DAY"), ("nextRun", "some day")];
    assert_eq!(update(&both), "some day", "what is given wins");
    door.set(id, "nextRun = '2024-01-01 00:00:00', lastRun = '2024-05-06 07:08:09'");
    assert_eq!(update(&[("repeat", "STARTED, +1 MONTH")]), "2024-06-06 07:08:09");
    let before = sqlite_text("DATETIME('now', '+1 HOUR')");
    let next = update(&[("repeat", "FINISHED, +1 HOUR")]);
    let after = sqlite_text("DATETIME('now', '+1 HOUR')");
    assert!(before <= next && next <= after, "{before} {next} {after}");
}

#[test]
fn a_repeat_from_a_start_that_never_was_keeps_the_next_run() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("firstRun", LATER)]);
    door.about_with("UpdateJob", id, &[("data", "{}"), ("repeat", "STARTED, +1 HOUR")]).done();
    let row = door.row(id);
    assert_eq!((&row["nextRun"], &row["repeat"]), (&json!(LATER), &json!("STARTED, +1 HOUR")));
}

#[test]
fn only_what_runs_can_fail() {
    let door = Door::start();
    let (parent, children) = family(&door, &["a", "b", "c"]);
    door.take(children[0], "a");
    door.about("FinishJob", children[0]).done();
    door.about("CancelJob", children[1]).done();
    let failed = running(&door, "f");
    door.about("FailJob", failed).done();
    for id in [parent, children[0], children[1], children[2], failed] {
        door.about("FailJob", id).fails("405 Can only fail RUNNING or RUNQUEUED jobs");
    }
}

#[test]
fn a_failed_job_stays_and_does_not_repeat() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("repeat", "HOURLY"), ("data", "{\"a\":1}")]);
    door.take(id, "n");
    let mut wanted = door.row(id);
    door.about("FailJob", id).done();
    wanted["state"] = json!("FAILED");
    assert_eq!(door.row(id), wanted);
    door.no_job("n");
    let lent = door.create(&[("name", "l"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "l");
    door.about_with("FailJob", lent, &[("data", "{\"why\":\"x\"}")]).done();
    let job = door.job(lent);
    assert_eq!((&job["state"], &job["data"]), (&json!("FAILED"), &json!({"why": "x"})));
    door.set_next_run(lent, "2024-01-01");
    door.no_job("l");
}

#[test]
fn a_failure_with_empty_data_keeps_the_data() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("data", "{\"a\":1}")]);
    door.take(id, "n");
    door.about_with("FailJob", id, &[("data", "")]).done();
    let job = door.job(id);
    assert_eq!((&job["state"], &job["data"]), (&json!("FAILED"), &json!({"a": 1})));
}

#[test]
fn a_failed_child_does_not_resume_its_parent() {
    let door = Door::start();
    let (parent, children) = family(&door, &["c"]);
    door.take(children[0], "c");
    door.about("FailJob", children[0]).done();
    door.assert_states(&[(parent, "PAUSED"), (children[0], "FAILED")]);
    requeue(&door, &children[0].to_string(), &[]);
    door.take(children[0], "c");
    door.about("FinishJob", children[0]).done();
    assert_eq!(door.state(parent), "QUEUED");
}

#[test]
fn a_cancel_needs_a_child_without_children() {
    let door = Door::start();
    let lone = door.named("n");
    door.about("CancelJob", lone).fails("404 Invalid jobID - Cannot cancel a job without a parent");
    let (parent, children) = family(&door, &["c"]);
    let has_children = "404 Invalid jobID - Cannot cancel a job with children";
    door.about("CancelJob", parent).fails(has_children);
    door.take(children[0], "c");
    door.about("FinishJob", children[0]).done();
    door.about("CancelJob", parent).fails(has_children);
    door.assert_states(&[(lone, "QUEUED"), (parent, "QUEUED"), (children[0], "FINISHED")]);
}

#[test]
fn a_cancel_of_what_runs_waits_or_is_done_changes_nothing() {
    let door = Door::start();
    let parent = running(&door, "p");
    let paused = door.child(parent, "c");
    door.about("CancelJob", paused).done();
    assert_eq!(door.state(paused), "PAUSED");
    door.about("FinishJob", parent).done();
    door.take(paused, "c");
    door.about("CancelJob", paused).done();
    door.assert_states(&[(parent, "PAUSED"), (paused, "RUNNING")]);
    door.about("FinishJob", paused).done();
    door.about("CancelJob", paused).done();
    assert_eq!(door.state(paused), "FINISHED");
}

#[test]
fn a_cancel_of_the_last_child_resumes_the_parent() {
    let door = Door::embedded();
    let (parent, children) = family(&door, &["queued", "lent", "failed", "done"]);
    door.set(children[1], "retryAfter = '+1 HOUR'");
    for (child, name) in children.iter().zip(["queued", "lent", "failed", "done"]).skip(1) {
        door.take(*child, name);
    }
    door.about("FailJob", children[2]).done();
    door.about("FinishJob", children[3]).done();
    let before = door.row(parent)["nextRun"].clone();
    for (n, left) in [(2, "PAUSED"), (0, "PAUSED"), (1, "QUEUED")] {
        door.about("CancelJob", children[n]).done();
        door.assert_states(&[(children[n], "CANCELLED"), (parent, left)]);
    }
    assert_eq!(door.row(parent)["nextRun"], before);
    door.about("CancelJob", children[0]).done();
    assert_eq!(door.state(children[0]), "CANCELLED", "a second cancel is no error");
}

#[test]
fn a_cancel_of_the_last_child_leaves_a_failed_parent_failed() {
    let door = Door::start();
    let (parent, children) = family(&door, &["c"]);
    requeue(&door, &parent.to_string(), &[]);
    door.take(parent, "p");
    door.about("FailJob", parent).done();
    door.about("CancelJob", children[0]).done();
    door.assert_states(&[(parent, "FAILED"), (children[0], "CANCELLED")]);
}

#[test]
fn a_cancelled_child_does_not_run() {
    let door = Door::start();
    let (_, children) = family(&door, &["a", "b"]);
    door.about("CancelJob", children[0]).done();
    door.no_job("a");
    door.take(children[1], "b");
}

#[test]
fn a_cancel_with_more_in_its_method_line_does_nothing() {
    let door = Door::start();
    let (parent, children) = family(&door, &["c"]);
    let id = children[0].to_string();
    door.call("CancelJob / HTTP/1.1", &[("jobID", &id)]).done();
    door.call("CancelJob / HTTP/1.1", &[]).done();
    door.assert_states(&[(parent, "PAUSED"), (children[0], "QUEUED")]);
    door.call("canceljob", &[("jobID", &id)]).done();
    door.assert_states(&[(parent, "QUEUED"), (children[0], "CANCELLED")]);
}

#[test]
fn what_runs_or_waits_cannot_be_deleted() {
    let door = Door::start();
    let id = running(&door, "n");
    door.about("DeleteJob", id).fails("405 Can't delete a RUNNING job");
    let parent = running(&door, "p");
    let child = door.child(parent, "c");
    let waits = "405 Can't delete a parent jobs with children running";
    door.about("DeleteJob", child).fails(waits);
    door.about("FinishJob", parent).done();
    door.about("DeleteJob", parent).fails(waits);
    door.assert_states(&[(id, "RUNNING"), (parent, "PAUSED"), (child, "QUEUED")]);
}

#[test]
fn anything_else_can_be_deleted() {
    let door = Door::start();
    let queued = door.named("q");
    let lent = door.create(&[("name", "l"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "l");
    let failed = running(&door, "f");
    door.about("FailJob", failed).done();
    let (_, children) = family(&door, &["a", "b", "c"]);
    door.take(children[0], "a");
    door.about("FinishJob", children[0]).done();
    door.about("CancelJob", children[1]).done();
    for id in [queued, lent, failed, children[0], children[1]] {
        door.about("DeleteJob", id).done();
        door.assert_gone(id);
        door.about("DeleteJob", id).fails(UNKNOWN);
    }
    door.set_next_run(children[2], "2024-01-01");
    door.take(children[2], "c");
}

#[test]
fn a_delete_does_not_touch_the_children() {
    let door = Door::start();
    let (parent, children) = family(&door, &["a", "b"]);
    door.take(children[0], "a");
    requeue(&door, &parent.to_string(), &[]);
    door.about("DeleteJob", parent).done();
    door.assert_gone(parent);
    door.assert_states(&[(children[0], "RUNNING"), (children[1], "QUEUED")]);
}

#[test]
fn requeued_jobs_are_queued_from_any_state() {
    let door = Door::start();
    let queued = door.create(&[("name", "q"), ("firstRun", LATER)]);
    let ran = running(&door, "r");
    let lent = door.create(&[("name", "l"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "l");
    let failed = running(&door, "f");
    door.about("FailJob", failed).done();
    let (parent, children) = family(&door, &["a", "b"]);
    door.take(children[0], "a");
    door.about("FinishJob", children[0]).done();
    door.about("CancelJob", children[1]).done();
    let paused = running(&door, "p2");
    let child = door.child(paused, "c");
    let all = [queued, ran, lent, failed, parent, children[0], children[1], child];
    let list: Vec<String> = all.iter().map(ToString::to_string).collect();
    requeue(&door, &list.join(", "), &[]);
    for id in all {
        let row = door.row(id);
        assert_eq!((&row["state"], &row["nextRun"]), (&json!("QUEUED"), &row["created"]), "{row}");
    }
    door.take(lent, "l");
}

#[test]
fn a_requeue_of_nothing_is_no_error() {
    let door = Door::start();
    let id = running(&door, "n");
    door.call("RequeueJobs", &[]).done();
    for nothing in ["", ",", "4711", "4711,0", " ,  ,"] {
        requeue(&door, nothing, &[]);
    }
    assert_eq!(door.state(id), "RUNNING");
    requeue(&door, &format!("4711,{id}"), &[]);
    assert_eq!(door.state(id), "QUEUED");
}

#[test]
fn a_requeue_may_rename_all() {
    let door = Door::start();
    let (a, b) = (running(&door, "a"), running(&door, "b"));
    requeue(&door, &format!("{a},{b}"), &[("name", "")]);
    assert_eq!((&door.job(a)["name"], &door.job(b)["name"]), (&json!("a"), &json!("b")));
    requeue(&door, &format!("{a},{b}"), &[("name", "new")]);
    assert_eq!((&door.job(a)["name"], &door.job(b)["name"]), (&json!("new"), &json!("new")));
    assert_eq!(door.get_jobs("new", 5).len(), 2);
    door.no_job("a");
}

#[test]
fn a_requeue_may_take_a_failure_back() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("retryAfter", "+1 HOUR"), ("data", "{\"a\":1}")]);
    let list = id.to_string();
    door.take(id, "n");
    let count = || door.job(id)["data"]["retryAfterCount"].clone();
    requeue(&door, &list, &[]);
    assert_eq!(count(), 1, "only if asked");
    for no in ["false", "0", ""] {
        requeue(&door, &list, &[("decrementFailures", no)]);
        assert_eq!(count(), 1, "{no:?}");
    }
    requeue(&door, &list, &[("decrementFailures", "true")]);
    assert_eq!(count(), 0);
    let other = running(&door, "m");
    let twice = format!("{other}, {other}");
    requeue(&door, &twice, &[("decrementFailures", "1")]);
    assert_eq!(door.job(other)["data"], json!({"retryAfterCount": 0}), "none counts as one");
    assert_eq!(door.state(other), "QUEUED", "and an id that is there twice counts once");
}

#[test]
fn a_crashed_name_fails_its_jobs_and_gives_none() {
    let door = Door::start();
    door.call("CrashBedrockJob", &[("names", "bad*, worse")]).done();
    let (bad, worse, good) = (door.named("bad/one"), door.named("worse"), door.named("good"));
    for name in ["bad*", "worse"] {
        assert_eq!(door.call("GetJob", &[("name", name)]).ok().text(), "{}");
    }
    door.assert_states(&[(bad, "FAILED"), (worse, "FAILED")]);
    door.take(good, "*");
    door.call("ClearCrashedBedrockJobs", &[]).done();
    let again = door.named("bad/one");
    door.take(again, "bad*");
    assert_eq!(door.state(bad), "FAILED", "what has failed stays so");
}

#[test]
fn a_crashed_job_takes_one_of_the_places() {
    let door = Door::start();
    door.call("CrashBedrockJob", &[("names", "a")]).done();
    let bad = door.create(&[("name", "a"), ("firstRun", "2024-01-01")]);
    let good = door.create(&[("name", "b"), ("firstRun", "2024-01-02")]);
    let rest = door.create(&[("name", "b"), ("firstRun", "2024-01-03")]);
    let jobs = door.get_jobs("*", 2);
    assert_eq!(jobs.iter().map(|job| job["jobID"].clone()).collect::<Vec<_>>(), [json!(good)]);
    door.assert_states(&[(bad, "FAILED"), (good, "RUNNING"), (rest, "QUEUED")]);
    let bad = door.named("a");
    let headers = [("name", "a"), ("numResults", "3")];
    assert_eq!(door.call("GetJobs", &headers).ok().text(), "{\"jobs\":[]}");
    assert_eq!(door.state(bad), "FAILED");
}

#[test]
fn crashed_names_add_up_and_are_shown_by_status() {
    let door = Door::start();
    for names in ["first*", "second,third"] {
        door.call("CrashBedrockJob", &[("names", names)]).done();
    }
    let status = door.call("Status", &[]).ok().text();
    for name in ["first*", "second", "third"] {
        assert!(status.contains(&format!("\"{name}\"")), "{name} in {status}");
        let id = door.named(name.trim_end_matches('*'));
        door.get(name.trim_end_matches('*'));
        assert_eq!(door.state(id), "FAILED");
    }
    door.call("ClearCrashedBedrockJobs", &[]).done();
    assert!(!door.call("Status", &[]).ok().text().contains("first*"));
}

/// All of 127.0.0.0/8 is this machine, but only one address may crash jobs.
#[test]
fn only_the_local_address_may_crash_jobs() {
    let door = Door::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        socket.connect(door.address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    let mut link = Link::over(stream).unwrap();
    link.call("CrashBedrockJob", &[("names", "n")]).fails("401 Unauthorized");
    link.call("ClearCrashedBedrockJobs", &[]).fails("401 Unauthorized");
    link.call("Ping", &[]).ok();
    let id = door.named("n");
    door.take(id, "n");
}

#[test]
fn replies_of_changes_have_no_body() {
    let door = Door::start();
    let id = running(&door, "n");
    let other = running(&door, "n");
    let (_, children) = family(&door, &["c", "d"]);
    let call = |verb: &str, id: JobId| {
        door.about_with(verb, id, &[("data", "{}"), ("jobIDs", "1"), ("names", "x")])
    };
    let calls = [
        ("UpdateJob", id),
        ("RetryJob", id),
        ("FailJob", other),
        ("CancelJob", children[0]),
        ("DeleteJob", other),
        ("RequeueJobs", id),
        ("CrashBedrockJob", id),
        ("ClearCrashedBedrockJobs", id),
    ];
    for (verb, id) in calls {
        let reply = call(verb, id);
        assert_eq!(reply.header("Content-Length"), Some("0"), "{verb}");
        reply.done();
    }
    door.take(id, "n");
    assert_eq!(call("FinishJob", id).header("Content-Length"), Some("0"));
    assert_ne!(door.job(children[1])["state"], Value::Null);
}
