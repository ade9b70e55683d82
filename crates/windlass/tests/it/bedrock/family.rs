//! Parents and children over Bedrock: the seed's story, and every transition of the contract.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Door, JobId, Link, sqlite_text};

/// A job in one of the two states of a job with a worker.
#[track_caller]
fn taken(door: &Door, name: &str, state: &str, more: &[(&str, &str)]) -> JobId {
    let mut headers = vec![("name", name)];
    if state == "RUNQUEUED" {
        headers.push(("retryAfter", "+1 HOUR"));
    }
    headers.extend_from_slice(more);
    let id = door.create(&headers);
    door.take(id, name);
    assert_eq!(door.state(id), state);
    id
}

/// A claimed child of a waiting parent.
#[track_caller]
fn taken_child(door: &Door, parent: JobId, name: &str, state: &str) -> JobId {
    taken(door, name, state, &[("parentJobID", &parent.to_string())])
}

/// A parent that waits for one child, which is called `rest` and queued.
#[track_caller]
fn waiting(door: &Door, name: &str) -> (JobId, JobId) {
    let parent = taken(door, name, "RUNNING", &[]);
    let rest = door.child(parent, "rest");
    door.about("FinishJob", parent).done();
    door.assert_states(&[(parent, "PAUSED"), (rest, "QUEUED")]);
    (parent, rest)
}

#[track_caller]
fn end(door: &Door, id: JobId, name: &str) {
    door.take(id, name);
    door.about("FinishJob", id).done();
}

#[test]
fn the_story_of_a_parent_and_its_children() {
    let door = Door::embedded();
    let parent = door.create(&[("name", "parent"), ("data", "{\"p\":1}")]);
    door.take(parent, "parent");
    let (first, second) = (door.child(parent, "first"), door.child(parent, "second"));
    door.assert_states(&[(parent, "RUNNING"), (first, "PAUSED"), (second, "PAUSED")]);
    door.about("FinishJob", parent).done();
    door.assert_states(&[(parent, "PAUSED"), (first, "QUEUED"), (second, "QUEUED")]);
    let job = door.take(first, "first");
    assert_eq!((&job["parentJobID"], &job["parentData"]), (&json!(parent), &json!({"p": 1})));
    // A child may create a sibling on behalf of its parent.
    let third = door.child(parent, "third");
    assert_eq!(door.state(third), "QUEUED");
    door.about_with("FinishJob", first, &[("data", "{\"done\":1}")]).done();
    door.about("CancelJob", third).done();
    door.assert_states(&[(parent, "PAUSED"), (first, "FINISHED"), (third, "CANCELLED")]);
    end(&door, second, "second");
    door.assert_states(&[(parent, "QUEUED"), (second, "FINISHED")]);
    let again = door.take(parent, "parent");
    let done = again["finishedChildJobs"].as_array().unwrap();
    let done: Vec<&Value> = done.iter().map(|child| &child["jobID"]).collect();
    assert!(done.contains(&&json!(first)) && done.contains(&&json!(second)), "{again}");
    assert_eq!(again["cancelledChildJobs"], json!([{"data": {}, "jobID": third}]));
    door.about("FinishJob", parent).done();
    assert_eq!(door.count(), 0, "nothing is left");
}

#[test]
fn a_parent_may_have_children_again_and_again() {
    let door = Door::start();
    let parent = door.named("p");
    for _ in 0..3 {
        door.take(parent, "p");
        let child = door.child(parent, "c");
        door.about("FinishJob", parent).done();
        end(&door, child, "c");
    }
    door.take(parent, "p");
    door.about("FinishJob", parent).done();
    door.assert_gone(parent);
}

#[test]
fn created_then_queued_or_paused() {
    let door = Door::start();
    assert_eq!(door.state(door.named("n")), "QUEUED");
    for state in ["RUNNING", "RUNQUEUED"] {
        let parent = taken(&door, state, state, &[]);
        assert_eq!(door.state(door.child(parent, "c")), "PAUSED");
    }
    let (parent, _) = waiting(&door, "p");
    assert_eq!(door.state(door.child(parent, "c")), "QUEUED");
}

#[test]
fn queued_then_running_or_lent() {
    let door = Door::start();
    taken(&door, "a", "RUNNING", &[]);
    taken(&door, "b", "RUNQUEUED", &[]);
    let id = door.create(&[("name", "c"), ("retryAfter", "+1 HOUR")]);
    assert_eq!(door.get_jobs("c", 3).len(), 1);
    assert_eq!(door.state(id), "RUNQUEUED");
}

#[test]
fn lent_then_lent_again_when_it_is_due() {
    let door = Door::start();
    let id = taken(&door, "n", "RUNQUEUED", &[]);
    door.no_job("n");
    door.set_next_run(id, "2024-01-01 00:00:00");
    door.take(id, "n");
    let job = door.job(id);
    assert_eq!((&job["state"], &job["data"]["retryAfterCount"]), (&json!("RUNQUEUED"), &json!(2)));
}

#[test]
fn finished_with_a_repeat_then_queued() {
    let door = Door::start();
    for state in ["RUNNING", "RUNQUEUED"] {
        let id = taken(&door, state, state, &[("repeat", "FINISHED, +1 HOUR")]);
        door.about("FinishJob", id).done();
        assert_eq!(door.state(id), "QUEUED");
    }
}

#[test]
fn finished_with_children_then_paused() {
    let door = Door::start();
    for state in ["RUNNING", "RUNQUEUED"] {
        let id = taken(&door, state, state, &[("repeat", "FINISHED, +1 HOUR")]);
        let child = door.child(id, "c");
        door.about("FinishJob", id).done();
        door.assert_states(&[(id, "PAUSED"), (child, "QUEUED")]);
    }
}

#[test]
fn a_finished_child_is_finished_and_the_last_one_queues_its_parent() {
    let door = Door::start();
    for state in ["RUNNING", "RUNQUEUED"] {
        let (parent, rest) = waiting(&door, &format!("p-{state}"));
        let child = taken_child(&door, parent, "c", state);
        door.about("FinishJob", child).done();
        door.assert_states(&[(child, "FINISHED"), (parent, "PAUSED")]);
        end(&door, rest, "rest");
        door.assert_states(&[(rest, "FINISHED"), (parent, "QUEUED")]);
    }
}

#[test]
fn a_plain_job_that_is_finished_is_deleted() {
    let door = Door::start();
    for state in ["RUNNING", "RUNQUEUED"] {
        let id = taken(&door, state, state, &[]);
        door.about("FinishJob", id).done();
        door.assert_gone(id);
    }
}

#[test]
fn retried_then_queued() {
    let door = Door::start();
    for state in ["RUNNING", "RUNQUEUED"] {
        let id = taken(&door, state, state, &[]);
        door.about("RetryJob", id).done();
        assert_eq!(door.state(id), "QUEUED");
    }
}

#[test]
fn failed_then_failed() {
    let door = Door::start();
    for state in ["RUNNING", "RUNQUEUED"] {
        let id = taken(&door, state, state, &[]);
        door.about("FailJob", id).done();
        assert_eq!(door.state(id), "FAILED");
    }
}

#[test]
fn cancelled_then_cancelled() {
    let door = Door::start();
    let (parent, rest) = waiting(&door, "p");
    let queued = door.child(parent, "queued");
    let lent = taken_child(&door, parent, "lent", "RUNQUEUED");
    let failed = taken_child(&door, parent, "failed", "RUNNING");
    door.about("FailJob", failed).done();
    for id in [queued, lent, failed] {
        door.about("CancelJob", id).done();
        assert_eq!(door.state(id), "CANCELLED");
    }
    door.assert_states(&[(parent, "PAUSED"), (rest, "QUEUED")]);
    door.set_next_run(lent, "2024-01-01 00:00:00");
    door.no_job("lent");
}

#[test]
fn ended_children_are_deleted_with_the_next_end() {
    let door = Door::start();
    for verb in ["FinishJob", "RetryJob"] {
        let (parent, rest) = waiting(&door, verb);
        let cancelled = door.child(parent, "c");
        door.about("CancelJob", cancelled).done();
        end(&door, rest, "rest");
        door.take(parent, verb);
        door.about(verb, parent).done();
        door.assert_gone(cancelled);
        door.assert_gone(rest);
    }
}

#[test]
fn ended_children_are_deleted_also_when_new_ones_wait() {
    let door = Door::start();
    let (parent, rest) = waiting(&door, "p");
    end(&door, rest, "rest");
    door.take(parent, "p");
    let next = door.child(parent, "next");
    door.about("FinishJob", parent).done();
    door.assert_gone(rest);
    door.assert_states(&[(parent, "PAUSED"), (next, "QUEUED")]);
}

#[test]
fn a_parent_that_repeats_waits_for_its_children_first() {
    let door = Door::start();
    let parent = taken(&door, "p", "RUNNING", &[("repeat", "FINISHED, +1 HOUR")]);
    let child = door.child(parent, "c");
    door.about("FinishJob", parent).done();
    end(&door, child, "c");
    door.take(parent, "p");
    let before = sqlite_text("DATETIME('now', '+1 HOUR')");
    door.about("FinishJob", parent).done();
    let row = door.row(parent);
    assert_eq!(row["state"], "QUEUED");
    assert!(row["nextRun"].as_str().unwrap() >= before.as_str(), "{row}");
    door.assert_gone(child);
}

#[test]
fn a_parent_without_living_children_does_not_wait_for_ever() {
    let door = Door::start();
    let (parent, rest) = waiting(&door, "deleted");
    door.about("DeleteJob", rest).done();
    assert_eq!(door.state(parent), "QUEUED", "the last child was deleted");
    let (parent, rest) = waiting(&door, "failed");
    door.take(rest, "rest");
    door.about("FailJob", rest).done();
    assert_eq!(door.state(parent), "PAUSED", "somebody must decide about the failed one");
    door.about("DeleteJob", rest).done();
    assert_eq!(door.state(parent), "QUEUED");
}

#[test]
fn a_child_whose_parent_is_gone_is_finished_like_any_job() {
    let door = Door::start();
    let (parent, rest) = waiting(&door, "p");
    door.call("RequeueJobs", &[("jobIDs", &parent.to_string())]).done();
    door.about("DeleteJob", parent).done();
    end(&door, rest, "rest");
    door.assert_gone(rest);
}

#[test]
fn families_do_not_touch_each_other() {
    let door = Door::embedded();
    let (one, one_rest) = waiting(&door, "one");
    door.set(one_rest, "name = 'one-rest'");
    let (two, two_rest) = waiting(&door, "two");
    end(&door, one_rest, "one-rest");
    door.assert_states(&[(one, "QUEUED"), (two, "PAUSED"), (two_rest, "QUEUED")]);
}

#[test]
fn a_parent_with_hundreds_of_children_is_resumed_by_the_last() {
    const CHILDREN: usize = 300;
    let door = Door::start();
    let parent = taken(&door, "p", "RUNNING", &[]);
    let jobs: Vec<Value> = (0..CHILDREN)
        .map(|n| json!({"name": "c", "parentJobID": parent, "data": {"n": n}}))
        .collect();
    door.call("CreateJobs", &[("jobs", &json!(jobs).to_string())]).ok();
    door.about("FinishJob", parent).done();
    let children = door.get_jobs("c", CHILDREN);
    assert_eq!(children.len(), CHILDREN);
    for child in &children {
        assert_eq!(door.state(parent), "PAUSED");
        door.about("FinishJob", child["jobID"].as_i64().unwrap()).done();
    }
    let again = door.take(parent, "p");
    assert_eq!(again["finishedChildJobs"].as_array().map(Vec::len), Some(CHILDREN));
}

#[test]
fn children_that_end_at_once_resume_their_parent_once() {
    const ROUNDS: usize = 10;
    const CHILDREN: usize = 8;
    let door = Door::start();
    let address = door.address;
    for _ in 0..ROUNDS {
        let parent = taken(&door, "p", "RUNNING", &[]);
        let children: Vec<JobId> = (0..CHILDREN).map(|_| door.child(parent, "c")).collect();
        door.about("FinishJob", parent).done();
        assert_eq!(door.get_jobs("c", CHILDREN - 2).len(), CHILDREN - 2);
        let enders: Vec<_> = children
            .into_iter()
            .map(|child| {
                let verb = if door.state(child) == "RUNNING" { "FinishJob" } else { "CancelJob" };
                let mut link = Link::open(address).unwrap();
                thread::spawn(move || link.call(verb, &[("jobID", &child.to_string())]).done())
            })
            .collect();
        for ender in enders {
            ender.join().unwrap();
        }
        let again = door.take(parent, "p");
        assert_eq!(again["finishedChildJobs"].as_array().map(Vec::len), Some(CHILDREN - 2));
        assert_eq!(again["cancelledChildJobs"].as_array().map(Vec::len), Some(2));
        door.about("FinishJob", parent).done();
        door.assert_gone(parent);
    }
}

/// A child is added while its parent ends: it either belongs to a waiting parent, or is refused.
#[test]
fn a_child_that_comes_late_is_never_left_behind() {
    const ROUNDS: usize = 40;
    let door = Door::start();
    let mut link = door.open();
    let mut both = [0, 0];
    for _ in 0..ROUNDS {
        let parent = taken(&door, "p", "RUNNING", &[]);
        link.send("CreateJob", &[("name", "c"), ("parentJobID", &parent.to_string())]);
        door.about("FinishJob", parent).done();
        let reply = link.receive();
        if reply.line == "200 OK" {
            both[0] += 1;
            let child = reply.json()["jobID"].as_i64().unwrap();
            door.assert_states(&[(parent, "PAUSED"), (child, "QUEUED")]);
            end(&door, child, "c");
            end(&door, parent, "p");
        } else {
            both[1] += 1;
            assert_eq!(reply.line, "404 parentJobID does not exist");
        }
        assert_eq!(door.count(), 0, "{both:?}");
    }
}
