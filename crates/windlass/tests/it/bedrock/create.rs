//! CreateJob over Bedrock: every check in its order, what is stored, and what a child becomes.

use std::collections::HashSet;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Door, JobId, Link, id_of, sqlite_text};

const NOT_AN_OBJECT: &str = "402 Data is not a valid JSON Object";
const WRONG_STATE: &str =
    "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED";
const OTHER_PARENT: &str =
    "404 Trying to create a child that already exists, but it is tied to a different parent";

/// A running parent, with its name.
fn running(door: &Door, name: &str) -> JobId {
    let id = door.named(name);
    door.take(id, name);
    id
}

#[track_caller]
fn refused(door: &Door, headers: &[(&str, &str)], line: &str) {
    door.call("CreateJob", headers).fails(line);
}

#[track_caller]
fn nothing_is_stored(door: &Door) {
    assert_eq!(door.count(), 0);
}

#[test]
fn the_reply_is_one_number() {
    let door = Door::start();
    let reply = door.call("CreateJob", &[("name", "n")]).ok();
    let id = reply.json()["jobID"].as_i64().unwrap();
    assert!(id > 0);
    assert_eq!(reply.text(), format!("{{\"jobID\":{id}}}"));
}

#[test]
fn a_new_job_has_the_defaults_of_every_column() {
    let door = Door::embedded();
    let before = sqlite_text("STRFTIME('%Y-%m-%d %H:%M:%f', 'now')");
    let id = door.named("www-prod/Foo");
    let after = sqlite_text("STRFTIME('%Y-%m-%d %H:%M:%f', 'now')");
    let mut row = door.row(id);
    let created = row["created"].as_str().unwrap().to_owned();
    let next = row["nextRun"].as_str().unwrap().to_owned();
    assert_eq!((created.len(), next.len()), (19, 23), "seconds, and milliseconds: {row}");
    assert!(before <= next && next <= after, "{before} {next} {after}");
    assert!(before[..19] <= *created && created <= after, "{before} {created} {after}");
    row["created"] = Value::Null;
    row["nextRun"] = Value::Null;
    let wanted = json!({
        "created": null, "jobID": id, "state": "QUEUED", "name": "www-prod/Foo", "nextRun": null,
        "lastRun": null, "repeat": "", "data": "{}", "priority": 500, "parentJobID": 0,
        "retryAfter": "",
    });
    assert_eq!(row, wanted);
}

#[test]
fn what_is_given_is_stored() {
    let door = Door::embedded();
    let id = door.create(&[
        ("name", "n"),
        ("data", "{\"b\": 1,  \"a\":\"x\"}"),
        ("firstRun", "2031-02-03 04:05:06"),
        ("repeat", "scheduled, +1 day, start of hour"),
        ("jobPriority", "850"),
        ("retryAfter", "+1 Hour"),
    ]);
    let row = door.row(id);
    assert_eq!(row["data"], "{\"b\": 1,  \"a\":\"x\"}", "byte for byte");
    assert_eq!(row["nextRun"], "2031-02-03 04:05:06");
    assert_eq!(row["repeat"], "SCHEDULED, +1 DAY, START OF HOUR", "in capital letters");
    assert_eq!(row["priority"], 850);
    assert_eq!(row["retryAfter"], "+1 Hour", "as given");
}

#[test]
fn a_first_run_is_never_validated() {
    let door = Door::embedded();
    for first in ["2031-02-03", "tomorrow", "2031-02-03T04:05:06.789123Z", "9"] {
        let id = door.create(&[("name", "n"), ("firstRun", first)]);
        assert_eq!(door.row(id)["nextRun"], first);
    }
}

#[test]
fn headers_that_mean_nothing_have_no_effect() {
    let door = Door::start();
    let id = door.create(&[
        ("name", "n"),
        ("created", "2001-01-01 00:00:00"),
        ("nextRun", "2031-01-01 00:00:00"),
        ("state", "FAILED"),
        ("anything", "else"),
    ]);
    let row = door.row(id);
    assert_ne!(row["created"], "2001-01-01 00:00:00");
    assert_ne!(row["nextRun"], "2031-01-01 00:00:00");
    assert_eq!(row["state"], "QUEUED");
}

#[test]
fn ids_are_positive_and_distinct() {
    let door = Door::start();
    let mut ids: Vec<JobId> = (0..50).map(|_| door.named("n")).collect();
    assert!(ids.iter().all(|id| *id > 0));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 50);
}

#[test]
fn a_name_is_needed_and_has_up_to_255_bytes() {
    let door = Door::start();
    refused(&door, &[], "402 Missing name");
    refused(&door, &[("name", "")], "402 Missing name");
    refused(&door, &[("name", &"n".repeat(256))], "402 Malformed name");
    refused(&door, &[("name", &"é".repeat(128))], "402 Malformed name");
    nothing_is_stored(&door);
    let longest = "n".repeat(255);
    let id = door.named(&longest);
    assert_eq!(door.job(id)["name"], longest);
}

#[test]
fn a_name_that_is_no_type_is_malformed() {
    let door = Door::start();
    for name in ["a|b", "a\tb", "a\nb"] {
        refused(&door, &[("name", name)], "402 Malformed name");
    }
    nothing_is_stored(&door);
}

#[test]
fn six_priorities_are_accepted_and_no_other() {
    let door = Door::start();
    for priority in ["0", "250", "500", "750", "850", "1000"] {
        let id = door.create(&[("name", "n"), ("jobPriority", priority)]);
        assert_eq!(door.job(id)["priority"].to_string(), priority);
    }
    for priority in ["1", "251", "999", "1001", "-500", "5000"] {
        let headers = [("name", "bad"), ("jobPriority", priority)];
        refused(&door, &headers, "402 Invalid priority value");
    }
    assert_eq!(door.count_named("bad"), 0);
}

#[test]
fn a_priority_is_read_as_c_reads_numbers() {
    let door = Door::start();
    for (given, priority) in [("750 please", 750), ("abc", 0), ("1000x", 1000), ("0x10", 0)] {
        let id = door.create(&[("name", "n"), ("jobPriority", given)]);
        assert_eq!(door.job(id)["priority"], priority, "{given:?}");
    }
}

#[test]
fn the_generic_priority_counts_where_there_is_no_job_priority() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("priority", "750")]);
    assert_eq!(door.job(id)["priority"], 750);
    let id = door.create(&[("name", "n"), ("priority", "3"), ("jobPriority", "250")]);
    assert_eq!(door.job(id)["priority"], 250);
    refused(&door, &[("name", "n"), ("priority", "3")], "402 Invalid priority value");
}

#[test]
fn data_is_a_json_object() {
    let door = Door::embedded();
    let bad = [
        "",
        "[]",
        "[1]",
        "1",
        "\"x\"",
        "null",
        "true",
        "{ }",
        "{\"a\":1",
        "{\"a\":}",
        "{\"a\"}",
        "{\"a\":1}x",
        "{\"a\":1,}",
        "{'a':1}",
        "{a:1}",
        "{\"a\":1}{\"b\":2}",
        "x",
    ];
    for data in bad {
        refused(&door, &[("name", "n"), ("data", data)], NOT_AN_OBJECT);
    }
    nothing_is_stored(&door);
    for data in ["{}", "{\"a\":1}", "{\"a\": [1, {\"b\": null}], \"c\":\"\\\"/\\u00e9\"}"] {
        let id = door.create(&[("name", "n"), ("data", data)]);
        assert_eq!(door.row(id)["data"], data, "as it was given");
    }
}

#[test]
fn a_retry_after_is_a_list_of_date_modifiers() {
    let door = Door::start();
    let good = [
        "+1 SECOND",
        "+12345678 SECONDS",
        "-5 seconds",
        "+1 YEAR",
        "+999 YEARS",
        "+2 month",
        "+2 MONTHS",
        "+1 Day",
        "+3 DAYS",
        "+1 HOUR",
        "+24 HOURS",
        "+1 MINUTE",
        "+90 MINUTES",
        "START OF DAY",
        "start of month",
        "START OF YEAR",
        "WEEKDAY 0",
        "weekday 6",
        "+1 DAY,START OF DAY",
        "+1 DAY,   START OF DAY",
        "+1 HOUR,",
    ];
    for retry in good {
        let id = door.create(&[("name", "n"), ("retryAfter", retry)]);
        assert_eq!(door.job(id)["retryAfter"], retry, "as given");
    }
    let bad = [
        "1 HOUR",
        "+1 WEEK",
        "+1  HOUR",
        "+1HOUR",
        "+1.5 SECONDS",
        "+123456789 SECONDS",
        "+1000 DAYS",
        "+ 1 DAY",
        "START OF HOUR",
        "START OF WEEK",
        "WEEKDAY 7",
        "WEEKDAY",
        "+1 HOUR ,+1 DAY",
        "+1 HOUR; +1 DAY",
        "+1 HOUR and a half",
        "HOURLY",
        "+x DAYS",
        "SCHEDULED, +1 HOUR",
        "+1 HOURSS",
        "START  OF DAY",
    ];
    for retry in bad {
        let headers = [("name", "bad"), ("retryAfter", retry)];
        refused(&door, &headers, "402 Malformed retryAfter");
    }
    assert_eq!(door.count_named("bad"), 0);
    let id = door.create(&[("name", "n"), ("retryAfter", "")]);
    assert_eq!(door.job(id)["retryAfter"], "");
}

#[test]
fn a_repeat_is_a_canned_word_or_a_base_with_modifiers() {
    let door = Door::start();
    let good = [
        "HOURLY",
        "daily",
        "Weekly",
        "SCHEDULED, +1 HOUR",
        "started, +1 hour",
        "FINISHED, +1 DAY, START OF DAY, +4 HOURS",
        "FINISHED,+1 DAY",
        "FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS",
        "SCHEDULED, START OF HOUR",
        "finished, start of month, -12345678 seconds",
    ];
    for repeat in good {
        let id = door.create(&[("name", "n"), ("repeat", repeat)]);
        assert_eq!(door.job(id)["repeat"], repeat.to_uppercase());
    }
    let bad = [
        "x",
        "MONTHLY",
        "FINISHED",
        "SCHEDULED,",
        "STARTED, ",
        "+1 HOUR",
        "NOW, +1 HOUR",
        "FINISHED +1 HOUR",
        "FINISHED, +1 WEEK",
        "FINISHED, 1 HOUR",
        "FINISHED, WEEKDAY 7",
        "FINISHED, +1 HOUR, tea",
        "FINISHED, +1000 DAYS",
        "FINISHED, START OF WEEK",
        "HOURLY, +1 HOUR",
        "FINISHED, +1.5 SECONDS",
        "FINISHED, +1  HOUR",
    ];
    for repeat in bad {
        refused(&door, &[("name", "bad"), ("repeat", repeat)], "402 Malformed repeat");
    }
    assert_eq!(door.count_named("bad"), 0);
    let id = door.create(&[("name", "n"), ("repeat", "")]);
    assert_eq!(door.job(id)["repeat"], "");
}

#[test]
fn a_parent_must_exist() {
    let door = Door::embedded();
    let headers = [("name", "c"), ("parentJobID", "4711")];
    refused(&door, &headers, "404 parentJobID does not exist");
    let parent = running(&door, "p");
    door.about("FinishJob", parent).done();
    let headers = [("name", "c"), ("parentJobID", &parent.to_string())];
    refused(&door, &headers, "404 parentJobID does not exist");
    let id = door.create(&[("name", "c"), ("parentJobID", "0")]);
    assert_eq!(door.row(id)["parentJobID"], 0, "0 is no parent");
}

#[test]
fn a_parent_must_run_or_wait() {
    let door = Door::start();
    let child_of = |parent: JobId| {
        door.call("CreateJob", &[("name", "c"), ("parentJobID", &parent.to_string())])
    };
    let parent = door.named("p");
    child_of(parent).fails(WRONG_STATE);
    door.take(parent, "p");
    door.about("FailJob", parent).done();
    child_of(parent).fails(WRONG_STATE);

    let parent = running(&door, "q");
    let (first, second) = (door.child(parent, "first"), door.child(parent, "second"));
    door.about("FinishJob", parent).done();
    door.take(first, "first");
    door.about("FinishJob", first).done();
    assert_eq!(door.state(first), "FINISHED");
    child_of(first).fails(WRONG_STATE);
    let third = door.child(parent, "third");
    door.about("CancelJob", second).done();
    door.assert_states(&[(second, "CANCELLED"), (third, "QUEUED"), (parent, "PAUSED")]);
    child_of(second).fails(WRONG_STATE);
}

#[test]
fn a_child_waits_for_a_parent_that_runs_and_is_queued_under_one_that_waits() {
    let door = Door::embedded();
    let parent = running(&door, "p");
    let child = door.child(parent, "c");
    assert_eq!(door.row(child)["parentJobID"], parent);
    door.assert_states(&[(parent, "RUNNING"), (child, "PAUSED")]);
    door.no_job("c");
    door.about("FinishJob", parent).done();
    let sibling = door.child(parent, "s");
    door.assert_states(&[(parent, "PAUSED"), (child, "QUEUED"), (sibling, "QUEUED")]);
}

#[test]
fn a_child_of_a_parent_with_retry_after_waits_too() {
    let door = Door::start();
    let parent = door.create(&[("name", "p"), ("retryAfter", "+1 HOUR")]);
    door.take(parent, "p");
    let child = door.child(parent, "c");
    door.assert_states(&[(parent, "RUNQUEUED"), (child, "PAUSED")]);
}

#[test]
fn there_are_no_grandchildren() {
    let door = Door::start();
    let parent = running(&door, "p");
    let child = door.child(parent, "c");
    let grandchild = [("name", "g"), ("parentJobID", &child.to_string())];
    refused(&door, &grandchild, "405 Cannot create grandchildren");
    door.about("FinishJob", parent).done();
    door.take(child, "c");
    refused(&door, &grandchild, "405 Cannot create grandchildren");
    assert_eq!(door.count_named("g"), 0);
}

#[test]
fn a_mocked_child_of_a_plain_parent_is_plain() {
    let door = Door::start();
    let parent = running(&door, "p").to_string();
    let headers = [
        ("name", "c"),
        ("parentJobID", parent.as_str()),
        ("mockRequest", "true"),
        ("data", "{\"a\":1}"),
        ("repeat", "HOURLY"),
    ];
    let child = door.row(door.create(&headers));
    assert_eq!((&child["data"], &child["state"]), (&json!("{\"a\":1}"), &json!("PAUSED")));
    assert_eq!(child["repeat"], "HOURLY", "only a mocked job never repeats");
}

#[test]
fn a_child_inherits_that_its_parent_is_mocked() {
    let door = Door::start();
    let parent = door.create(&[("name", "p"), ("mockRequest", "1")]);
    door.call("GetJob", &[("name", "p"), ("mockRequest", "1")]).ok();
    let child = door.child(parent, "c");
    assert_eq!(door.job(child)["data"], json!({"mockRequest": true}));
}

#[test]
fn a_unique_child_is_looked_for_among_jobs_like_its_parent() {
    let door = Door::start();
    let plain = door.named("c");
    let parent = door.create(&[("name", "p"), ("mockRequest", "1")]).to_string();
    door.call("GetJob", &[("name", "p"), ("mockRequest", "1")]).ok();
    let headers = [("name", "c"), ("unique", "true"), ("parentJobID", parent.as_str())];
    let mocked = door.create(&headers);
    assert_ne!(mocked, plain);
    assert_eq!(door.job(mocked)["data"], json!({"mockRequest": true}));
    assert_eq!(door.create(&headers), mocked);
}

#[test]
fn a_mocked_job_is_marked_in_its_data_and_does_not_repeat() {
    let door = Door::start();
    let headers = [("name", "n"), ("mockRequest", "no matter what"), ("repeat", "HOURLY")];
    let id = door.create(&headers);
    let row = door.row(id);
    assert_eq!((&row["data"], &row["repeat"]), (&json!("{\"mockRequest\":true}"), &json!("")));
    let id = door.create(&[("name", "n"), ("mockRequest", "1"), ("data", "{\"a\":1}")]);
    assert_eq!(door.job(id)["data"], json!({"a": 1, "mockRequest": true}));
}

#[test]
fn the_first_check_that_fails_is_the_answer() {
    let door = Door::start();
    let parent = running(&door, "p");
    let child = door.child(parent, "c").to_string();
    let steps = [
        ("name", "", "402 Missing name"),
        ("jobPriority", "1", "402 Invalid priority value"),
        ("data", "[]", NOT_AN_OBJECT),
        ("retryAfter", "soon", "402 Malformed retryAfter"),
        ("parentJobID", "4711", "404 parentJobID does not exist"),
        ("repeat", "often", "402 Malformed repeat"),
        ("priority", "1", "402 Invalid priority value"),
        ("parentJobID", child.as_str(), "405 Cannot create grandchildren"),
    ];
    for (index, (_, _, line)) in steps.iter().enumerate() {
        let mut headers = Vec::new();
        if index > 0 {
            headers.push(("name", "n"));
        }
        // A later step that uses the header of an earlier one does not count yet.
        for (name, value, _) in &steps[index..] {
            if !headers.iter().any(|(known, _)| known == name) {
                headers.push((name, value));
            }
        }
        refused(&door, &headers, line);
    }
}

#[test]
fn a_unique_job_with_the_same_data_is_the_one_that_is_there() {
    let door = Door::start();
    let id = door.create(&[("name", "u"), ("data", "{\"a\":1}"), ("jobPriority", "250")]);
    let before = door.row(id);
    let again = door.create(&[
        ("name", "u"),
        ("data", "{\"a\":1}"),
        ("unique", "true"),
        ("jobPriority", "1000"),
        ("repeat", "HOURLY"),
    ]);
    assert_eq!(again, id);
    assert_eq!(door.row(id), before, "nothing is changed");
    // Equal data is detected before the repeat is checked.
    let headers =
        [("name", "u"), ("data", "{\"a\":1}"), ("unique", "true"), ("repeat", "nonsense")];
    assert_eq!(door.create(&headers), id);

    let bare = door.create(&[("name", "v"), ("unique", "true")]);
    assert_eq!(door.create(&[("name", "v"), ("unique", "true"), ("data", "{}")]), bare);
    assert_eq!(door.create(&[("name", "v"), ("unique", "true")]), bare);
    assert_eq!(door.row(bare)["data"], "{}");
}

#[test]
fn a_unique_job_with_other_data_is_patched() {
    let door = Door::start();
    let old = "{\"keep\": 1, \"drop\": 2, \"deep\": {\"x\": 1, \"y\": [1, 2]}}";
    let id = door.create(&[
        ("name", "u"),
        ("data", old),
        ("repeat", "hourly"),
        ("jobPriority", "1000"),
        ("firstRun", "2031-01-01 00:00:00"),
        ("retryAfter", "+1 HOUR"),
    ]);
    let before = door.row(id);
    let again = door.create(&[
        ("name", "u"),
        ("unique", "true"),
        ("data", "{\"drop\": null, \"deep\": {\"y\": [3], \"z\": {\"w\": null}}, \"new\": true}"),
        ("repeat", "daily"),
        ("jobPriority", "250"),
        ("firstRun", "2041-01-01 00:00:00"),
        ("retryAfter", "+2 HOURS"),
    ]);
    assert_eq!(again, id);
    let row = door.row(id);
    let data = row["data"].as_str().unwrap();
    let patched = json!({"keep": 1, "deep": {"x": 1, "y": [3], "z": {}}, "new": true});
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), patched);
    assert!(!data.contains(' '), "minified: {data}");
    assert_eq!((&row["repeat"], &row["priority"]), (&json!("DAILY"), &json!(250)));
    for column in ["nextRun", "retryAfter", "state", "created", "lastRun", "parentJobID"] {
        assert_eq!(row[column], before[column], "{column} stays");
    }
    door.create(&[("name", "u"), ("unique", "true"), ("data", "{\"n\":1}")]);
    let row = door.row(id);
    assert_eq!((&row["repeat"], &row["priority"]), (&json!(""), &json!(500)), "the defaults");
}

#[test]
fn overwrite_that_is_not_true_keeps_the_unique_job_as_it_is() {
    let door = Door::start();
    let id = door.create(&[("name", "u"), ("data", "{\"a\":1}"), ("repeat", "HOURLY")]);
    let before = door.row(id);
    for overwrite in ["false", "0", "TRUE", "yes"] {
        let headers =
            [("name", "u"), ("unique", "true"), ("data", "{\"b\":1}"), ("overwrite", overwrite)];
        assert_eq!(door.create(&headers), id);
        assert_eq!(door.row(id), before, "{overwrite}");
    }
    for (overwrite, data) in [("true", "{\"c\":1}"), ("", "{\"d\":1}")] {
        let headers = [("name", "u"), ("unique", "true"), ("data", data), ("overwrite", overwrite)];
        assert_eq!(door.create(&headers), id);
    }
    assert_eq!(door.job(id)["data"], json!({"a": 1, "c": 1, "d": 1}));
}

#[test]
fn unique_is_exactly_true_or_means_nothing() {
    let door = Door::start();
    let id = door.named("u");
    for unique in ["TRUE", "True", "1", "yes", "false", ""] {
        assert_ne!(door.create(&[("name", "u"), ("unique", unique)]), id, "{unique}");
    }
}

#[test]
fn unique_finds_a_job_in_any_state() {
    let door = Door::start();
    let unique = [("name", "u"), ("unique", "true")];
    let id = door.create(&unique);
    door.take(id, "u");
    assert_eq!(door.create(&unique), id, "RUNNING");
    let changed = door.create(&[("name", "u"), ("unique", "true"), ("data", "{\"a\":1}")]);
    assert_eq!((changed, door.state(id).as_str()), (id, "RUNNING"));
    door.about("FailJob", id).done();
    let changed = door.create(&[("name", "u"), ("unique", "true"), ("data", "{\"b\":1}")]);
    assert_eq!((changed, door.state(id).as_str()), (id, "FAILED"));
    door.about("DeleteJob", id).done();
    let fresh = door.create(&unique);
    assert_ne!(fresh, id, "what is gone is not found");
    door.take(fresh, "u");
    door.about("FinishJob", fresh).done();
    assert_ne!(door.create(&unique), fresh, "what has ended is gone");
}

#[test]
fn unique_does_not_take_a_child_from_its_parent() {
    let door = Door::start();
    let (parent, other) = (running(&door, "p"), running(&door, "q"));
    let child = door.child(parent, "u");
    let other = other.to_string();
    let unique = [("name", "u"), ("unique", "true")];
    refused(&door, &unique, OTHER_PARENT);
    let headers = [("name", "u"), ("unique", "true"), ("parentJobID", other.as_str())];
    refused(&door, &headers, OTHER_PARENT);
    let parent = parent.to_string();
    let own = [("name", "u"), ("unique", "true"), ("parentJobID", parent.as_str())];
    assert_eq!(door.create(&own), child);
    let own = [own[0], own[1], own[2], ("data", "{\"a\":1}")];
    assert_eq!(door.create(&own), child);
    assert_eq!(door.row(child)["data"], "{\"a\":1}");
    door.assert_states(&[(child, "PAUSED")]);
}

#[test]
fn unique_tells_mocked_jobs_from_others() {
    let door = Door::start();
    let real = door.create(&[("name", "u"), ("unique", "true")]);
    let mocked = door.create(&[("name", "u"), ("unique", "true"), ("mockRequest", "1")]);
    assert_ne!(real, mocked);
    assert_eq!(door.create(&[("name", "u"), ("unique", "true"), ("mockRequest", "1")]), mocked);
    assert_eq!(door.create(&[("name", "u"), ("unique", "true")]), real);
}

#[test]
fn unique_matches_the_whole_name_and_its_case() {
    let door = Door::start();
    let id = door.named("Foo");
    for name in ["foo", "Fo", "Foo*", "*", "F?o"] {
        assert_ne!(door.create(&[("name", name), ("unique", "true")]), id, "{name}");
    }
    assert_eq!(door.create(&[("name", "Foo"), ("unique", "true")]), id);
}

#[test]
fn retry_after_goes_with_repeat_and_with_unique() {
    let door = Door::start();
    let headers =
        [("name", "n"), ("retryAfter", "+1 HOUR"), ("repeat", "HOURLY"), ("unique", "true")];
    let id = door.create(&headers);
    let row = door.row(id);
    assert_eq!((&row["retryAfter"], &row["repeat"]), (&json!("+1 HOUR"), &json!("HOURLY")));
    assert_eq!(door.create(&headers), id);
}

#[test]
fn clients_that_create_a_unique_job_at_once_get_the_same_one() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 20;
    let door = Door::start();
    let address = door.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            thread::spawn(move || {
                let mut link = Link::open(address).unwrap();
                let mut create = |round: usize| {
                    let name = format!("u{round}");
                    let reply = link.call("CreateJob", &[("name", &name), ("unique", "true")]);
                    id_of(&reply.ok().json())
                };
                (0..ROUNDS).map(&mut create).collect::<Vec<JobId>>()
            })
        })
        .collect();
    let seen: HashSet<Vec<JobId>> = clients.into_iter().map(|c| c.join().unwrap()).collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(door.count(), ROUNDS);
}

#[test]
fn large_data_is_kept_byte_for_byte() {
    let door = Door::embedded();
    let data = format!("{{\"a\": \"{}\"}}", "x/é\\n".repeat(600_000));
    let id = door.create(&[("name", "n"), ("data", &data)]);
    let length = door.value(&format!("(SELECT LENGTH(data) FROM jobs WHERE jobID = {id})"));
    assert_eq!(length, data.chars().count());
    let found = "(SELECT COUNT(*) FROM jobs WHERE JSON_EXTRACT(data, '$.a') GLOB 'x/é*')";
    assert_eq!(door.value(found), 1);
    let text = door.call("GetJob", &[("name", "n")]).ok().text();
    assert!(text.contains(&format!("\"data\":{data},\"jobID\":{id},")), "byte for byte");
    door.about("RetryJob", id).done();
    assert_eq!(door.take(id, "n")["data"], serde_json::from_str::<Value>(&data).unwrap());
}
