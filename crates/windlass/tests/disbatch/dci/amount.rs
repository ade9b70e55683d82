//! Very many tasks at once: lists and collections larger than what is kept in memory, and a
//! database that fails in the middle.

use std::fs;
use std::io::{Read, Write};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Home, Proxy, form, mongohost, until};

/// Output of each of the tasks.
const OUTPUT_BYTES: usize = 20_000;
const TASKS: usize = 3_000;

/// The peak memory of a program.
fn memory_peak(dci: &Dci) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", dci.program.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn with_output(home: &Home, count: usize) -> ObjectId {
    let queue = home.queue("demo");
    let task = |number: usize| -> Document {
        let number = i64::try_from(number).unwrap();
        doc! {
            "queue": queue, "status": 1, "node": "n", "params": {"n": number},
            "ctime": DateTime::now(), "mtime": DateTime::now(),
            "stdout": "x".repeat(OUTPUT_BYTES), "stderr": "",
        }
    };
    for from in (0..count).step_by(500) {
        home.mongo.insert_many("tasks", (from..from + 500).map(task).collect());
    }
    queue
}

#[test]
fn a_list_that_does_not_fit_into_memory_is_sent_piece_by_piece() {
    let home = Home::released();
    let dci = home.dci();
    let queue = with_output(&home, TASKS);
    let before = memory_peak(&dci);
    let listed = dci.http.get(&format!("/tasks?queue={queue}")).ok();
    assert_eq!(listed.as_array().unwrap().len(), TASKS);
    let grown = memory_peak(&dci) - before;
    assert!(grown < TASKS * OUTPUT_BYTES, "{grown} bytes more in memory");
    let terse = dci.http.get(&format!("/tasks?queue={queue}&.terse=1&.pretty=1")).expect(200);
    assert!(terse.text().contains("[terse mode]"));
    assert_eq!(terse.json().as_array().unwrap().len(), TASKS);
}

#[test]
fn a_collection_that_does_not_fit_into_memory_becomes_tasks() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    let text = "y".repeat(OUTPUT_BYTES);
    let user = |number: usize| doc! {"n": i64::try_from(number).unwrap(), "text": &text};
    for from in (0..TASKS).step_by(500) {
        home.mongo.insert_many("users", (from..from + 500).map(user).collect());
    }
    let before = memory_peak(&dci);
    let body = json!({
        "queue": "demo", "collection": "users", "filter": {}, "params": {"text": "document.text"},
    });
    let answer = dci.http.post("/tasks", &body).ok();
    let result = &answer["MongoDB::InsertManyResult"];
    assert_eq!(result["inserted"].as_array().unwrap().len(), TASKS);
    assert_eq!(result["inserted_count"], json!(TASKS));
    let grown = memory_peak(&dci) - before;
    assert!(grown < TASKS * OUTPUT_BYTES, "{grown} bytes more in memory");
    assert_eq!(home.mongo.count_now("tasks", doc! {}), TASKS as u64);
}

/// The file is checked before anything is sent, and then sent chunk by chunk.
#[test]
fn output_that_does_not_fit_into_memory_is_sent_piece_by_piece() {
    const CHUNK_BYTES: usize = 261_120;
    const CHUNKS: usize = 150;
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("demo");
    let task = home.task(queue, 1);
    let length = i64::try_from(CHUNKS * CHUNK_BYTES).unwrap();
    let file = doc! {"filename": "stdout", "length": length, "metadata": {"task_id": task}};
    let file = home.mongo.insert("tasks.files", file);
    let chunk = |n: usize| {
        let data = "\"".repeat(CHUNK_BYTES);
        doc! {"files_id": file, "n": i64::try_from(n).unwrap(), "data": data}
    };
    for from in (0..CHUNKS).step_by(30) {
        home.mongo.insert_many("tasks.chunks", (from..from + 30).map(chunk).collect());
    }
    home.mongo.set("tasks", task, doc! {"stdout": file});
    let before = memory_peak(&dci);
    let shown = dci.http.get(&format!("/tasks/{task}?.full=1")).ok();
    let grown = memory_peak(&dci) - before;
    let text = shown["stdout"].as_str().unwrap();
    assert!(text.len() == CHUNKS * CHUNK_BYTES && text.bytes().all(|byte| byte == b'"'));
    assert!(grown < CHUNKS * CHUNK_BYTES, "{grown} bytes more in memory");
}

/// The status is sent before the end is known, so a client must notice that the end is missing.
#[test]
fn a_list_that_is_broken_off_is_not_taken_for_a_whole_one() {
    let home = Home::released();
    let proxy = Proxy::to(&mongohost());
    let dci = home.dci_with(json!({"mongohost": proxy.mongohost()}));
    let queue = with_output(&home, 500);
    let mut stream = dci.http.connect();
    write!(stream, "GET /tasks?queue={queue} HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut some = vec![0; 100_000];
    stream.read_exact(&mut some).unwrap();
    proxy.cut();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(String::from_utf8_lossy(&some).starts_with("HTTP/1.1 200"));
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the last chunk of a body says that it is whole");
    proxy.mend();
    let body: Value = dci.http.get(&format!("/tasks?queue={queue}&.count=1")).json();
    assert!(body.get("count").is_some() || body.get("error").is_some(), "{body}");
}

/// No node would ever run tasks created for a queue after its end.
#[test]
fn no_more_tasks_are_made_for_a_queue_that_is_deleted_meanwhile() {
    let home = Home::seed();
    let dci = home.dci();
    home.queue("demo");
    for _ in 0..20 {
        home.mongo.insert_many("users", (0..1_000).map(|number| doc! {"n": number}).collect());
    }
    let body = json!({
        "queue": "demo", "collection": "users", "filter": {}, "params": {"n": "document.n"},
    });
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| dci.http.post("/tasks", &body));
        until("the first tasks are there", || home.mongo.one("tasks", doc! {}).is_some());
        dci.http.delete("/queues/demo?tasks=keep").expect(200);
        making.join().unwrap()
    });
    let told = made.bad();
    assert_eq!(told["error"], json!("queue not found"));
    let count = told["MongoDB::InsertManyResult"]["inserted_count"].as_u64().unwrap_or(0);
    assert_eq!(
        home.mongo.count_now("tasks", doc! {}),
        count,
        "kept are those that were made before"
    );
}

/// As parsed values, small objects take a hundred times the memory of their text.
#[test]
fn a_body_of_very_many_small_objects_is_refused_before_it_is_read() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    let before = memory_peak(&dci);
    let objects = vec![r#"{"a":1}"#; 1_000_000].join(",");
    let body = format!(r#"{{"queue":"demo","params":[{objects}]}}"#);
    dci.http.post_text("/tasks", "application/json", &body).expect(413);
    let grown = memory_peak(&dci) - before;
    assert!(grown < 10 * body.len(), "{grown} bytes more in memory");
    assert_eq!(home.mongo.count_now("tasks", doc! {}), 0);
}

/// The same if version 3 has the list as JSON in a text.
#[test]
fn a_list_in_a_text_is_refused_before_it_is_read() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    let before = memory_peak(&dci);
    let list = format!("[{}]", vec![r#"{"a":1}"#; 1_000_000].join(","));
    let body = json!({"queueid": "demo", "object": list}).to_string();
    let refused = dci.http.post_text("/queue-create-tasks-json", "application/json", &body);
    assert_eq!(refused.expect(413).json()[0], json!(0));
    let form = form(&[("queueid", "demo"), ("object", &list[..list.len() / 2])]);
    let kind = "application/x-www-form-urlencoded";
    dci.http.post_text("/queue-create-tasks-json", kind, &form).expect(413);
    let search = json!({"queue": "demo", ".fields": list}).to_string();
    let kind = [("Content-Type", "application/json")];
    dci.http.ask("GET", "/tasks", &kind, search.as_bytes()).expect(413);
    let grown = memory_peak(&dci) - before;
    assert!(grown < 10 * body.len(), "{grown} bytes more in memory");
    assert_eq!(home.mongo.count_now("tasks", doc! {}), 0);
}
