//! GetJob and GetJobs over Bedrock: errors, which jobs match and in which order, the replies.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Door, JobId, Link, Random, id_of, keys_of, sqlite, sqlite_text};

const PAST: &str = "2024-01-01 00:00:00";
const NINE: [&str; 9] =
    ["created", "data", "jobID", "lastRun", "name", "nextRun", "priority", "repeat", "retryAfter"];

fn names(jobs: &[Value]) -> Vec<String> {
    jobs.iter().map(|job| job["name"].as_str().unwrap_or("?").to_owned()).collect()
}

fn ids(jobs: &[Value]) -> Vec<JobId> {
    jobs.iter().map(id_of).collect()
}

#[test]
fn a_name_is_needed_and_has_up_to_12750_bytes() {
    let door = Door::start();
    let longest = "n".repeat(12_750);
    let too_long = "n".repeat(12_751);
    for verb in ["GetJob", "GetJobs"] {
        door.call(verb, &[]).fails("402 Missing name");
        door.call(verb, &[("name", "")]).fails("402 Missing name");
        door.call(verb, &[("name", &too_long)]).fails("402 Malformed name");
    }
    door.no_job(&longest);
}

#[test]
fn results_are_counted_by_get_jobs_only() {
    let door = Door::start();
    door.call("GetJobs", &[("name", "n")]).fails("402 Missing numResults");
    let headers = [("name", "n"), ("numResults", "1")];
    door.call("GetJob", &headers).fails("402 Cannot use numResults with GetJob; try GetJobs");
}

#[test]
fn a_priority_to_look_for_is_one_of_six() {
    let door = Door::start();
    let bad = [("name", "n"), ("jobPriority", "1")];
    door.call("GetJob", &bad).fails("402 Invalid priority value");
    let bad = [("name", "n"), ("jobPriority", "501"), ("numResults", "1")];
    door.call("GetJobs", &bad).fails("402 Invalid priority value");
}

#[test]
fn the_first_check_that_fails_is_the_answer() {
    let door = Door::start();
    let all = [("name", ""), ("numResults", "1"), ("jobPriority", "1")];
    door.call("GetJob", &all).fails("402 Missing name");
    door.call("GetJob", &[("name", "n"), all[1], all[2]])
        .fails("402 Cannot use numResults with GetJob; try GetJobs");
    door.call("GetJobs", &[("name", "n"), all[2]]).fails("402 Missing numResults");
    door.call("GetJobs", &[("name", "n"), all[1], all[2]]).fails("402 Invalid priority value");
}

#[test]
fn no_job_is_an_error_of_both() {
    let door = Door::start();
    door.no_job("n");
    door.call("GetJobs", &[("name", "n"), ("numResults", "5")]).fails("404 No job found");
}

#[test]
fn a_job_is_shown_as_it_was_before_it_was_taken() {
    let door = Door::start();
    let id = door.create(&[
        ("name", "www/Foo"),
        ("data", "{\"b\": \"x/y\",  \"a\":2}"),
        ("firstRun", "2024-02-03 04:05:06"),
        ("repeat", "finished, +1 hour"),
        ("jobPriority", "750"),
    ]);
    let created = door.row(id)["created"].as_str().unwrap().to_owned();
    let reply = door.call("GetJob", &[("name", "www/Foo")]).ok();
    let wanted = format!(
        "{{\"created\":\"{created}\",\"data\":{{\"b\": \"x/y\",  \"a\":2}},\"jobID\":{id},\
         \"lastRun\":\"\",\"name\":\"www\\/Foo\",\"nextRun\":\"2024-02-03 04:05:06\",\
         \"priority\":750,\"repeat\":\"FINISHED, +1 HOUR\",\"retryAfter\":\"\"}}"
    );
    assert_eq!(reply.text(), wanted);
    assert_eq!(keys_of(&reply.text()), NINE);
    let row = door.row(id);
    assert_eq!(
        (&row["state"], &row["nextRun"]),
        (&json!("RUNNING"), &json!("2024-02-03 04:05:06"))
    );
    let last = row["lastRun"].as_str().unwrap();
    assert_eq!(last.len(), 19, "in seconds: {last}");
    assert!(*last >= *created && last <= sqlite_text("DATETIME('now')").as_str(), "{last}");
}

#[test]
fn a_job_that_ran_before_shows_its_last_run() {
    let door = Door::start();
    let id = door.named("n");
    door.take(id, "n");
    let last = door.row(id)["lastRun"].clone();
    door.about("RetryJob", id).done();
    assert_eq!(door.take(id, "n")["lastRun"], last);
}

#[test]
fn jobs_are_a_list_with_the_same_keys() {
    let door = Door::start();
    for name in ["a", "b"] {
        door.create(&[("name", name), ("firstRun", PAST)]);
    }
    let headers = [("name", "*"), ("numResults", "10")];
    let reply = door.call("GetJobs", &headers).ok();
    let text = reply.text();
    assert_eq!(keys_of(&text), ["jobs"]);
    assert!(text.starts_with("{\"jobs\":[{\"created\":\"") && text.ends_with("\"}]}"), "{text}");
    let jobs = reply.json()["jobs"].as_array().unwrap().clone();
    assert_eq!(names(&jobs), ["a", "b"]);
    for job in &jobs {
        assert_eq!(job.as_object().unwrap().len(), 9, "{job}");
        assert_eq!(door.state(id_of(job)), "RUNNING");
    }
}

#[test]
fn each_job_is_given_once() {
    let door = Door::start();
    let mut wanted: Vec<JobId> = (0..5).map(|_| door.named("n")).collect();
    let mut seen: Vec<JobId> = (0..5).map(|_| id_of(&door.get("n"))).collect();
    door.no_job("n");
    wanted.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, wanted);
}

#[test]
fn the_number_of_results_is_at_least_one_and_read_leniently() {
    let door = Door::start();
    for _ in 0..12 {
        door.named("n");
    }
    for (given, count) in [("0", 1), ("-3", 1), ("abc", 1), ("2 of them", 2), ("3", 3)] {
        let json = door.call("GetJobs", &[("name", "n"), ("numResults", given)]).ok().json();
        assert_eq!(json["jobs"].as_array().map(Vec::len), Some(count), "{given:?}");
    }
    assert_eq!(door.get_jobs("n", 100).len(), 4, "all that are left");
}

#[test]
fn higher_priorities_come_first_then_earlier_runs() {
    let door = Door::start();
    let add = |name: &str, priority: &str, first: &str| {
        door.create(&[("name", name), ("jobPriority", priority), ("firstRun", first)])
    };
    add("f", "0", "2024-01-01 00:00:00");
    add("e", "250", "2024-01-01 00:00:00");
    add("d2", "500", "2024-01-02 00:00:00");
    add("d1", "500", "2024-01-01 00:00:00.500");
    add("d0", "500", "2024-01-01 00:00:00");
    add("c", "750", "2024-05-01 00:00:00");
    add("b", "850", "2024-06-01 00:00:00");
    add("a", "1000", "2024-07-01 00:00:00");
    let order = ["a", "b", "c", "d0", "d1", "d2", "e", "f"];
    let one_by_one: Vec<Value> = (0..4).map(|_| door.get("*")).collect();
    assert_eq!(names(&one_by_one), order[..4]);
    assert_eq!(names(&door.get_jobs("*", 10)), order[4..]);
}

#[test]
fn runs_are_ordered_as_texts() {
    let door = Door::start();
    for first in ["2024", "0", "2024-01-01", "1999-12-31 23:59:59", "1", "2023-12-31T00:00"] {
        door.create(&[("name", "n"), ("firstRun", first)]);
    }
    let jobs = door.get_jobs("n", 10);
    let seen: Vec<String> = jobs.iter().map(|job| job["nextRun"].to_string()).collect();
    let wanted =
        ["0", "1", "\"1999-12-31 23:59:59\"", "\"2023-12-31T00:00\"", "2024", "\"2024-01-01\""];
    assert_eq!(seen, wanted);
}

#[test]
fn ties_go_by_name_then_by_id() {
    let door = Door::start();
    let mut wanted = Vec::new();
    for name in ["m/c", "m/a", "m/b", "m/a", "m/C"] {
        wanted.push((name, door.create(&[("name", name), ("firstRun", PAST)])));
    }
    wanted.sort_unstable();
    let wanted: Vec<JobId> = wanted.into_iter().map(|(_, id)| id).collect();
    let one_by_one: Vec<JobId> = (0..2).map(|_| id_of(&door.get("m/*"))).collect();
    assert_eq!(one_by_one, wanted[..2]);
    assert_eq!(ids(&door.get_jobs("m/*", 5)), wanted[2..]);
}

#[test]
fn of_a_tie_what_is_queued_comes_before_what_was_lent() {
    let door = Door::start();
    let lent = door.create(&[("name", "n"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "n");
    let queued = door.create(&[("name", "n"), ("firstRun", PAST)]);
    door.set_next_run(lent, PAST);
    assert_eq!(door.state(lent), "RUNQUEUED");
    assert_eq!(ids(&door.get_jobs("n", 2)), [queued, lent]);
}

#[test]
fn a_priority_restricts_to_itself() {
    let door = Door::start();
    for priority in ["0", "500", "1000"] {
        door.create(&[("name", "n"), ("jobPriority", priority)]);
    }
    let wish = |priority| [("name", "n"), ("jobPriority", priority)];
    door.call("GetJob", &wish("250")).fails("404 No job found");
    let job = door.call("GetJob", &wish("500")).ok().json();
    assert_eq!(job["priority"], 500);
    door.call("GetJob", &wish("500")).fails("404 No job found");
    // What is not a number is 0, which is a priority.
    assert_eq!(door.call("GetJob", &wish("low")).ok().json()["priority"], 0);
    let wish = [("name", "n"), ("jobPriority", "1000"), ("numResults", "5")];
    let jobs = door.call("GetJobs", &wish).ok().json();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_job_is_due_when_now_is_not_before_its_next_run_as_text() {
    let door = Door::start();
    for first in ["2999-01-01 00:00:00", "tomorrow", "9", "A"] {
        door.create(&[("name", "later"), ("firstRun", first)]);
    }
    door.no_job("later");
    let now = sqlite_text("DATETIME('now')");
    let due = door.create(&[("name", "now"), ("firstRun", &now)]);
    door.take(due, "now");
    let due = door.create(&[("name", "old"), ("firstRun", "1")]);
    door.take(due, "old");
}

#[test]
fn one_name_is_a_pattern() {
    let door = Door::start();
    let cases = [
        ("foo/Bar", &["foo/Bar", "foo/*", "foo*", "*", "*Bar", "f*r", "f??/B?r", "???????"][..]),
        ("foo/Bar", &["[a-g]oo/Bar", "[^x]oo*", "foo[/]Bar", "[f]*[r]", "foo?Bar", "*/*"][..]),
        ("a*b", &["a[*]b", "a*b", "a?b"][..]),
        ("a]b", &["a[]]b", "a]b"][..]),
        ("a-b", &["a[-]b", "a[x-]b"][..]),
        ("é/x", &["?/x", "é*", "[é]/x"][..]),
        ("a,b", &["a?b", "a*b", "*"][..]),
    ];
    for (name, patterns) in cases {
        for pattern in patterns {
            let id = door.named(name);
            let job = door.get(pattern);
            assert_eq!(id_of(&job), id, "{pattern} matches {name}");
            door.about("FinishJob", id).done();
        }
    }
    let misses = [
        ("foo/Bar", &["foo/bar", "FOO*", "foo", "foo/Ba", "oo/Bar", "foo/Bar?", "[g-z]oo*"][..]),
        ("foo/Bar", &["[^f]oo*", "foo/B", "foo/Bar/*", "%", "foo_Bar", "f?r", "foo/Bar,"][..]),
        ("a*b", &["a\\*b"][..]),
    ];
    for (name, patterns) in misses {
        let id = door.named(name);
        for pattern in patterns {
            door.no_job(pattern);
        }
        door.about("DeleteJob", id).done();
    }
}

/// Random patterns and names: GetJob finds what SQLite's own GLOB finds.
#[test]
fn patterns_mean_what_glob_means() {
    const ROUNDS: usize = 150;
    const NAME: [&str; 8] = ["a", "b", "c", "-", "]", "^", "*", "/"];
    const PATTERN: [&str; 12] =
        ["a", "b", "*", "?", "[a-b]", "[^a]", "[", "]", "[]-]", "/", "[^]]", "-"];
    let door = Door::start();
    let mut random = Random::new(77);
    let mut pick = |from: &[&str], most: u64| -> String {
        let count = 1 + random.below(most);
        (0..count).map(|_| from[random.below(from.len() as u64) as usize]).collect()
    };
    let mut hits = 0;
    for _ in 0..ROUNDS {
        let (name, pattern) = (pick(&NAME, 4), pick(&PATTERN, 4));
        let wanted: bool = sqlite(&format!("'{name}' GLOB '{pattern}'"));
        let id = door.named(&name);
        let reply = door.call("GetJob", &[("name", &pattern)]);
        let seen = reply.line == "200 OK";
        assert_eq!(seen, wanted, "{pattern:?} and {name:?}: {}", reply.line);
        hits += usize::from(seen);
        let verb = if seen { "FinishJob" } else { "DeleteJob" };
        door.about(verb, id).done();
    }
    assert!(hits > ROUNDS / 20, "only {hits} patterns matched");
}

#[test]
fn a_list_of_names_matches_exactly() {
    let door = Door::start();
    for name in ["a", "b", "b*", "c", "B"] {
        door.create(&[("name", name), ("firstRun", PAST)]);
    }
    let seen = names(&door.get_jobs("x, b*,a,", 10));
    assert_eq!(seen, ["a", "b*"], "no patterns, leading spaces and empty items dropped");
    door.no_job("a,b*");
    door.no_job("b ,x");
    door.no_job("x,?");
    assert_eq!(names(&door.get_jobs("c,b", 10)), ["b", "c"], "in the order of the queue");
    assert_eq!(names(&door.get_jobs("B, B", 10)), ["B"]);
}

#[test]
fn a_list_goes_by_priority_over_all_its_names() {
    let door = Door::start();
    for (name, priority) in [("a", "0"), ("b", "1000"), ("c", "500"), ("d", "1000")] {
        let headers = [("name", name), ("jobPriority", priority), ("firstRun", PAST)];
        door.create(&headers);
    }
    assert_eq!(names(&door.get_jobs("a,b,c", 10)), ["b", "c", "a"]);
}

#[test]
fn mocked_jobs_are_given_only_to_those_who_ask_for_them() {
    let door = Door::start();
    let real = door.create(&[("name", "n"), ("firstRun", "2024-01-02")]);
    let mocked = door.create(&[("name", "n"), ("firstRun", "2024-01-01"), ("mockRequest", "true")]);
    assert_eq!(ids(&door.get_jobs("n", 10)), [real]);
    door.no_job("n");
    let other = door.create(&[("name", "n"), ("firstRun", "2024-01-03")]);
    let wish = [("name", "n"), ("numResults", "10"), ("getMockedJobs", "true")];
    let jobs = door.call("GetJobs", &wish).ok().json();
    assert_eq!(ids(jobs["jobs"].as_array().unwrap()), [mocked, other], "both kinds");
    let mocked = door.create(&[("name", "n"), ("mockRequest", "true")]);
    let job = door.call("GetJob", &[("name", "n"), ("mockRequest", "true")]).ok().json();
    assert_eq!((id_of(&job), &job["data"]), (mocked, &json!({"mockRequest": true})));
}

#[test]
fn a_job_with_retry_after_is_lent() {
    let door = Door::start();
    let headers = [("name", "n"), ("data", "{\"a\":1}"), ("retryAfter", "+1 hour")];
    let id = door.create(&headers);
    let before = sqlite_text("DATETIME('now', '+1 HOUR')");
    let job = door.take(id, "n");
    let after = sqlite_text("DATETIME('now', '+1 HOUR')");
    assert_eq!(job["data"], json!({"a": 1}), "as it was before");
    let row = door.row(id);
    assert_eq!(row["state"], "RUNQUEUED");
    assert_eq!(row["data"], "{\"a\":1,\"retryAfterCount\":1}", "the count is at the end");
    let next = row["nextRun"].as_str().unwrap();
    assert!(*before <= next[..19] && next[..19] <= *after, "{before} {next} {after}");
    assert_ne!(row["lastRun"], Value::Null);
    door.no_job("n");
}

#[test]
fn a_lent_job_that_nobody_finished_is_lent_again_until_the_eleventh_time() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("retryAfter", "+1 HOUR")]);
    for count in 0..10 {
        let job = door.take(id, "n");
        let wanted = if count == 0 { json!({}) } else { json!({"retryAfterCount": count}) };
        assert_eq!(job["data"], wanted);
        assert_eq!(door.state(id), "RUNQUEUED");
        assert_eq!(door.job(id)["data"]["retryAfterCount"], count + 1);
        door.no_job("n");
        door.set_next_run(id, PAST);
    }
    let reply = door.call("GetJob", &[("name", "n")]).ok();
    assert_eq!(reply.text(), "{}", "the only one was given up");
    assert_eq!(door.state(id), "FAILED");
    assert_eq!(door.job(id)["data"]["retryAfterCount"], 10);
    door.no_job("n");
}

#[test]
fn a_job_that_is_given_up_takes_no_other_with_it() {
    let door = Door::start();
    let worn = [
        ("name", "n"),
        ("retryAfter", "+1 HOUR"),
        ("data", "{\"retryAfterCount\":10}"),
        ("firstRun", PAST),
    ];
    let given_up = door.create(&worn);
    let headers = [("name", "n"), ("numResults", "10")];
    assert_eq!(door.call("GetJobs", &headers).ok().text(), "{\"jobs\":[]}");
    assert_eq!(door.state(given_up), "FAILED");
    let (given_up, good) = (door.create(&worn), door.named("n"));
    assert_eq!(ids(&door.get_jobs("n", 10)), [good]);
    assert_eq!(door.state(given_up), "FAILED");
    // Without retryAfter the count means nothing.
    let id = door.create(&[("name", "n"), ("data", "{\"retryAfterCount\":10}")]);
    door.take(id, "n");
    assert_eq!(door.state(id), "RUNNING");
}

#[test]
fn manual_jobs_are_not_counted() {
    let door = Door::start();
    let headers = [
        ("name", "manual/Review"),
        ("retryAfter", "+1 HOUR"),
        ("repeat", "SCHEDULED, +1 DAY"),
        ("data", "{\"a\":1}"),
    ];
    let id = door.create(&headers);
    for _ in 0..12 {
        door.take(id, "manual*");
        let row = door.row(id);
        assert_eq!((&row["state"], &row["data"]), (&json!("RUNQUEUED"), &json!("{\"a\":1}")));
        door.set_next_run(id, PAST);
    }
}

#[test]
fn the_earlier_of_retry_and_repeat_is_the_next_run() {
    let door = Door::start();
    for (repeat, retry, wanted) in [
        ("FINISHED, +1 MINUTE", "+1 HOUR", "+1 MINUTE"),
        ("FINISHED, +1 DAY", "+1 HOUR", "+1 HOUR"),
        ("STARTED, +5 MINUTES", "+1 HOUR", "+5 MINUTES"),
    ] {
        let id = door.create(&[("name", "n"), ("repeat", repeat), ("retryAfter", retry)]);
        let before = sqlite_text(&format!("DATETIME('now', '{wanted}')"));
        door.take(id, "n");
        let after = sqlite_text(&format!("DATETIME('now', '{wanted}')"));
        let row = door.row(id);
        let next = row["nextRun"].as_str().unwrap();
        assert!(*before <= next[..19] && next[..19] <= *after, "{before} {next} {after}");
        assert_eq!(row["state"], "RUNQUEUED");
        assert!(!row["data"].as_str().unwrap().contains("originalNextRun"), "{row}");
        door.about("DeleteJob", id).done();
    }
}

#[test]
fn a_lent_job_that_is_scheduled_keeps_its_time_in_its_data() {
    let door = Door::start();
    let headers = [
        ("name", "n"),
        ("repeat", "SCHEDULED, +1 DAY"),
        ("retryAfter", "+1 HOUR"),
        ("firstRun", "2024-03-04 05:06:07"),
    ];
    let id = door.create(&headers);
    let job = door.take(id, "n");
    assert_eq!((&job["data"], &job["nextRun"]), (&json!({}), &json!("2024-03-04 05:06:07")));
    let data = door.job(id)["data"].clone();
    assert_eq!(data, json!({"retryAfterCount": 1, "originalNextRun": "2024-03-04 05:06:07"}));
}

#[test]
fn a_next_run_that_cannot_be_computed_fails_the_job_but_it_is_given() {
    let door = Door::start();
    let several = [("name", "several"), ("retryAfter", "+1 DAY, +1 HOUR")];
    let id = door.create(&several);
    door.take(id, "several");
    assert_eq!(door.state(id), "FAILED");
    let odd = [
        ("name", "odd"),
        ("retryAfter", "+1 DAY"),
        ("repeat", "SCHEDULED, +1 DAY"),
        ("firstRun", "1 day ago"),
    ];
    let id = door.create(&odd);
    assert_eq!(door.take(id, "odd")["nextRun"], "1 day ago");
    assert_eq!(door.state(id), "FAILED");
}

#[test]
fn only_what_is_queued_is_given() {
    let door = Door::start();
    let parent = door.named("p");
    door.take(parent, "p");
    let (first, second) = (door.child(parent, "c"), door.child(parent, "d"));
    for name in ["p", "c"] {
        door.no_job(name);
    }
    door.about("FinishJob", parent).done();
    door.no_job("p");
    door.take(first, "c");
    door.about("FailJob", first).done();
    door.about("CancelJob", second).done();
    door.assert_states(&[(first, "FAILED"), (second, "CANCELLED")]);
    for name in ["c", "d"] {
        door.no_job(name);
    }
}

#[test]
fn a_child_is_shown_with_its_parent() {
    let door = Door::embedded();
    let parent = door.create(&[("name", "p"), ("data", "{\"p\": 1}")]);
    door.take(parent, "p");
    let child = door.child(parent, "c");
    door.about("FinishJob", parent).done();
    let reply = door.call("GetJob", &[("name", "c")]).ok();
    let wanted = [
        "created",
        "data",
        "jobID",
        "lastRun",
        "name",
        "nextRun",
        "parentData",
        "parentJobID",
        "priority",
        "repeat",
        "retryAfter",
    ];
    assert_eq!(keys_of(&reply.text()), wanted);
    let job = reply.json();
    assert_eq!((&job["parentJobID"], &job["parentData"]), (&json!(parent), &json!({"p": 1})));
    assert_eq!(job["jobID"], child);
}

#[test]
fn a_parent_is_shown_with_its_ended_children() {
    let door = Door::start();
    let parent = door.named("p");
    door.take(parent, "p");
    let children: Vec<JobId> = (0..4).map(|n| door.child(parent, &format!("c{n}"))).collect();
    door.about("FinishJob", parent).done();
    for (n, child) in children.iter().enumerate().take(2) {
        door.take(*child, &format!("c{n}"));
        let data = format!("{{\"n\":{n}}}");
        door.about_with("FinishJob", *child, &[("data", &data)]).done();
    }
    for child in &children[2..] {
        door.about("CancelJob", *child).done();
    }
    let reply = door.call("GetJob", &[("name", "p")]).ok();
    let wanted = [
        "cancelledChildJobs",
        "created",
        "data",
        "finishedChildJobs",
        "jobID",
        "lastRun",
        "name",
        "nextRun",
        "priority",
        "repeat",
        "retryAfter",
    ];
    assert_eq!(keys_of(&reply.text()), wanted);
    let job = reply.json();
    let sorted = |key: &str| {
        let mut list = job[key].as_array().unwrap().clone();
        list.sort_by_key(|child| child["jobID"].as_i64());
        json!(list)
    };
    let finished = json!([
        {"data": {"n": 0}, "jobID": children[0]}, {"data": {"n": 1}, "jobID": children[1]},
    ]);
    let cancelled = json!([
        {"data": {}, "jobID": children[2]}, {"data": {}, "jobID": children[3]},
    ]);
    assert_eq!((sorted("finishedChildJobs"), sorted("cancelledChildJobs")), (finished, cancelled));
    assert!(reply.text().contains("{\"data\":{},\"jobID\":"), "{}", reply.text());
}

#[test]
fn with_one_kind_of_ended_children_the_other_list_is_empty() {
    let door = Door::start();
    let parent = door.named("p");
    door.take(parent, "p");
    let child = door.child(parent, "c");
    door.about("FinishJob", parent).done();
    door.about("CancelJob", child).done();
    let job = door.get_jobs("p", 1).remove(0);
    assert_eq!(job["finishedChildJobs"], json!([]));
    assert_eq!(job["cancelledChildJobs"], json!([{"data": {}, "jobID": child}]));
}

#[test]
fn parallel_takers_never_get_a_job_twice() {
    const TAKERS: usize = 8;
    const JOBS: usize = 600;
    let door = Door::start();
    let jobs: Vec<Value> = (0..JOBS).map(|n| json!({"name": format!("n/{}", n % 7)})).collect();
    let made = door.call("CreateJobs", &[("jobs", &json!(jobs).to_string())]).ok().json();
    let address = door.address;
    let takers: Vec<_> = (0..TAKERS)
        .map(|taker| {
            thread::spawn(move || {
                let mut link = Link::open(address).unwrap();
                let count = (1 + taker % 3).to_string();
                let mut taken = Vec::new();
                loop {
                    let reply = link.call("GetJobs", &[("name", "n/*"), ("numResults", &count)]);
                    if reply.line == "404 No job found" {
                        return taken;
                    }
                    taken.extend(ids(reply.ok().json()["jobs"].as_array().unwrap()));
                }
            })
        })
        .collect();
    let mut taken: Vec<JobId> = takers.into_iter().flat_map(|t| t.join().unwrap()).collect();
    let mut made: Vec<JobId> = serde_json::from_value(made["jobIDs"].clone()).unwrap();
    taken.sort_unstable();
    made.sort_unstable();
    assert_eq!(taken, made);
}

/// Awkward data passes through every command unharmed.
#[test]
fn large_data_survives_every_command() {
    let door = Door::embedded();
    let text = "x".repeat(1 << 20);
    let data = format!("{{\"a\":\"{text}\"}}");
    let whole = |id: JobId| door.job(id)["data"]["a"] == *text;
    let headers = [("name", "n"), ("data", data.as_str()), ("retryAfter", "+1 HOUR")];
    let id = door.create(&headers);
    assert_eq!(door.take(id, "n")["data"], json!({"a": text}), "given");
    assert_eq!(door.job(id)["data"]["retryAfterCount"], 1);
    assert!(whole(id), "taken");
    let headers = [("jobIDs", &*id.to_string()), ("decrementFailures", "true")];
    door.call("RequeueJobs", &headers).done();
    assert!(whole(id), "requeued");
    door.take(id, "n");
    door.about("RetryJob", id).done();
    assert!(whole(id), "retried");
    assert_eq!(door.job(id)["data"], json!({"a": text}), "without its count");
    let unique = [("name", "n"), ("unique", "true"), ("data", "{\"b\":1}")];
    assert_eq!(door.create(&unique), id);
    assert_eq!(door.job(id)["data"], json!({"a": text, "b": 1}), "patched");
    door.take(id, "n");
    let child = door.child(id, "c");
    door.about("FinishJob", id).done();
    assert!(whole(id), "paused");
    assert_eq!(door.take(child, "c")["parentData"]["a"], *text);
    door.about_with("FinishJob", child, &[("data", &data)]).done();
    let again = door.take(id, "n");
    assert_eq!(again["finishedChildJobs"], json!([{"data": {"a": text}, "jobID": child}]));
    assert_eq!(again["data"]["a"], *text);
    door.set(id, "priority = 1000, lastRun = '2024-01-01 00:00:00'");
    assert!(whole(id), "changed by a query");
    door.about("FailJob", id).done();
    assert!(whole(id), "failed");
}

/// Random jobs: which are handed out, and in which order, is what SQL says about the same table.
#[test]
fn jobs_are_chosen_as_sql_would_choose_them() {
    const JOBS: usize = 120;
    const ROUNDS: usize = 40;
    const NAMES: [&str; 5] = ["a/x", "a/y", "b/x", "b", "A/x"];
    const TIMES: [&str; 6] = [
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:01",
        "2024-01-01 00:00:00.001",
        "2023-12-31 23:59:59.999",
        "2024-01-01 00:01:00",
        "2999-01-01 00:00:00",
    ];
    let door = Door::embedded();
    let mut random = Random::new(2024);
    for _ in 0..JOBS {
        let priority = ["0", "250", "500", "750", "850", "1000"][random.below(6) as usize];
        let name = NAMES[random.below(5) as usize];
        let first = TIMES[random.below(6) as usize];
        door.create(&[("name", name), ("jobPriority", priority), ("firstRun", first)]);
    }
    for round in 0..ROUNDS {
        let pattern = ["*", "a/*", "?/x", "[A-Z]*", "b", "a/x"][random.below(6) as usize];
        let count = 1 + random.below(4) as usize;
        let query = format!(
            "SELECT jobID FROM jobs WHERE state = 'QUEUED' AND name GLOB '{pattern}' AND \
             nextRun <= STRFTIME('%Y-%m-%d %H:%M:%f', 'now') \
             ORDER BY priority DESC, nextRun, name, jobID LIMIT {count};"
        );
        let wanted: Vec<JobId> =
            door.sql(&query).iter().map(|row| row["jobID"].as_i64().unwrap()).collect();
        let wish = [("name", pattern), ("numResults", &count.to_string())];
        let reply = door.call("GetJobs", &wish);
        let seen = match reply.line.as_str() {
            "404 No job found" => Vec::new(),
            _ => ids(reply.ok().json()["jobs"].as_array().unwrap()),
        };
        assert_eq!(seen, wanted, "round {round}: {pattern}");
    }
}
