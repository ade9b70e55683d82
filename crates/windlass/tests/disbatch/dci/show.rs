//! How tasks are shown: fields, times, long output, output in GridFS.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Home, both, oid};

fn shown(dci: &Dci, task: ObjectId, options: &str) -> Value {
    let one = dci.http.get(&format!("/tasks/{task}?{options}")).ok();
    let list = dci.http.get(&format!("/tasks?id={task}&{options}")).ok();
    assert_eq!(list, json!([one]), "one task and a list of one show the same");
    one
}

/// A file of output in chunks of either form.
fn file(home: &Home, chunks: &[Bson]) -> ObjectId {
    let size = |chunk: &Bson| match chunk {
        Bson::String(text) => text.len(),
        Bson::Binary(binary) => binary.bytes.len(),
        other => panic!("no chunk: {other:?}"),
    };
    let length = i32::try_from(chunks.iter().map(size).sum::<usize>()).unwrap();
    let document = doc! {
        "filename": "stdout", "chunkSize": 261_120, "length": length, "uploadDate": DateTime::now(),
    };
    let file = home.mongo.insert("tasks.files", document);
    // The chunks are in the wrong order: only `n` counts.
    for (place, data) in chunks.iter().enumerate().rev() {
        let place = i32::try_from(place).unwrap();
        home.mongo
            .insert("tasks.chunks", doc! {"files_id": file, "n": place, "data": data.clone()});
    }
    file
}

fn text(text: &str) -> Bson {
    Bson::from(text)
}

fn bytes(bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
}

#[test]
fn only_the_fields_that_are_asked_for_are_shown() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let task = home.task_with(queue, 1, doc! {"node": "n"});
        let keys = |answer: &Value| {
            let keys = answer.as_object().unwrap().keys().filter(|key| *key != "_id");
            let mut keys: Vec<String> = keys.cloned().collect();
            keys.sort();
            keys
        };
        let ask = |fields: Value| {
            let filter = json!({"id": task.to_hex(), ".limit": 1, ".fields": fields});
            dci.http.get_json("/tasks", &filter).ok()
        };
        assert_eq!(keys(&ask(json!(["status", "node"]))), ["node", "status"]);
        assert_eq!(keys(&ask(json!({"status": 1}))), ["status"]);
        assert_eq!(keys(&ask(json!("[\"status\",\"node\"]"))), ["node", "status"]);
        assert_eq!(keys(&ask(json!("{\"node\":1}"))), ["node"]);
        assert_eq!(oid(&ask(json!(["status"]))["_id"]), task.to_hex());
        let all = ask(json!([]));
        assert!(all.get("mtime").is_some() && all.get("status").is_some(), "{all}");
        let without = ask(json!({"stdout": 0, "stderr": 0}));
        assert!(without.get("stdout").is_none() && without.get("mtime").is_some(), "{without}");
        let query = format!("/tasks?id={task}&.limit=1&.fields=%5B%22status%22%5D");
        assert_eq!(keys(&dci.http.get(&query).ok()), ["status"]);
    }
}

#[test]
fn times_are_text_or_seconds() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let time = DateTime::from_millis(1_548_272_576_574);
        let task = home.task_with(queue, 1, doc! {"ctime": time, "mtime": time});
        let plain = shown(&dci, task, "");
        for key in ["ctime", "mtime"] {
            let told = plain[key].as_str().unwrap_or_else(|| panic!("{key}: {plain}"));
            assert!(told.starts_with("2019-01-23T19:42:56"), "{told}");
        }
        let epoch = shown(&dci, task, ".epoch=1");
        for key in ["ctime", "mtime"] {
            let told = epoch[key].as_f64().unwrap_or_else(|| panic!("{key}: {epoch}"));
            assert!((told - 1_548_272_576.574).abs() < 0.001, "{told}");
        }
    }
}

/// The code of the first dialect wrote seconds where its documentation says dates.
#[test]
fn times_that_are_numbers_are_shown_as_they_are() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue("q");
    let task = home.task_with(queue, -2, doc! {"ctime": 1_461_700_773, "mtime": 0});
    let epoch = shown(&dci, task, ".epoch=1");
    assert_eq!(epoch["ctime"].as_f64(), Some(1_461_700_773.0));
    assert_eq!(epoch["mtime"].as_f64(), Some(0.0));
    shown(&dci, task, "");
}

#[test]
fn terse_hides_output_that_is_not_empty() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let told = |output: Document, options: &str| {
            let task = home.task_with(queue, 1, output);
            let read = shown(&dci, task, options);
            (read["stdout"].clone(), read["stderr"].clone())
        };
        let output = doc! {"stdout": "much", "stderr": ""};
        assert_eq!(told(output.clone(), ".terse=1"), (json!("[terse mode]"), json!("")));
        assert_eq!(told(output.clone(), ".terse=0"), (json!("much"), json!("")));
        assert_eq!(told(output, ""), (json!("much"), json!("")));
        let output = doc! {"stdout": Bson::Null, "stderr": "x"};
        assert_eq!(told(output, ".terse=1"), (Value::Null, json!("[terse mode]")));
        let id = file(&home, &[text("abc")]);
        let (stdout, stderr) = told(doc! {"stdout": id, "stderr": "x"}, ".terse=1&.full=1");
        assert_eq!(oid(&stdout), id.to_hex(), "a file's id is terse enough");
        assert_eq!(stderr, json!("[terse mode]"));
    }
}

#[test]
fn output_in_files_is_an_id_until_it_is_asked_for() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let id = file(&home, &[text("äb"), text("c€"), text("😀")]);
        let task = home.task_with(queue, 1, doc! {"stdout": id, "stderr": "short"});
        let read = shown(&dci, task, "");
        assert_eq!(oid(&read["stdout"]), id.to_hex());
        let full = shown(&dci, task, ".full=1");
        assert_eq!(full["stdout"], json!("äbc€😀"));
        assert_eq!(full["stderr"], json!("short"));
        let read = shown(&dci, task, ".full=0");
        assert_eq!(oid(&read["stdout"]), id.to_hex());
    }
}

/// The released runner stores binary chunks, cut without regard to characters.
#[test]
fn both_forms_of_files_are_read() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let euro = "€".as_bytes();
        let id = file(&home, &[bytes(b"one "), bytes(&euro[..1]), bytes(&euro[1..])]);
        let task = home.task_with(queue, 2, doc! {"stderr": id});
        assert_eq!(shown(&dci, task, ".full=1")["stderr"], json!("one €"));
        let none = file(&home, &[]);
        let task = home.task_with(queue, 2, doc! {"stdout": none});
        assert_eq!(shown(&dci, task, ".full=1")["stdout"], json!(""));
    }
}

#[test]
fn a_file_that_is_gone_leaves_its_id() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let id = ObjectId::new();
        let task = home.task_with(queue, 1, doc! {"stdout": id, "stderr": "x"});
        let full = shown(&dci, task, ".full=1");
        assert_eq!(oid(&full["stdout"]), id.to_hex());
        assert_eq!(full["stderr"], json!("x"));
    }
}

#[test]
fn pretty_is_on_many_lines() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    home.task(queue, -2);
    let lines = |options: &str| {
        let answer = dci.http.get(&format!("/tasks?queue={queue}&{options}")).expect(200);
        answer.text().trim().lines().count()
    };
    assert_eq!(lines(".pretty=0"), 1);
    assert_eq!(lines(""), 1);
    assert!(lines(".pretty=1") > 5);
}

#[test]
fn options_that_one_task_does_not_have_are_not_in_its_way() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    for options in [".limit=5", ".skip=3", ".count=1", ".fields=%5B%5D", ".x=1"] {
        let read = dci.http.get(&format!("/tasks/{task}?{options}")).ok();
        assert_eq!(oid(&read["_id"]), task.to_hex(), "{options}");
    }
}

/// Whatever is in the collection is shown somehow, and hides nothing else.
#[test]
fn tasks_with_wrong_types_are_shown() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let late = DateTime::from_millis(253_402_300_799_000);
        let odd = [
            doc! {"queue": queue},
            doc! {"queue": queue, "status": "x", "node": {"a": 1}, "stdout": 5, "stderr": ["x"]},
            doc! {"queue": queue, "ctime": "x", "mtime": {}, "params": 5, "parameters": "x"},
            doc! {"queue": queue, "stdout": bytes(b"\xff")},
            doc! {"queue": queue, "stderr": Bson::MaxKey, "status": f64::NAN, "ctime": late},
            doc! {"queue": queue, "windlass": 5, "status": i64::MIN, "x": Bson::Undefined},
        ];
        for document in odd {
            home.mongo.insert("tasks", document);
        }
        home.task(queue, -2);
        for options in ["", ".full=1", ".terse=1", ".epoch=1"] {
            let list = dci.http.get(&format!("/tasks?queue={queue}&{options}")).ok();
            assert_eq!(list.as_array().unwrap().len(), 7, "{options}");
        }
    }
}

/// Documents may look like the written form of other types.
#[test]
fn documents_that_look_like_other_types_hide_nothing() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for odd in [
            json!({"$oid": "x"}),
            json!({"$oid": 5}),
            json!({"$date": "yesterday"}),
            json!({"$numberLong": "x"}),
            json!({"$numberInt": {}}),
            json!({"$binary": 5}),
            json!({"$regularExpression": {"pattern": 5}}),
            json!({"$timestamp": "x"}),
            json!({"$uuid": "x"}),
            json!({"$dbPointer": 1}),
        ] {
            let body = json!({"queue": "q", "params": {"odd": odd}});
            let status = dci.http.post("/tasks", &body).status;
            assert!([200, 400].contains(&status), "{odd} {status}");
            let key = odd.as_object().unwrap().keys().next().unwrap().clone();
            home.task_with(queue, -2, doc! {home.dialect.params(): {"odd": {key: "x"}}});
        }
        let list = dci.http.get(&format!("/tasks?queue={queue}")).ok();
        assert!(list.as_array().unwrap().len() >= 10);
        let found = dci.http.post("/tasks/search", &json!({"terse": 0})).ok();
        assert!(found.as_array().unwrap().len() >= 10);
        assert_eq!(dci.http.get("/queues/q").ok()["running"], json!(0));
    }
}
