//! One queue behind two doors: jobs of one are visible, claimed and finished through the other, and
//! HTTP has Bedrock's features.

use serde_json::{Value, json};

use crate::harness::{Config, Door, JobId, Tenant, id_of, ids_of, sqlite_text, text, until};

fn number(id: &str) -> JobId {
    id.parse().unwrap()
}

/// The tenant of the door, over HTTP.
fn tenant(door: &Door) -> Tenant {
    door.tenant("default")
}

/// Adds one job over HTTP with options of the JSON form.
#[track_caller]
fn add(tenant: &Tenant, kind: &str, job: Value) -> String {
    let answer = tenant.post_json(&format!("jobs/{kind}"), &json!({"jobs": [job]})).expect(201);
    ids_of(&answer).remove(0)
}

#[track_caller]
fn add_refused(tenant: &Tenant, kind: &str, job: Value) -> Value {
    let answer = tenant.post_json(&format!("jobs/{kind}"), &json!({"jobs": [job]}));
    assert_eq!(answer.status / 100, 4, "{}", answer.text());
    answer.json()
}

/// Runs one job over HTTP like a pull worker.
#[track_caller]
fn run(tenant: &Tenant, kind: &str, id: &str) {
    let job = tenant.until_claimed(kind, "60s");
    assert_eq!(job["id"], id, "{job}");
    tenant.finish(&job, 200).expect(200);
}

#[test]
fn a_job_of_bedrock_is_seen_over_http() {
    let door = Door::start();
    let id = door.create(&[
        ("name", "www-prod/Foo"),
        ("data", "{\"a\": 1}"),
        ("jobPriority", "750"),
        ("firstRun", "2031-02-03 04:05:06"),
        ("repeat", "finished, +1 hour"),
    ]);
    let tenant = tenant(&door);
    let job = tenant.job(&id.to_string());
    assert_eq!((&job["type"], &job["state"]), (&json!("www-prod/Foo"), &json!("queued")));
    assert_eq!((&job["priority"], &job["tenant"]), (&json!(750), &json!("default")));
    assert_eq!(job["run_at"], "2031-02-03T04:05:06.000Z");
    assert_eq!(job["repeat"], "FINISHED, +1 HOUR");
    assert_eq!(job["attempt"], 0);
    let payload = tenant.get(&format!("jobs/{id}/payload")).expect(200).text();
    assert_eq!(payload, "{\"a\": 1}");
    assert_eq!(tenant.list("type=www-prod%2FFoo").len(), 1);
    assert_eq!(tenant.type_row("www-prod/Foo")["deferred"], 1);
}

#[test]
fn a_job_that_a_bedrock_worker_finishes_is_followed_by_its_then() {
    let door = Door::start();
    let tenant = tenant(&door);
    let followers = || tenant.list("type=next").len();
    let first = number(&add(&tenant, "t", json!({"payload": "{}", "then": "next"})));
    door.take(first, "t");
    door.call("FinishJob", &[("jobID", &first.to_string()), ("data", "{\"sum\":7}")]).ok();
    assert_eq!(followers(), 1);
    let next = tenant.until_claimed("next", "60s");
    assert_eq!(next["payload"], "{\"sum\":7}");
    let failed = number(&add(&tenant, "t", json!({"payload": "{}", "then": "next"})));
    door.take(failed, "t");
    door.call("FailJob", &[("jobID", &failed.to_string())]).ok();
    assert_eq!(followers(), 1, "it did not end well");
    let job = json!({"payload": "{}", "then": "next", "repeat": "FINISHED, +1 HOUR"});
    let repeating = number(&add(&tenant, "t", job));
    door.take(repeating, "t");
    door.call("FinishJob", &[("jobID", &repeating.to_string())]).ok();
    assert_eq!(followers(), 2, "a round has ended well");
}

#[test]
fn the_states_of_bedrock_are_those_of_http() {
    let door = Door::start();
    let tenant = tenant(&door);
    let state = |id: JobId| text(&tenant.job(&id.to_string())["state"]);
    let parent = door.named("p");
    assert_eq!(state(parent), "queued");
    door.take(parent, "p");
    assert_eq!(state(parent), "running");
    let (child, other) = (door.child(parent, "c"), door.child(parent, "d"));
    assert_eq!(state(child), "paused");
    assert_eq!(tenant.job(&child.to_string())["parent"], parent.to_string());
    door.about("FinishJob", parent).done();
    assert_eq!((state(parent), state(child)), ("paused".into(), "queued".into()));
    door.about("CancelJob", other).done();
    assert_eq!(state(other), "cancelled");
    door.take(child, "c");
    door.about("FinishJob", child).done();
    assert_eq!((state(parent), state(child)), ("queued".into(), "finished".into()));
    let failed = door.named("f");
    door.take(failed, "f");
    door.about("FailJob", failed).done();
    assert_eq!(state(failed), "failed");
}

#[test]
fn who_waits_over_http_sees_the_end_over_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.named("n");
    door.take(id, "n");
    let waiting = {
        let (tenant, id) = (tenant.clone(), id.to_string());
        std::thread::spawn(move || tenant.until_end(&id))
    };
    door.about("FinishJob", id).done();
    let job = waiting.join().unwrap();
    assert_eq!((&job["state"], &job["code"]), (&json!("finished"), &json!("ok")));
    door.assert_gone(id);
}

#[test]
fn a_job_of_http_is_taken_and_finished_over_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = tenant.add_with("t", "priority=850", &["{\"a\":1}"]).remove(0);
    let look = || door.call("GetJob", &[("name", "t")]);
    let reply = until("it can be taken", look, |reply| reply.line == "200 OK");
    let job = reply.json();
    assert_eq!((id_of(&job), &job["data"]), (number(&id), &json!({"a": 1})));
    assert_eq!((&job["priority"], &job["name"]), (&json!(850), &json!("t")));
    assert_eq!(tenant.job(&id)["state"], "running");
    assert!(tenant.claim("t", 1, "60s").is_empty(), "nobody else gets it");
    door.about("FinishJob", number(&id)).done();
    assert_eq!(tenant.until_end(&id)["state"], "finished");
}

#[test]
fn any_priority_of_http_is_taken_over_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    for priority in [1, 499, 501, 999] {
        tenant.add_with("t", &format!("priority={priority}"), &["{}"]);
    }
    tenant.until_count("t", "queued", 4);
    let seen: Vec<Value> =
        door.get_jobs("t", 10).iter().map(|job| job["priority"].clone()).collect();
    assert_eq!(seen, [json!(999), json!(501), json!(499), json!(1)]);
}

#[test]
fn an_undelivered_reply_leaves_a_job_of_http_as_it_was() {
    let door = Door::start();
    let tenant = tenant(&door);
    let headers = [("Content-Type", "application/octet-stream")];
    let payloads: [&[u8]; 3] = [b"{\"a\":1}", b"{\"retryAfterCount\":5}", b"\xff\x00 {\"a\": 1}"];
    for (number, payload) in payloads.into_iter().enumerate() {
        let name = format!("t{number}");
        let path = format!("/v1/default/jobs/{name}?run_at=2024-01-01T00:00:00Z");
        let id = ids_of(&door.daemon.call("POST", &path, &headers, payload)).remove(0);
        tenant.until_known(&[&id]);
        let before = tenant.job(&id);
        let wish = [("name", name.as_str()), ("Connection", "forget")];
        door.open().call("GetJob", &wish).fails("202 Successfully queued");
        let labels = [("type", name.as_str())];
        let taken = || tenant.client.metric("windlass_jobs_started_total", &labels);
        until("it is taken", taken, |started| *started == 1.0);
        let job = until("it is back", || tenant.job(&id), |job| job["state"] == "queued");
        assert_eq!(job, before);
        assert_eq!(tenant.get(&format!("jobs/{id}/payload")).expect(200).body, payload);
    }
}

#[test]
fn a_payload_that_is_no_object_is_shown_all_the_same() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = tenant.add_one("t", "just a line");
    tenant.until_known(&[&id]);
    assert_eq!(door.job(number(&id))["data"], "just a line");
    let look = || door.call("GetJob", &[("name", "t")]);
    let job = until("it can be taken", look, |reply| reply.line == "200 OK").json();
    assert_eq!(job["data"], "just a line");
}

#[test]
fn a_job_of_bedrock_is_claimed_and_finished_over_http() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.create(&[("name", "n"), ("data", "{\"a\":1}")]);
    let job = tenant.until_claimed("n", "60s");
    assert_eq!((&job["id"], &job["payload"]), (&json!(id.to_string()), &json!("{\"a\":1}")));
    assert_eq!(door.state(id), "RUNNING");
    door.no_job("n");
    tenant.finish(&job, 200).expect(200);
    door.assert_gone(id);
    assert_eq!(tenant.job(&id.to_string())["state"], "finished");
}

#[test]
fn what_one_door_ended_the_other_cannot_end_again() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.named("n");
    let job = tenant.until_claimed("n", "60s");
    door.about("FinishJob", id).done();
    tenant.finish(&job, 200).expect(409);
    let other = door.named("n");
    let job = tenant.until_claimed("n", "60s");
    tenant.finish(&job, 200).expect(200);
    door.about("FinishJob", other).fails("404 No job with this jobID");
}

#[test]
fn a_claim_that_expires_is_queued_again_for_both() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.named("n");
    assert_eq!(tenant.until_claimed("n", "1s")["id"], id.to_string());
    let look = || door.call("GetJob", &[("name", "n")]);
    let job = until("its lease is broken", look, |reply| reply.line == "200 OK").json();
    assert_eq!(id_of(&job), id);
}

/// HTTP leases expire all the time here; a Bedrock worker's jobs stay with it.
#[test]
fn a_job_taken_over_bedrock_has_no_time_limit() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.named("mine");
    door.take(id, "mine");
    let other = tenant.add_one("other", "x");
    for _ in 0..3 {
        assert_eq!(tenant.until_claimed("other", "1s")["id"], other);
    }
    assert_eq!(door.state(id), "RUNNING");
    door.no_job("mine");
    door.about("FinishJob", id).done();
}

#[test]
fn a_handler_of_http_runs_jobs_of_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    tenant.sh("www-prod%2FFoo", &door.home().recorder("ran"));
    let id = door.create(&[("name", "www-prod/Foo"), ("data", "{\"a\":1}")]);
    let job = tenant.until_end(&id.to_string());
    assert_eq!((&job["state"], &job["code"]), (&json!("finished"), &json!("ok")));
    assert_eq!(door.home().lines("ran"), [format!("{id} {{\"a\":1}}")]);
    door.assert_gone(id);
}

#[test]
fn a_handler_runs_parents_and_children_of_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let parent = door.named("p");
    door.take(parent, "p");
    let children = [door.child(parent, "c"), door.child(parent, "c")];
    tenant.sh("c", &door.home().recorder("children"));
    door.about("FinishJob", parent).done();
    for child in children {
        tenant.until_end(&child.to_string());
    }
    let look = || door.state(parent);
    until("the parent is queued again", look, |state| state == "QUEUED");
    let again = door.take(parent, "p");
    assert_eq!(again["finishedChildJobs"].as_array().map(Vec::len), Some(2), "{again}");
    assert_eq!(door.home().lines("children").len(), 2);
}

#[test]
fn mocked_jobs_are_neither_run_nor_pulled() {
    let door = Door::start();
    let tenant = tenant(&door);
    let mocked = door.create(&[("name", "n"), ("mockRequest", "1")]);
    let real = door.named("n");
    assert_eq!(tenant.until_claimed("n", "60s")["id"], real.to_string());
    assert!(tenant.claim("n", 5, "60s").is_empty());
    tenant.sh("n", &door.home().recorder("ran"));
    let other = door.named("n");
    tenant.until_end(&other.to_string());
    assert_eq!(door.state(mocked), "QUEUED");
    assert_eq!(door.home().lines("ran").len(), 1);
}

#[test]
fn a_job_cancelled_or_deleted_over_http_is_gone_over_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let (cancelled, deleted) = (door.named("n"), door.named("n"));
    tenant.post(&format!("jobs/{cancelled}/cancel")).expect(200);
    tenant.client.delete(&tenant.path(&format!("jobs/{deleted}"))).expect(200);
    door.assert_gone(cancelled);
    door.assert_gone(deleted);
    door.no_job("n");
}

#[test]
fn a_child_removed_over_http_does_not_keep_its_parent_waiting() {
    let door = Door::start();
    let tenant = tenant(&door);
    let parent = door.named("p");
    door.take(parent, "p");
    let (first, second) = (door.child(parent, "a"), door.child(parent, "b"));
    door.about("FinishJob", parent).done();
    tenant.post(&format!("jobs/{first}/cancel")).expect(200);
    door.assert_states(&[(first, "CANCELLED"), (parent, "PAUSED")]);
    tenant.client.delete(&tenant.path(&format!("jobs/{second}"))).expect(200);
    assert_eq!(door.state(parent), "QUEUED");
}

#[test]
fn a_failed_job_is_tried_again_over_http() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.named("n");
    door.take(id, "n");
    door.about("FailJob", id).done();
    tenant.post(&format!("jobs/{id}/retry")).expect(200);
    door.take(id, "n");
}

#[test]
fn repeat_of_http_queues_the_job_again() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = add(&tenant, "t", json!({"payload": "x", "repeat": "finished, +1 hour"}));
    assert_eq!(tenant.job(&id)["repeat"], "FINISHED, +1 HOUR");
    assert_eq!(door.job(number(&id))["repeat"], "FINISHED, +1 HOUR");
    let before = sqlite_text("DATETIME('now', '+1 HOUR')");
    run(&tenant, "t", &id);
    let after = sqlite_text("DATETIME('now', '+1 HOUR')");
    let job = tenant.job(&id);
    assert_eq!((&job["state"], &job["code"]), (&json!("queued"), &json!("ok")));
    let next = text(&door.row(number(&id))["nextRun"]);
    assert!(*before <= next[..19] && next[..19] <= *after, "{before} {next} {after}");
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    assert_eq!(tenant.job(&id)["state"], "cancelled");
}

#[test]
fn repeat_of_http_is_an_option_of_lines_and_takes_cron() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = tenant.add_with("t", "repeat=STARTED,%20%2B1%20DAY", &["x"]).remove(0);
    tenant.until_known(&[&id]);
    assert_eq!(tenant.job(&id)["repeat"], "STARTED, +1 DAY");
    let cron = "cron: 0 4 * * * Europe/Berlin";
    let first = "2024-01-01T00:00:00.000Z";
    let id = add(&tenant, "c", json!({"payload": "x", "repeat": cron, "run_at": first}));
    run(&tenant, "c", &id);
    let job = tenant.until_state(&id, "queued");
    assert_eq!(job["repeat"], cron);
    let hour = text(&job["run_at"]);
    assert!(["T02:00:00.000Z", "T03:00:00.000Z"].iter().any(|h| hour.ends_with(h)), "{hour}");
    assert!(hour > text(&job["started_at"]), "{job}");
}

#[test]
fn a_wrong_repeat_of_http_is_refused() {
    let door = Door::start();
    let tenant = tenant(&door);
    for repeat in ["often", "FINISHED", "FINISHED, +1 WEEK", "cron: nonsense", "cron:"] {
        let answer = add_refused(&tenant, "t", json!({"payload": "x", "repeat": repeat}));
        assert_eq!(answer["error"]["code"], "invalid_value", "{answer}");
        assert_eq!(answer["error"]["field"], "repeat", "{answer}");
    }
    assert!(tenant.list("").is_empty());
}

#[test]
fn a_job_that_repeats_runs_with_its_handler_again_and_again() {
    let door = Door::start();
    let tenant = tenant(&door);
    tenant.sh("t", &door.home().recorder("ran"));
    let id = add(&tenant, "t", json!({"payload": "x", "repeat": "FINISHED, +1 SECOND"}));
    let lines = until("it ran three times", || door.home().lines("ran"), |l| l.len() >= 3);
    assert!(lines.iter().all(|line| *line == format!("{id} x")), "{lines:?}");
    until(
        "it is cancelled",
        || tenant.post(&format!("jobs/{id}/cancel")).status,
        |status| *status == 200,
    );
}

#[test]
fn parent_of_http_makes_a_family() {
    let door = Door::start();
    let tenant = tenant(&door);
    let parent = add(&tenant, "p", json!({"payload": "x"}));
    let running = tenant.until_claimed("p", "60s");
    let child = add(&tenant, "c", json!({"payload": "y", "parent": parent}));
    let job = tenant.until_state(&child, "paused");
    assert_eq!(job["parent"], parent.as_str());
    assert!(tenant.claim("c", 1, "60s").is_empty());
    tenant.finish(&running, 200).expect(200);
    assert_eq!(tenant.until_state(&parent, "paused")["attempt"], 0);
    tenant.until_state(&child, "queued");
    let sibling = add(&tenant, "s", json!({"payload": "z", "parent": parent}));
    tenant.until_state(&sibling, "queued");
    run(&tenant, "c", &child);
    assert_eq!(tenant.job(&parent)["state"], "paused");
    run(&tenant, "s", &sibling);
    tenant.until_state(&parent, "queued");
    run(&tenant, "p", &parent);
    assert_eq!(tenant.until_end(&parent)["state"], "finished");
}

#[test]
fn a_wrong_parent_of_http_is_refused() {
    let door = Door::start();
    let tenant = tenant(&door);
    let queued = add(&tenant, "q", json!({"payload": "x"}));
    tenant.until_known(&[&queued]);
    let parent = door.named("p");
    door.take(parent, "p");
    let child = door.child(parent, "c");
    let other = door.tenant("other").add_one("t", "x");
    for bad in ["4711", "abc", &queued, &child.to_string(), &other] {
        add_refused(&tenant, "x", json!({"payload": "x", "parent": bad}));
    }
    assert!(tenant.list("type=x").is_empty());
}

#[test]
fn a_child_of_http_belongs_to_a_parent_of_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let parent = door.named("p");
    door.take(parent, "p");
    let child = add(&tenant, "c", json!({"payload": "{}", "parent": parent.to_string()}));
    let look = || door.about("QueryJob", number(&child));
    until("the child is there", look, |reply| reply.line == "200 OK");
    assert_eq!(door.state(number(&child)), "PAUSED");
    door.about("FinishJob", parent).done();
    door.assert_states(&[(parent, "PAUSED"), (number(&child), "QUEUED")]);
    run(&tenant, "c", &child);
    let look = || door.state(parent);
    until("the parent is queued", look, |state| state == "QUEUED");
    let again = door.take(parent, "p");
    assert_eq!(again["finishedChildJobs"], json!([{"data": {}, "jobID": number(&child)}]));
}

#[test]
fn cancelling_a_parent_over_http_cancels_its_children() {
    let door = Door::start();
    let tenant = tenant(&door);
    let parent = door.named("p");
    door.take(parent, "p");
    let child = door.child(parent, "c");
    tenant.post(&format!("jobs/{parent}/cancel")).expect(200);
    tenant.until_state(&parent.to_string(), "cancelled");
    tenant.until_state(&child.to_string(), "cancelled");
}

#[test]
fn unique_of_http_and_of_bedrock_are_two_things() {
    let door = Door::start();
    let tenant = tenant(&door);
    let wish = json!({"jobs": [{"payload": "{}", "unique": "key"}]});
    let ids = || ids_of(&tenant.post_json("jobs/t", &wish)).remove(0);
    let first = ids();
    assert_eq!(ids(), first);
    tenant.until_known(&[&first]);
    assert_eq!(door.create(&[("name", "t"), ("unique", "true")]), number(&first));
    assert_ne!(door.named("t"), number(&first));
}

#[test]
fn two_daemons_have_one_queue() {
    let config = Config::new();
    let one = Door::start_with(config.clone());
    let two = Door::start_with(config);
    let id = one.create(&[("name", "n"), ("retryAfter", "+1 HOUR")]);
    // A job is durable when the reply arrives; the other daemon sees it a moment later.
    let look = || two.call("GetJob", &[("name", "n")]).line;
    until("the other daemon has it", look, |line| line == "200 OK");
    one.no_job("n");
    assert_eq!(one.state(id), "RUNQUEUED");
    one.about("FinishJob", id).done();
    two.assert_gone(id);
    // A worker waiting at one door is woken by what comes through the other.
    let mut link = one.open();
    link.send("GetJob", &[("name", "m"), ("Connection", "wait"), ("timeout", "50000")]);
    let id = two.named("m");
    assert_eq!(id_of(&link.receive().ok().json()), id);
}

#[test]
fn the_log_tells_the_story_of_a_job_of_bedrock() {
    let door = Door::start();
    let id = door.named("n");
    door.take(id, "n");
    door.about("FinishJob", id).done();
    let look = || door.log.story(&id.to_string());
    let wanted = ["job_entered", "job_started", "job_ended"];
    until("the log has it all", look, |story| *story == wanted);
}

#[test]
fn a_suspended_type_is_not_given_over_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.named("n");
    tenant.post("types/n/suspend").expect(200);
    door.no_job("n");
    door.no_job("*");
    let other = door.named("m");
    door.take(other, "*");
    tenant.post("types/n/resume").expect(200);
    door.take(id, "n");
}

#[test]
fn a_lent_job_is_not_pulled_before_its_time() {
    let door = Door::start();
    let tenant = tenant(&door);
    let id = door.create(&[("name", "n"), ("retryAfter", "+1 HOUR")]);
    door.take(id, "n");
    assert!(tenant.claim("n", 1, "60s").is_empty());
    door.set_next_run(id, "2024-01-01");
    assert_eq!(tenant.until_claimed("n", "60s")["id"], id.to_string());
}

#[test]
fn a_payload_that_is_no_text_does_not_break_a_reply() {
    let door = Door::embedded();
    let tenant = tenant(&door);
    let headers = [("Content-Type", "application/octet-stream")];
    let bytes = [0xff, 0, 0xfe, b'"', b'\\', 10, 0xc3];
    let answer = door.daemon.call("POST", &tenant.path("jobs/t"), &headers, &bytes).expect(201);
    let id = ids_of(&answer).remove(0);
    tenant.until_known(&[&id]);
    assert!(door.job(number(&id))["data"].is_string());
    let look = || door.call("GetJob", &[("name", "t")]);
    let job = until("it can be taken", look, |reply| reply.line == "200 OK").json();
    assert_eq!(id_of(&job), number(&id));
    door.sql("SELECT * FROM jobs;");
    door.about("FinishJob", number(&id)).done();
    let payload = tenant.get(&format!("jobs/{id}/payload")).expect(200).body;
    assert_eq!(payload, bytes, "over HTTP it is as it was");
}

#[test]
fn a_large_payload_of_http_is_given_over_bedrock() {
    let door = Door::start();
    let tenant = tenant(&door);
    let data = format!("{{\"a\":\"{}\"}}", "x".repeat(20 << 20));
    let id = tenant.add_one("t", &data);
    let look = || door.call("GetJob", &[("name", "t")]);
    let reply = until("it can be taken", look, |reply| reply.line == "200 OK");
    assert!(reply.text().contains(&format!("\"data\":{data},\"jobID\":{id},")));
    door.about("FinishJob", number(&id)).done();
}

/// Ended jobs are purged at once here, except those that their parent has not seen.
#[test]
fn ended_children_are_kept_until_their_parent_has_seen_them() {
    let config = Config::new().set("job.retention", "\"0s\"");
    let door = Door::start_with(config.set("job.purge_interval", "\"50ms\""));
    let tenant = tenant(&door);
    let parent = door.named("p");
    door.take(parent, "p");
    let names = ["done", "cancelled", "rest"];
    let children = names.map(|name| door.child(parent, name));
    door.about("FinishJob", parent).done();
    door.take(children[0], "done");
    door.about_with("FinishJob", children[0], &[("data", "{\"result\":1}")]).done();
    door.about("CancelJob", children[1]).done();
    for _ in 0..3 {
        let other = tenant.add_one("other", "x");
        run(&tenant, "other", &other);
        let look = || tenant.get(&format!("jobs/{other}")).status;
        until("a job that ended later is purged", look, |status| *status == 404);
    }
    door.take(children[2], "rest");
    door.about("FinishJob", children[2]).done();
    let again = door.take(parent, "p");
    let cancelled = json!([{"data": {}, "jobID": children[1]}]);
    assert_eq!(again["cancelledChildJobs"], cancelled);
    let finished = again["finishedChildJobs"].as_array().unwrap();
    assert!(finished.contains(&json!({"data": {"result": 1}, "jobID": children[0]})), "{again}");
    assert_eq!(finished.len(), 2, "{again}");
}

#[test]
fn a_parent_with_a_handler_waits_for_its_children_and_runs_again() {
    let door = Door::start();
    let tenant = tenant(&door);
    let home = door.home();
    tenant.sh("p", &home.holder("parents", "hold"));
    tenant.sh("c", &home.recorder("children"));
    let parent = add(&tenant, "p", json!({"payload": "x"}));
    until("the parent runs", || home.lines("parents").len(), |lines| *lines == 1);
    let child = add(&tenant, "c", json!({"payload": "y", "parent": parent}));
    tenant.until_state(&child, "paused");
    assert!(home.lines("children").is_empty());
    home.let_go("hold");
    assert_eq!(tenant.until_end(&child)["state"], "finished");
    assert_eq!(tenant.until_end(&parent)["state"], "finished");
    assert_eq!(home.lines("parents"), [format!("{parent} x"), format!("{parent} x")]);
    assert_eq!(home.lines("children"), [format!("{child} y")]);
}

#[test]
fn a_job_that_repeats_goes_on_after_it_failed() {
    let door = Door::start_with(Config::new().set("retry.attempts", "1"));
    let tenant = tenant(&door);
    for (status, code) in [(400, "failed"), (500, "error")] {
        let kind = format!("t{status}");
        let id = add(&tenant, &kind, json!({"payload": "x", "repeat": "FINISHED, +1 HOUR"}));
        let job = tenant.until_claimed(&kind, "60s");
        tenant.finish(&job, status).expect(200);
        let job = tenant.until_state(&id, "queued");
        assert_eq!((&job["code"], &job["exitcode"]), (&json!(code), &json!(status)), "{job}");
        assert_eq!(job["attempt"], 0, "{job}");
        assert_eq!(tenant.type_row(&kind)["deferred"], 1);
    }
}

/// Limits of attempts, age and time apply to what Windlass runs by itself; a Bedrock job waits,
/// runs and is retried without a limit.
#[test]
fn limits_of_attempts_are_not_for_jobs_of_bedrock() {
    let config = Config::new().set("retry.attempts", "2").set("retry.age", "\"1s\"");
    let door = Door::start_with(config.set("job.timeout", "\"1s\""));
    let other = door.tenant("other");
    let (waits, runs) = (door.named("waits"), door.named("runs"));
    door.take(runs, "runs");
    let lent = door.create(&[("name", "lent"), ("retryAfter", "+1 HOUR")]);
    door.take(lent, "lent");
    // A job of a tenant without Bedrock that is never tried is given up meanwhile.
    let given_up = other.add_one("other", "x");
    assert_eq!(other.until_end(&given_up)["state"], "failed");
    door.assert_states(&[(waits, "QUEUED"), (runs, "RUNNING"), (lent, "RUNQUEUED")]);
    for _ in 0..5 {
        door.about("RetryJob", runs).done();
        door.take(runs, "runs");
        door.call("RequeueJobs", &[("jobIDs", &lent.to_string())]).done();
        door.take(lent, "lent");
    }
    door.take(waits, "waits");
    for id in [waits, runs, lent] {
        door.about("FinishJob", id).done();
    }
}
