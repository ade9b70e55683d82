//! FinishJob and RetryJob over Bedrock: what they refuse, what happens to a job, when it runs next.

use serde_json::{Value, json};

use crate::harness::{Door, JobId, sqlite_text};

const BOTH: [&str; 2] = ["FinishJob", "RetryJob"];
const NOT_RUNNING: &str = "405 Can only retry/finish RUNNING and RUNQUEUED jobs";
const PARENT_NOT_PAUSED: &str = "405 Can only retry/finish child job when parent is PAUSED";
const LATER: &str = "2999-01-01 00:00:00";

/// A job created with these headers and claimed.
#[track_caller]
fn running(door: &Door, headers: &[(&str, &str)]) -> JobId {
    let id = door.create(headers);
    let name = headers.iter().find(|(key, _)| *key == "name").unwrap().1;
    door.take(id, name);
    id
}

#[track_caller]
fn data(door: &Door, id: JobId) -> String {
    door.row(id)["data"].as_str().unwrap().to_owned()
}

/// A time of the job is between two moments, in seconds.
#[track_caller]
fn between(before: &str, time: &Value, after: &str) {
    let time = &time.as_str().unwrap()[..19];
    assert!(before <= time && time <= after, "{before} {time} {after}");
}

#[test]
fn an_id_is_needed_and_must_be_known() {
    let door = Door::start();
    for verb in BOTH {
        door.call(verb, &[]).fails("402 Missing jobID");
        door.call(verb, &[("jobID", "")]).fails("402 Missing jobID");
        for bad in ["1a", "01", "+1", "a", "1.0", "9223372036854775808", "0x1", "1 2"] {
            door.call(verb, &[("jobID", bad)]).fails("402 Malformed jobID");
        }
        for unknown in ["4711", "0", "-1"] {
            door.call(verb, &[("jobID", unknown)]).fails("404 No job with this jobID");
        }
    }
}

#[test]
fn only_what_runs_can_be_finished_or_retried() {
    let door = Door::start();
    let queued = door.named("queued");
    let failed = running(&door, &[("name", "failed")]);
    door.about("FailJob", failed).done();
    let paused = running(&door, &[("name", "paused")]);
    let (child, other) = (door.child(paused, "child"), door.child(paused, "other"));
    for verb in BOTH {
        door.about(verb, child).fails(NOT_RUNNING);
    }
    door.about("FinishJob", paused).done();
    door.about("CancelJob", other).done();
    door.take(child, "child");
    door.child(paused, "rest");
    door.about("FinishJob", child).done();
    let all = [
        (queued, "QUEUED"),
        (failed, "FAILED"),
        (paused, "PAUSED"),
        (child, "FINISHED"),
        (other, "CANCELLED"),
    ];
    for verb in BOTH {
        for (id, _) in all {
            door.about(verb, id).fails(NOT_RUNNING);
        }
    }
    door.assert_states(&all);
}

#[test]
fn a_finished_job_is_gone() {
    let door = Door::start();
    let id = running(&door, &[("name", "n")]);
    door.about("FinishJob", id).done();
    door.assert_gone(id);
    for verb in BOTH {
        door.about(verb, id).fails("404 No job with this jobID");
    }
    assert_eq!(door.count(), 0);
    door.no_job("n");
}

#[test]
fn a_lent_job_is_finished_too() {
    let door = Door::start();
    let id = running(&door, &[("name", "n"), ("retryAfter", "+1 HOUR")]);
    assert_eq!(door.state(id), "RUNQUEUED");
    door.about("FinishJob", id).done();
    door.assert_gone(id);
}

#[test]
fn a_mocked_job_may_be_finished_before_it_runs() {
    let door = Door::start();
    for verb in BOTH {
        let id = door.create(&[("name", "n"), ("mockRequest", "1")]);
        door.about(verb, id).done();
        if verb == "FinishJob" {
            door.assert_gone(id);
        } else {
            assert_eq!(door.state(id), "QUEUED");
        }
    }
}

#[test]
fn a_child_ends_only_while_its_parent_waits() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p")]);
    let child = door.child(parent, "c");
    door.about("FinishJob", parent).done();
    door.take(child, "c");
    door.call("RequeueJobs", &[("jobIDs", &parent.to_string())]).done();
    for verb in BOTH {
        door.about(verb, child).fails(PARENT_NOT_PAUSED);
    }
    door.take(parent, "p");
    for verb in BOTH {
        door.about(verb, child).fails(PARENT_NOT_PAUSED);
    }
    door.assert_states(&[(parent, "RUNNING"), (child, "RUNNING")]);
    door.about("FinishJob", parent).done();
    door.assert_states(&[(parent, "PAUSED"), (child, "RUNNING")]);
    door.about("FinishJob", child).done();
    door.assert_states(&[(parent, "QUEUED"), (child, "FINISHED")]);
}

#[test]
fn data_that_is_mocked_must_match_the_job() {
    let door = Door::start();
    for verb in BOTH {
        let real = running(&door, &[("name", "real"), ("data", "{\"a\":1}")]);
        let mocked = door.create(&[("name", "mocked"), ("mockRequest", "1")]);
        let with = [("data", "{\"mockRequest\":true}")];
        door.about_with(verb, real, &with).fails("500 Mock Mismatch");
        door.about_with(verb, mocked, &[("data", "{\"b\":1}")]).fails("500 Mock Mismatch");
        assert_eq!(data(&door, real), "{\"a\":1}");
        assert_eq!(data(&door, mocked), "{\"mockRequest\":true}");
        door.about_with(verb, mocked, &with).done();
        door.about_with(verb, real, &[("data", "")]).done();
    }
}

#[test]
fn data_is_replaced_and_written_anew() {
    let door = Door::embedded();
    for verb in BOTH {
        let id = running(&door, &[("name", "n"), ("repeat", "HOURLY"), ("data", "{\"old\":1}")]);
        let given = [("data", "{ \"b\" : [1, 2],  \"a\": \"x y\" }")];
        door.about_with(verb, id, &given).done();
        assert_eq!(data(&door, id), "{\"b\":[1,2],\"a\":\"x y\"}");
        door.set(id, "nextRun = '2024-01-01'");
        door.take(id, "n");
        door.about(verb, id).done();
        assert_eq!(data(&door, id), "{\"b\":[1,2],\"a\":\"x y\"}", "kept without the header");
        door.about("DeleteJob", id).done();
    }
}

#[test]
fn data_that_is_no_json_is_refused_and_nothing_changes() {
    let door = Door::start();
    for verb in BOTH {
        let id = running(&door, &[("name", "n"), ("data", "{\"a\":1}")]);
        let before = door.row(id);
        for bad in ["{\"a\":", "x"] {
            door.about_with(verb, id, &[("data", bad)])
                .fails("502 Failed to update job retryAfterCount");
        }
        assert_eq!(door.row(id), before);
        door.about("FinishJob", id).done();
    }
}

#[test]
fn data_that_is_json_but_no_object_is_taken_as_it_is() {
    let door = Door::embedded();
    for verb in BOTH {
        for (given, stored) in [("[]", "[]"), ("[1, 2]", "[1,2]"), ("null", "null"), ("5", "5")] {
            let headers = [("name", "n"), ("repeat", "HOURLY"), ("data", "{\"a\":1}")];
            let id = running(&door, &headers);
            door.about_with(verb, id, &[("data", given)]).done();
            assert_eq!((door.state(id).as_str(), data(&door, id).as_str()), ("QUEUED", stored));
            door.about("DeleteJob", id).done();
        }
        let id = running(&door, &[("name", "n"), ("repeat", "HOURLY")]);
        door.about_with(verb, id, &[("data", "\"s\"")]).done();
        assert_eq!(data(&door, id), "\"s\"");
        door.set(id, "nextRun = '2024-01-01'");
        assert_eq!(door.take(id, "n")["data"], "\"s\"", "and is handed out again");
        door.about("FinishJob", id).done();
        door.about("DeleteJob", id).done();
        let mocked = door.create(&[("name", "mocked"), ("mockRequest", "1")]);
        door.about_with(verb, mocked, &[("data", "[]")]).fails("500 Mock Mismatch");
    }
    let plain = running(&door, &[("name", "plain")]);
    door.about_with("FinishJob", plain, &[("data", "[]")]).done();
    door.assert_gone(plain);
}

#[test]
fn the_count_of_retries_is_removed_and_the_original_time_stays() {
    let door = Door::start();
    for verb in BOTH {
        let headers = [
            ("name", "n"),
            ("retryAfter", "+1 HOUR"),
            ("repeat", "SCHEDULED, +1 DAY"),
            ("firstRun", "2024-03-04 05:06:07"),
            ("data", "{\"a\": 1}"),
        ];
        let id = running(&door, &headers);
        assert_eq!(door.job(id)["data"]["retryAfterCount"], 1);
        door.about(verb, id).done();
        let row = door.row(id);
        assert_eq!(row["data"], "{\"a\":1,\"originalNextRun\":\"2024-03-04 05:06:07\"}");
        assert_eq!(row["nextRun"], "2024-03-05 05:06:07", "from the original time");
        assert_eq!((&row["state"], &row["retryAfter"]), (&json!("QUEUED"), &json!("+1 HOUR")));
        door.about("DeleteJob", id).done();
    }
}

#[test]
fn data_that_says_delete_ends_a_repeat() {
    let door = Door::start();
    let headers = [("name", "n"), ("repeat", "HOURLY")];
    let id = running(&door, &headers);
    door.about_with("FinishJob", id, &[("data", "{\"delete\":true}")]).done();
    door.assert_gone(id);
    for not in ["{\"delete\":false}", "{\"deleted\":true}", "{\"x\":{\"delete\":true}}"] {
        let id = running(&door, &headers);
        door.about_with("FinishJob", id, &[("data", not)]).done();
        assert_eq!(door.state(id), "QUEUED", "{not}");
        door.about("DeleteJob", id).done();
    }
}

#[test]
fn finish_with_pending_children_waits_for_them() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p"), ("repeat", "HOURLY"), ("data", "{\"a\":1}")]);
    let children: Vec<JobId> = (0..3).map(|n| door.child(parent, &format!("c{n}"))).collect();
    let before = door.row(parent);
    door.about_with("FinishJob", parent, &[("data", "{\"b\":2}")]).done();
    let row = door.row(parent);
    assert_eq!((&row["state"], &row["data"]), (&json!("PAUSED"), &json!("{\"b\":2}")));
    assert_eq!(row["nextRun"], before["lastRun"]);
    assert_eq!(row["lastRun"], before["lastRun"]);
    for child in children {
        assert_eq!(door.state(child), "QUEUED");
    }
}

#[test]
fn every_pending_state_of_a_child_keeps_the_parent() {
    let door = Door::embedded();
    for last in ["QUEUED", "RUNNING", "RUNQUEUED"] {
        let parent = running(&door, &[("name", "p")]);
        let child = door.child(parent, "c");
        if last == "RUNQUEUED" {
            door.set(child, "retryAfter = '+1 HOUR'");
        }
        door.about("FinishJob", parent).done();
        if last != "QUEUED" {
            door.take(child, "c");
        }
        door.call("RequeueJobs", &[("jobIDs", &parent.to_string())]).done();
        door.take(parent, "p");
        door.about("FinishJob", parent).done();
        door.assert_states(&[(parent, "PAUSED"), (child, last)]);
        if last == "QUEUED" {
            door.take(child, "c");
        }
        door.about("FinishJob", child).done();
        door.take(parent, "p");
        door.about("FinishJob", parent).done();
        door.assert_gone(parent);
    }
}

#[test]
fn retry_with_pending_children_is_queued_and_they_stay_as_they_are() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p")]);
    let child = door.child(parent, "c");
    door.about("RetryJob", parent).done();
    door.assert_states(&[(parent, "QUEUED"), (child, "PAUSED")]);
    door.take(parent, "p");
    door.about("FinishJob", parent).done();
    door.assert_states(&[(parent, "PAUSED"), (child, "QUEUED")]);
}

#[test]
fn ended_children_go_with_the_next_end_of_their_parent() {
    let door = Door::start();
    for verb in BOTH {
        let parent = running(&door, &[("name", "p")]);
        let (done, cancelled) = (door.child(parent, "c"), door.child(parent, "d"));
        door.about("FinishJob", parent).done();
        door.about("CancelJob", cancelled).done();
        door.take(done, "c");
        door.about("FinishJob", done).done();
        door.take(parent, "p");
        door.assert_states(&[(done, "FINISHED"), (cancelled, "CANCELLED")]);
        door.about(verb, parent).done();
        door.assert_gone(done);
        door.assert_gone(cancelled);
        if verb == "RetryJob" {
            assert_eq!(door.take(parent, "p")["finishedChildJobs"], Value::Null);
            door.about("FinishJob", parent).done();
        }
        door.assert_gone(parent);
    }
}

#[test]
fn a_failed_child_keeps_its_parent_from_going() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p"), ("data", "{\"a\":1}")]);
    let (failed, done) = (door.child(parent, "f"), door.child(parent, "d"));
    door.about("FinishJob", parent).done();
    door.take(failed, "f");
    door.about("FailJob", failed).done();
    door.take(done, "d");
    door.about("FinishJob", done).done();
    door.take(parent, "p");
    let before = door.row(parent);
    door.about_with("FinishJob", parent, &[("data", "{\"b\":1}")])
        .fails("405 Failed to delete a job with outstanding children");
    assert_eq!(door.row(parent), before, "everything is as it was");
    door.assert_states(&[(parent, "RUNNING"), (failed, "FAILED"), (done, "FINISHED")]);
    door.about("DeleteJob", failed).done();
    door.about("FinishJob", parent).done();
    door.assert_gone(parent);
}

#[test]
fn a_repeat_queues_the_job_again_whatever_else_is_asked() {
    let door = Door::start();
    for verb in BOTH {
        let id = running(&door, &[("name", "n"), ("repeat", "FINISHED, +1 HOUR")]);
        let before = sqlite_text("DATETIME('now', '+1 HOUR')");
        door.about_with(verb, id, &[("nextRun", LATER), ("delay", "5")]).done();
        let after = sqlite_text("DATETIME('now', '+1 HOUR')");
        let row = door.row(id);
        assert_eq!(row["state"], "QUEUED");
        between(&before, &row["nextRun"], &after);
        door.about("DeleteJob", id).done();
    }
}

#[test]
fn a_repeat_can_be_ignored() {
    let door = Door::start();
    for yes in ["true", "TRUE", "1", "-1", "7"] {
        let id = running(&door, &[("name", "n"), ("repeat", "HOURLY")]);
        door.about_with("FinishJob", id, &[("ignoreRepeat", yes)]).done();
        door.assert_gone(id);
        let id = running(&door, &[("name", "n"), ("repeat", "HOURLY")]);
        door.about_with("RetryJob", id, &[("ignoreRepeat", yes), ("nextRun", LATER)]).done();
        let row = door.row(id);
        assert_eq!((&row["nextRun"], &row["repeat"]), (&json!(LATER), &json!("HOURLY")));
        door.about("DeleteJob", id).done();
    }
    for no in ["false", "0", "yes", ""] {
        let id = running(&door, &[("name", "n"), ("repeat", "HOURLY")]);
        door.about_with("FinishJob", id, &[("ignoreRepeat", no)]).done();
        assert_eq!(door.state(id), "QUEUED", "{no:?}");
        door.about("DeleteJob", id).done();
    }
}

#[test]
fn a_retry_is_due_at_once() {
    let door = Door::start();
    let id = running(&door, &[("name", "n"), ("jobPriority", "750"), ("data", "{\"a\":1}")]);
    let before = door.row(id);
    door.about("RetryJob", id).done();
    let row = door.row(id);
    assert_eq!(row["state"], "QUEUED");
    for column in ["name", "priority", "data", "lastRun", "created", "repeat", "retryAfter"] {
        assert_eq!(row[column], before[column], "{column}");
    }
    door.take(id, "n");
}

#[test]
fn a_retry_may_be_delayed_by_seconds() {
    let door = Door::start();
    for (delay, seconds) in [("3600", 3600), ("99999999", 99_999_999), ("60 or so", 60)] {
        let id = running(&door, &[("name", "n")]);
        let moment = format!("DATETIME('now', '+{seconds} SECONDS')");
        let before = sqlite_text(&moment);
        door.about_with("RetryJob", id, &[("delay", delay)]).done();
        between(&before, &door.row(id)["nextRun"], &sqlite_text(&moment));
        door.no_job("n");
    }
    for now in ["0", "soon", ""] {
        let id = running(&door, &[("name", "now")]);
        door.about_with("RetryJob", id, &[("delay", now)]).done();
        door.take(id, "now");
        door.about("FinishJob", id).done();
    }
}

#[test]
fn a_delay_is_neither_negative_nor_endless() {
    let door = Door::start();
    let id = running(&door, &[("name", "n"), ("data", "{\"a\":1}")]);
    let before = door.row(id);
    let with = |delay| [("delay", delay), ("data", "{\"b\":1}"), ("name", "other")];
    door.about_with("RetryJob", id, &with("-1"))
        .fails("402 Must specify a non-negative delay when retrying");
    door.about_with("RetryJob", id, &with("100000000")).fails("402 Malformed delay");
    assert_eq!(door.row(id), before, "nothing has changed");
    // nextRun takes precedence over delay.
    let both = [("nextRun", LATER), ("delay", "-1")];
    door.about_with("RetryJob", id, &both).done();
    assert_eq!(door.row(id)["nextRun"], LATER);
}

#[test]
fn the_next_run_of_a_retry_is_stored_as_given() {
    let door = Door::start();
    for next in [LATER, "2999-01-01", "some day", "2999-01-01T00:00:00.123456Z"] {
        let id = running(&door, &[("name", "n")]);
        door.about_with("RetryJob", id, &[("nextRun", next), ("delay", "5")]).done();
        assert_eq!(door.row(id)["nextRun"], next);
        door.no_job("n");
    }
}

#[test]
fn a_retry_may_rename_and_give_another_priority() {
    let door = Door::start();
    let id = running(&door, &[("name", "n"), ("retryAfter", "+2 HOURS")]);
    let new = [("name", "m"), ("jobPriority", "1000"), ("retryAfter", "+1 DAY")];
    door.about_with("RetryJob", id, &new).done();
    door.no_job("n");
    let row = door.row(id);
    assert_eq!((&row["name"], &row["priority"]), (&json!("m"), &json!(1000)));
    assert_eq!(row["retryAfter"], "+2 HOURS", "a retry never changes it");
    door.take(id, "m");
    door.about_with("RetryJob", id, &[("name", "")]).done();
    assert_eq!(door.job(id)["name"], "m");
}

#[test]
fn a_retry_with_a_bad_priority_changes_nothing() {
    let door = Door::start();
    let id = running(&door, &[("name", "n"), ("repeat", "HOURLY")]);
    let before = door.row(id);
    let bad = [("jobPriority", "3"), ("name", "m"), ("data", "{\"b\":1}")];
    door.about_with("RetryJob", id, &bad).fails("402 Invalid priority value");
    assert_eq!(door.row(id), before);
}

#[test]
fn a_finish_takes_neither_name_nor_priority() {
    let door = Door::start();
    let id = running(&door, &[("name", "n"), ("repeat", "HOURLY")]);
    door.about_with("FinishJob", id, &[("name", "m"), ("jobPriority", "3")]).done();
    let row = door.row(id);
    assert_eq!((&row["name"], &row["priority"]), (&json!("n"), &json!(500)));
}

#[test]
fn a_child_that_is_retried_is_queued_and_its_parent_goes_on_waiting() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p")]);
    let child = door.child(parent, "c");
    door.about("FinishJob", parent).done();
    door.take(child, "c");
    door.about("RetryJob", child).done();
    door.assert_states(&[(parent, "PAUSED"), (child, "QUEUED")]);
    door.take(child, "c");
    door.about("FinishJob", child).done();
    door.assert_states(&[(parent, "QUEUED"), (child, "FINISHED")]);
}

#[test]
fn a_child_that_repeats_is_queued_and_its_parent_goes_on_waiting() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p")]);
    let child = door.create(&[
        ("name", "c"),
        ("parentJobID", &parent.to_string()),
        ("repeat", "FINISHED, +1 HOUR"),
    ]);
    door.about("FinishJob", parent).done();
    door.take(child, "c");
    door.about("FinishJob", child).done();
    door.assert_states(&[(parent, "PAUSED"), (child, "QUEUED")]);
}

#[test]
fn the_last_child_wakes_its_parent_at_once() {
    let door = Door::start();
    let parent = running(&door, &[("name", "p")]);
    let (first, second) = (door.child(parent, "a"), door.child(parent, "b"));
    door.about("FinishJob", parent).done();
    let paused = door.row(parent);
    door.take(first, "a");
    door.about("FinishJob", first).done();
    assert_eq!(door.state(parent), "PAUSED");
    door.take(second, "b");
    door.about("FinishJob", second).done();
    let row = door.row(parent);
    assert_eq!((&row["state"], &row["nextRun"]), (&json!("QUEUED"), &paused["nextRun"]));
    door.take(parent, "p");
}

#[test]
fn a_new_name_that_is_no_type_is_malformed() {
    let door = Door::embedded();
    let id = running(&door, &[("name", "n")]);
    let before = door.row(id);
    for bad in ["a|b", "a\nb", &"n".repeat(256)] {
        door.about_with("RetryJob", id, &[("name", bad)]).fails("402 Malformed name");
        let wish = [("jobIDs", &*id.to_string()), ("name", bad)];
        door.call("RequeueJobs", &wish).fails("402 Malformed name");
        let query = format!("UPDATE jobs SET name = '{bad}' WHERE jobID = {id};");
        assert_eq!(door.call("Query", &[("query", &query)]).line, "502 Query failed");
    }
    assert_eq!(door.row(id), before);
}
