//! CreateJobs over Bedrock: a list of jobs, all of them or none.

use serde_json::{Value, json};

use crate::harness::{Door, JobId};

const INVALID: &str = "401 Invalid JSON";

#[track_caller]
fn create(door: &Door, jobs: &Value) -> Vec<JobId> {
    let reply = door.call("CreateJobs", &[("jobs", &jobs.to_string())]).ok();
    let ids: Vec<JobId> = serde_json::from_value(reply.json()["jobIDs"].clone()).unwrap();
    let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(reply.text(), format!("{{\"jobIDs\":[{}]}}", list.join(",")));
    ids
}

#[track_caller]
fn refused(door: &Door, jobs: &Value, line: &str) {
    door.call("CreateJobs", &[("jobs", &jobs.to_string())]).fails(line);
}

/// A running parent.
fn running(door: &Door, name: &str) -> JobId {
    let id = door.named(name);
    door.take(id, name);
    id
}

#[test]
fn ids_come_in_the_order_of_the_jobs() {
    let door = Door::start();
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    let jobs: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let ids = create(&door, &json!(jobs));
    assert_eq!(ids.len(), names.len());
    for (id, name) in ids.iter().zip(&names) {
        assert_eq!(door.job(*id)["name"], *name);
    }
}

#[test]
fn values_may_be_texts_numbers_or_objects() {
    let door = Door::embedded();
    let ids = create(
        &door,
        &json!([
            {
                "name": "one", "data": {"a": [1, {"b": "x\"/\\é"}]}, "jobPriority": 1000,
                "firstRun": "2031-01-01 00:00:00", "repeat": "finished, +1 hour",
                "retryAfter": "+5 minutes",
            },
            {"name": "two", "data": {"a": 1}, "jobPriority": "250", "parentJobID": "0"},
            {"name": 123},
            {"name": "four", "priority": 750, "nextRun": "2031-01-01", "unknown": {"a": 1}},
        ]),
    );
    let one = door.row(ids[0]);
    let data: Value = serde_json::from_str(one["data"].as_str().unwrap()).unwrap();
    assert_eq!(data, json!({"a": [1, {"b": "x\"/\\é"}]}));
    assert_eq!(one["priority"], 1000);
    assert_eq!(one["nextRun"], "2031-01-01 00:00:00");
    assert_eq!(one["repeat"], "FINISHED, +1 HOUR");
    assert_eq!(one["retryAfter"], "+5 minutes");
    let two = door.row(ids[1]);
    assert_eq!((&two["data"], &two["priority"]), (&json!("{\"a\":1}"), &json!(250)));
    assert_eq!((&two["state"], &two["parentJobID"]), (&json!("QUEUED"), &json!(0)));
    assert_eq!(door.row(ids[2])["name"], "123");
    let four = door.row(ids[3]);
    assert_eq!(four["priority"], 750);
    assert_ne!(four["nextRun"], "2031-01-01");
}

#[test]
fn data_may_be_the_text_of_an_object() {
    let door = Door::start();
    let ids = create(&door, &json!([{"name": "n", "data": "{\"a\":1}"}, {"name": "n"}]));
    assert_eq!(door.job(ids[0])["data"], json!({"a": 1}));
    assert_eq!(door.row(ids[1])["data"], "{}");
}

#[test]
fn a_list_that_is_none_is_invalid() {
    let door = Door::start();
    door.call("CreateJobs", &[]).fails(INVALID);
    let bad = [
        "",
        "x",
        "1",
        "[]",
        "[ ]",
        "{\"name\":\"n\"}",
        "{}",
        "[{\"name\":\"n\"}",
        "[{\"name\":\"n\"}]x",
        "[{\"name\":\"n\"}] []",
        "[{\"name\":\"n\"},]",
        "[{\"name\":}]",
    ];
    for jobs in bad {
        door.call("CreateJobs", &[("jobs", jobs)]).fails(INVALID);
    }
    assert_eq!(door.count(), 0);
}

#[test]
fn an_element_that_is_no_object_with_something_in_it_is_invalid() {
    let door = Door::start();
    for element in [json!({}), json!(1), json!("name"), json!(["name"]), json!(null), json!(true)] {
        refused(&door, &json!([element]), INVALID);
        refused(&door, &json!([{"name": "n"}, element]), INVALID);
    }
    assert_eq!(door.count(), 0);
}

#[test]
fn an_element_without_a_name_misses_it() {
    let door = Door::start();
    refused(&door, &json!([{"data": {"a": 1}}]), "402 Missing name");
    refused(&door, &json!([{"name": "n"}, {"data": {}}]), "402 Missing name");
    assert_eq!(door.count(), 0);
}

#[test]
fn a_name_that_is_no_type_is_malformed() {
    let door = Door::start();
    let long = "n".repeat(256);
    for name in [long.as_str(), "a|b", "a\tb"] {
        refused(&door, &json!([{"name": "n"}, {"name": name}]), "402 Malformed name");
    }
    assert_eq!(door.count(), 0);
}

#[test]
fn one_bad_job_and_none_is_created() {
    let door = Door::start();
    let parent = running(&door, "p");
    let child = door.child(parent, "c");
    let taken = door.create(&[("name", "taken"), ("parentJobID", &parent.to_string())]);
    let queued = door.named("q");
    let before = door.count();
    let bad = [
        (json!({"name": "x", "jobPriority": 1}), "402 Invalid priority value"),
        (json!({"name": "x", "priority": 1}), "402 Invalid priority value"),
        (json!({"name": "x", "data": [1]}), "402 Data is not a valid JSON Object"),
        (json!({"name": "x", "data": 1}), "402 Data is not a valid JSON Object"),
        (json!({"name": "x", "data": null}), "402 Data is not a valid JSON Object"),
        (json!({"name": "x", "data": "{\"a\":1"}), "402 Data is not a valid JSON Object"),
        (json!({"name": "x", "retryAfter": "soon"}), "402 Malformed retryAfter"),
        (json!({"name": "x", "repeat": "often"}), "402 Malformed repeat"),
        (json!({"name": "x", "parentJobID": 4711}), "404 parentJobID does not exist"),
        (
            json!({"name": "x", "parentJobID": queued}),
            "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED",
        ),
        (json!({"name": "x", "parentJobID": child}), "405 Cannot create grandchildren"),
        (
            json!({"name": "taken", "unique": true}),
            "404 Trying to create a child that already exists, \
             but it is tied to a different parent",
        ),
    ];
    for (job, line) in bad {
        refused(&door, &json!([{"name": "good"}, job, {"name": "good"}]), line);
    }
    assert_eq!(door.count(), before, "all or nothing");
    assert_eq!(door.state(taken), "PAUSED");
}

#[test]
fn none_is_mocked_beside_a_child_of_a_plain_parent() {
    let door = Door::start();
    let parent = running(&door, "p");
    let jobs = json!([{"name": "a"}, {"name": "b", "parentJobID": parent}]).to_string();
    let headers = [("jobs", jobs.as_str()), ("mockRequest", "1")];
    let reply = door.call("CreateJobs", &headers).ok().json();
    for id in reply["jobIDs"].as_array().unwrap() {
        assert_eq!(door.job(id.as_i64().unwrap())["data"], json!({}));
    }
}

#[test]
fn children_of_a_mocked_and_of_a_plain_parent_do_not_go_together() {
    let door = Door::start();
    let mocked = door.create(&[("name", "m"), ("mockRequest", "1")]);
    door.call("GetJob", &[("name", "m"), ("mockRequest", "1")]).ok();
    let plain = running(&door, "p");
    let jobs = json!([{"name": "a", "parentJobID": mocked}, {"name": "b", "parentJobID": plain}]);
    let jobs = jobs.to_string();
    for more in [&[][..], &[("mockRequest", "1")][..]] {
        let headers = [&[("jobs", jobs.as_str())], more].concat();
        door.call("CreateJobs", &headers)
            .fails("405 Parent and child jobs must have matching mockRequest setting");
    }
    assert_eq!(door.count(), 2);
}

#[test]
fn a_unique_job_is_reused_and_the_others_are_created() {
    let door = Door::start();
    let known = door.create(&[("name", "u"), ("data", "{\"a\":1}")]);
    let ids = create(
        &door,
        &json!([
            {"name": "n"},
            {"name": "u", "unique": true, "data": {"a": 1}},
            {"name": "u", "unique": "true", "data": {"a": 1}},
            {"name": "m"},
        ]),
    );
    assert_eq!((ids[1], ids[2]), (known, known));
    assert_eq!((&door.job(ids[0])["name"], &door.job(ids[3])["name"]), (&json!("n"), &json!("m")));
    assert_eq!(door.count(), 3);
}

#[test]
fn a_unique_job_with_other_data_is_patched() {
    let door = Door::start();
    let known = door.create(&[("name", "u"), ("data", "{\"a\":1}")]);
    let wish = json!([{"name": "u", "unique": true, "data": {"b": 2}, "jobPriority": 750}]);
    assert_eq!(create(&door, &wish), [known]);
    let job = door.job(known);
    assert_eq!((&job["data"], &job["priority"]), (&json!({"a": 1, "b": 2}), &json!(750)));
    let wish = json!([{"name": "u", "unique": true, "data": {"c": 3}, "overwrite": "false"}]);
    assert_eq!(create(&door, &wish), [known]);
    assert_eq!(door.job(known)["data"], json!({"a": 1, "b": 2}));
}

#[test]
fn one_call_may_name_a_unique_job_twice() {
    let door = Door::start();
    let wish = json!([{"name": "u", "unique": true}, {"name": "u", "unique": true}]);
    let ids = create(&door, &wish);
    assert_eq!(ids[0], ids[1]);
    assert_eq!(door.count(), 1);
}

#[test]
fn children_wait_for_their_parent() {
    let door = Door::start();
    let parent = running(&door, "p");
    let wish = json!([
        {"name": "a", "parentJobID": parent},
        {"name": "b", "parentJobID": parent.to_string()},
        {"name": "c"},
    ]);
    let ids = create(&door, &wish);
    door.assert_states(&[(ids[0], "PAUSED"), (ids[1], "PAUSED"), (ids[2], "QUEUED")]);
    door.about("FinishJob", parent).done();
    door.assert_states(&[(ids[0], "QUEUED"), (ids[1], "QUEUED"), (parent, "PAUSED")]);
}

#[test]
fn all_are_mocked_by_the_header() {
    let door = Door::start();
    let jobs = json!([{"name": "a", "repeat": "HOURLY"}, {"name": "b", "data": {"x": 1}}]);
    let headers = [("jobs", &*jobs.to_string()), ("mockRequest", "1")];
    let reply = door.call("CreateJobs", &headers).ok().json();
    let (a, b) = (&reply["jobIDs"][0], &reply["jobIDs"][1]);
    let a = door.row(a.as_i64().unwrap());
    assert_eq!((&a["data"], &a["repeat"]), (&json!("{\"mockRequest\":true}"), &json!("")));
    let b = door.job(b.as_i64().unwrap());
    assert_eq!(b["data"], json!({"x": 1, "mockRequest": true}));
}

#[test]
fn all_are_mocked_by_a_mocked_parent() {
    let door = Door::start();
    let parent = door.create(&[("name", "p"), ("mockRequest", "1")]);
    door.call("GetJob", &[("name", "p"), ("mockRequest", "1")]).ok();
    let wish = json!([{"name": "c", "parentJobID": parent}, {"name": "other"}]);
    for id in create(&door, &wish) {
        assert_eq!(door.job(id)["data"], json!({"mockRequest": true}));
    }
}

#[test]
fn a_thousand_jobs_are_one_call() {
    const JOBS: usize = 1000;
    let door = Door::start();
    let jobs: Vec<Value> = (0..JOBS).map(|n| json!({"name": "n", "data": {"n": n}})).collect();
    let ids = create(&door, &json!(jobs));
    assert_eq!((ids.len(), door.count()), (JOBS, JOBS));
    let mut taken: Vec<u64> = Vec::new();
    for job in door.get_jobs("n", JOBS) {
        taken.push(job["data"]["n"].as_u64().unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..JOBS as u64).collect::<Vec<_>>());
}
