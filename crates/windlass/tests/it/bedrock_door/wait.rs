//! Waiting for jobs over Bedrock: a waiting worker is woken by anything that makes a matching job
//! due.
//!
//! The daemons of these tests poll their store only once an hour, so that nothing is woken by
//! chance.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Config, Door, JobId, Link, id_of, sqlite_text, until};

const TICKS_PER_SECOND: f64 = 100.0;
const PATIENCE: &str = "50000";

fn patient() -> Door {
    patient_on(Config::new())
}

fn patient_on(config: Config) -> Door {
    Door::start_with(config.set("poll.min", "\"1h\"").set("poll.max", "\"1h\""))
}

/// A connection that waits for a job of this name; other requests have been answered since it
/// asked.
#[track_caller]
fn waiter(door: &Door, name: &str) -> Link {
    let mut link = door.open();
    link.send("GetJob", &[("name", name), ("Connection", "wait"), ("timeout", PATIENCE)]);
    for _ in 0..3 {
        door.open().call("Ping", &[]).ok();
    }
    link
}

#[track_caller]
fn gets(link: &mut Link, id: JobId) -> Value {
    let job = link.receive().ok().json();
    assert_eq!(job["jobID"], id, "{job}");
    job
}

#[track_caller]
fn running(door: &Door, name: &str) -> JobId {
    let id = door.named(name);
    door.take(id, name);
    id
}

#[test]
fn a_job_that_is_there_is_given_at_once() {
    let door = patient();
    let id = door.named("n");
    gets(&mut waiter(&door, "n"), id);
    assert_eq!(door.state(id), "RUNNING");
}

#[test]
fn without_wait_nobody_waits() {
    let door = patient();
    let headers = [("name", "n"), ("timeout", PATIENCE)];
    door.call("GetJob", &headers).fails("404 No job found");
    let headers = [("name", "n"), ("timeout", PATIENCE), ("Connection", "keep-alive")];
    door.call("GetJob", &headers).fails("404 No job found");
}

#[test]
fn when_the_time_is_over_no_job_was_found() {
    let door = patient();
    let started = Instant::now();
    let headers = [("name", "n"), ("Connection", "wait"), ("timeout", "300")];
    door.call("GetJob", &headers).fails("404 No job found");
    assert!(started.elapsed() >= Duration::from_millis(300), "it has waited");
    let headers = [headers[0], headers[1], headers[2], ("numResults", "4")];
    door.call("GetJobs", &headers).fails("404 No job found");
    // The connection is still usable.
    let id = door.named("n");
    door.take(id, "n");
}

#[test]
fn a_new_job_wakes_who_waits_for_it() {
    let door = patient();
    let mut link = waiter(&door, "www/*");
    door.named("other");
    let id = door.named("www/Foo");
    let job = gets(&mut link, id);
    assert_eq!(job.as_object().unwrap().len(), 9, "{job}");
    link.call("FinishJob", &[("jobID", &id.to_string())]).done();
}

#[test]
fn a_waiter_of_a_list_is_woken_by_each_of_its_names() {
    let door = patient();
    for name in ["a", "b"] {
        let mut link = waiter(&door, "a, b");
        let id = door.named(name);
        gets(&mut link, id);
    }
}

#[test]
fn a_waiter_for_many_gets_what_there_is() {
    let door = patient();
    let mut link = door.open();
    let headers =
        [("name", "n"), ("numResults", "10"), ("Connection", "wait"), ("timeout", PATIENCE)];
    link.send("GetJobs", &headers);
    door.call("Ping", &[]).ok();
    let jobs = json!([{"name": "n"}, {"name": "n"}, {"name": "n"}]).to_string();
    door.call("CreateJobs", &[("jobs", &jobs)]).ok();
    let reply = link.receive().ok().json();
    let count = reply["jobs"].as_array().unwrap().len();
    assert!((1..=3).contains(&count), "{reply}");
    assert_eq!(door.tenant("default").list("state=queued").len(), 3 - count);
}

#[test]
fn a_waiter_for_a_priority_gets_no_other() {
    let door = patient();
    let mut link = door.open();
    let headers =
        [("name", "n"), ("jobPriority", "1000"), ("Connection", "wait"), ("timeout", PATIENCE)];
    link.send("GetJob", &headers);
    let other = door.named("n");
    let id = door.create(&[("name", "n"), ("jobPriority", "1000")]);
    gets(&mut link, id);
    assert_eq!(door.state(other), "QUEUED");
}

#[test]
fn a_mocked_job_wakes_only_who_asks_for_mocked_ones() {
    let door = patient();
    let mut real = waiter(&door, "n");
    let mut mocked = door.open();
    let headers =
        [("name", "n"), ("mockRequest", "1"), ("Connection", "wait"), ("timeout", PATIENCE)];
    mocked.send("GetJob", &headers);
    let id = door.create(&[("name", "n"), ("mockRequest", "1")]);
    gets(&mut mocked, id);
    let id = door.named("n");
    gets(&mut real, id);
}

#[test]
fn a_job_added_over_http_wakes() {
    let door = patient();
    let mut link = waiter(&door, "t");
    let id = door.tenant("default").add_one("t", "{\"a\":1}");
    let job = gets(&mut link, id.parse().unwrap());
    assert_eq!(job["data"], json!({"a": 1}));
}

#[test]
fn a_job_that_becomes_due_wakes() {
    let door = patient();
    let mut link = waiter(&door, "n");
    let first = sqlite_text("DATETIME('now', '+2 SECONDS')");
    let id = door.create(&[("name", "n"), ("firstRun", &first)]);
    let job = gets(&mut link, id);
    assert_eq!(job["nextRun"], first);
    assert!(door.row(id)["lastRun"].as_str().unwrap() >= first.as_str(), "not before its time");
}

#[test]
fn a_job_that_was_deferred_before_anyone_waited_wakes() {
    let door = patient();
    let first = sqlite_text("DATETIME('now', '+2 SECONDS')");
    let id = door.create(&[("name", "n"), ("firstRun", &first)]);
    gets(&mut waiter(&door, "n*"), id);
}

#[test]
fn a_delayed_job_of_http_wakes() {
    let door = patient();
    let mut link = waiter(&door, "t");
    let id = door.tenant("default").add_with("t", "delay=2s", &["x"]).remove(0);
    gets(&mut link, id.parse().unwrap());
}

#[test]
fn a_retry_wakes_at_once_or_after_its_delay() {
    let door = patient();
    let id = running(&door, "n");
    let mut link = waiter(&door, "n");
    door.about("RetryJob", id).done();
    gets(&mut link, id);
    let mut link = waiter(&door, "m");
    door.about_with("RetryJob", id, &[("name", "m"), ("delay", "2")]).done();
    gets(&mut link, id);
}

#[test]
fn a_job_that_nobody_finished_in_time_wakes() {
    let door = patient();
    let id = door.create(&[("name", "n"), ("retryAfter", "+1 SECOND")]);
    door.take(id, "n");
    let job = gets(&mut waiter(&door, "n"), id);
    assert_eq!(job["data"]["retryAfterCount"], 1);
}

#[test]
fn the_children_of_a_parent_that_finished_wake() {
    let door = patient();
    let parent = running(&door, "p");
    let child = door.child(parent, "c");
    let mut link = waiter(&door, "c");
    door.about("FinishJob", parent).done();
    gets(&mut link, child);
}

#[test]
fn the_last_child_wakes_who_waits_for_the_parent() {
    let door = patient();
    for verb in ["FinishJob", "CancelJob", "DeleteJob"] {
        let parent = running(&door, "p");
        let child = door.child(parent, "c");
        door.about("FinishJob", parent).done();
        let mut link = waiter(&door, "p");
        if verb == "FinishJob" {
            door.take(child, "c");
        }
        door.about(verb, child).done();
        gets(&mut link, parent);
        door.about("FinishJob", parent).done();
    }
}

#[test]
fn a_repeat_a_requeue_and_an_update_wake() {
    let door = patient();
    let id = door.create(&[("name", "n"), ("repeat", "FINISHED, -1 DAY")]);
    door.take(id, "n");
    let mut link = waiter(&door, "n");
    door.about("FinishJob", id).done();
    gets(&mut link, id);

    let mut link = waiter(&door, "n");
    door.call("RequeueJobs", &[("jobIDs", &id.to_string())]).done();
    gets(&mut link, id);

    let later = door.create(&[("name", "later"), ("firstRun", "2999-01-01 00:00:00")]);
    let mut link = waiter(&door, "later");
    door.about_with("UpdateJob", later, &[("data", "{}"), ("nextRun", "2024-01-01")]).done();
    gets(&mut link, later);
}

#[test]
fn a_change_by_query_wakes() {
    let door = patient();
    let id = door.create(&[("name", "n"), ("firstRun", "2999-01-01 00:00:00")]);
    let mut link = waiter(&door, "n");
    door.set_next_run(id, "2024-01-01 00:00:00");
    gets(&mut link, id);
}

#[test]
fn a_job_that_is_tried_again_over_http_wakes() {
    let door = patient();
    let tenant = door.tenant("default");
    let id = tenant.add_one("t", "x");
    let taken = tenant.until_claimed("t", "60s");
    let mut link = waiter(&door, "t");
    let back = json!({"token": taken["token"]});
    tenant.post_json(&format!("jobs/{id}/release"), &back).expect(200);
    gets(&mut link, id.parse().unwrap());
}

#[test]
fn who_is_gone_takes_no_job_with_it() {
    let door = patient();
    for _ in 0..5 {
        drop(waiter(&door, "n"));
        let id = door.named("n");
        let look = || door.call("GetJob", &[("name", "n")]).line;
        until("the job comes to who is there", look, |line| line == "200 OK");
        door.about("FinishJob", id).done();
    }
}

/// A reply that no buffer on the way can hold, and a client that reads little or none of it.
#[test]
fn jobs_of_a_large_reply_that_nobody_took_come_back() {
    const JOBS: usize = 24;
    let door = patient_on(Config::embedded());
    let data = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    for _ in 0..JOBS {
        door.create(&[("name", "n"), ("data", &data), ("retryAfter", "+1 HOUR")]);
    }
    for read in [false, true] {
        let mut link = door.open();
        link.send("GetJobs", &[("name", "n"), ("numResults", "100")]);
        if read {
            link.line_of_reply();
        }
        drop(link);
        let back = "(SELECT COUNT(*) FROM jobs WHERE state = 'QUEUED' AND \
                    COALESCE(JSON_EXTRACT(data, '$.retryAfterCount'), 0) = 0)";
        let look = || door.value(back);
        until("all are back", look, |count| *count == JOBS);
    }
    assert_eq!(door.get_jobs("n", 100).len(), JOBS);
}

/// The reply is never read: the connection is cut while the job is on its way.
#[test]
fn a_reply_that_cannot_be_written_gives_its_job_back() {
    let door = patient();
    for _ in 0..10 {
        let id = door.create(&[("name", "n"), ("firstRun", "2024-01-01")]);
        let mut link = door.open();
        link.send("GetJob", &[("name", "n")]);
        drop(link);
        // It was either not claimed, or requeued, or written before the end was known.
        let state = door.state(id);
        assert!(["QUEUED", "RUNNING"].contains(&state.as_str()), "{state}");
        door.call("RequeueJobs", &[("jobIDs", &id.to_string())]).done();
        let look = || door.call("GetJob", &[("name", "n")]).line;
        until("it can be taken", look, |line| line == "200 OK");
        until("it ends", || door.about("FinishJob", id).line, |line| line == "200 OK");
    }
}

#[test]
fn a_waiting_connection_answers_what_was_sent_behind_it() {
    let door = patient();
    let mut link = waiter(&door, "n");
    link.send("Ping", &[("Content-Length", "0")]);
    let id = door.named("n");
    gets(&mut link, id);
    link.receive().ok();
}

#[test]
fn one_job_wakes_one_of_many() {
    const WAITERS: usize = 20;
    let door = patient();
    let mut links: Vec<Link> = (0..WAITERS).map(|_| waiter(&door, "n")).collect();
    let mut given = HashSet::new();
    let mut made = HashSet::new();
    for _ in 0..WAITERS {
        made.insert(door.named("n"));
    }
    for link in &mut links {
        given.insert(id_of(&link.receive().ok().json()));
    }
    assert_eq!(given, made);
}

/// Two thousand workers wait, and the daemon is idle meanwhile; then each gets exactly one job.
#[test]
fn thousands_wait_at_rest_and_each_gets_exactly_one() {
    const WAITERS: usize = 2000;
    let door = patient();
    let mut links: Vec<Link> = (0..WAITERS)
        .map(|_| {
            let mut link = door.open();
            let wish = [("name", "work/*"), ("Connection", "wait"), ("timeout", PATIENCE)];
            link.send("GetJob", &wish);
            link
        })
        .collect();
    // The signal comes after two idle seconds.
    let mut bell = waiter(&door, "bell");
    let (ticks, started) = (door.cpu_ticks(), Instant::now());
    let first = sqlite_text("DATETIME('now', '+3 SECONDS')");
    let rung = door.create(&[("name", "bell"), ("firstRun", &first)]);
    gets(&mut bell, rung);
    let used = (door.cpu_ticks() - ticks) as f64;
    let window = started.elapsed().as_secs_f64() * TICKS_PER_SECOND;
    assert!(used < window * 0.5, "{used} of {window} ticks: waiting costs work");

    let mut made = HashSet::new();
    for batch in 0..WAITERS / 100 {
        let name = format!("work/{batch}");
        let jobs: Vec<Value> = (0..100).map(|_| json!({"name": name})).collect();
        let reply = door.call("CreateJobs", &[("jobs", &json!(jobs).to_string())]).ok().json();
        made.extend(reply["jobIDs"].as_array().unwrap().iter().filter_map(Value::as_i64));
    }
    let mut given = HashSet::new();
    for link in &mut links {
        let id = id_of(&link.receive().ok().json());
        assert!(given.insert(id), "{id} was given twice");
    }
    assert_eq!(given, made);
    door.no_job("work/*");
}
