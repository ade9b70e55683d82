//! The sample session of the seed, line by line; only the times differ.

use serde_json::{Value, json};

use crate::harness::{Door, JobId, id_of};

/// Sends the lines as if typed, and reads the reply.
#[track_caller]
fn typed(door: &Door, lines: &[&str]) -> crate::harness::Reply {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    door.call_raw(format!("{text}\n").as_bytes())
}

/// The reply contains the keys and values that the seed prints.
#[track_caller]
fn shows(seen: &Value, wanted: &Value) {
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(seen[key], *value, "{key} of {seen}");
    }
}

fn created(door: &Door) -> JobId {
    let reply = typed(
        door,
        &["CreateJob", "name: foo", "data: {\"value\":1}", "repeat: finished, +1 minute"],
    );
    assert_eq!(reply.line, "200 OK");
    let id = id_of(&reply.json());
    let body = format!("{{\"jobID\":{id}}}");
    assert_eq!(reply.header("Content-Length"), Some(body.len().to_string().as_str()));
    assert_eq!(reply.text(), body);
    id
}

#[test]
fn the_sample_session_runs_as_printed() {
    let door = Door::embedded();
    let id = created(&door);

    let reply = typed(&door, &["GetJob", "name: foo"]).ok();
    shows(&reply.json(), &json!({"data": {"value": 1}, "jobID": id, "name": "foo"}));

    let id_line = format!("jobID: {id}");
    typed(&door, &["UpdateJob", &id_line, "data: {\"value\":2}"]).done();

    let reply = typed(&door, &["QueryJob", &id_line]).ok();
    let wanted = json!({"data": {"value": 2}, "jobID": id, "name": "foo", "state": "RUNNING"});
    shows(&reply.json(), &wanted);

    typed(&door, &["FinishJob", &id_line, "data: {\"value\":3}"]).done();
    typed(&door, &["GetJob", "name: foo"]).fails("404 No job found");

    let reply = typed(&door, &["Query", "query: select * from jobs;"]).ok();
    let text = reply.text();
    let lines: Vec<&str> = text.lines().collect();
    let columns =
        "created|jobID|state|name|nextRun|lastRun|repeat|data|priority|parentJobID|retryAfter";
    assert_eq!((lines.len(), lines[0]), (2, columns));
    let cells: Vec<&str> = lines[1].split('|').collect();
    assert_eq!(cells[1..4], [id.to_string().as_str(), "QUEUED", "foo"]);
    assert_eq!(cells[6..8], ["FINISHED, +1 MINUTE", "{\"value\":3}"]);
    let (next, last) = (cells[4], cells[5]);
    assert!(next > last, "queued for the future: {next} {last}");

    // Once the minute has passed, the job is back with the data of its last end.
    door.set_next_run(id, last);
    let reply = typed(&door, &["GetJob", "name: foo"]).ok();
    shows(&reply.json(), &json!({"data": {"value": 3}, "jobID": id, "name": "foo"}));
}

#[test]
fn the_worker_of_the_sample_may_wait_for_its_job() {
    let door = Door::start();
    let mut worker = door.open();
    worker.raw(b"GetJob\nname: foo\nConnection: wait\nTimeout: 60000\n\n");
    let id = created(&door);
    let reply = worker.receive().ok();
    shows(&reply.json(), &json!({"data": {"value": 1}, "jobID": id, "name": "foo"}));
}
