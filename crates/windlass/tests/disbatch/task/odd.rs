//! Results that a plugin writes with a wrong type in each of their fields.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};

use crate::harness::{Fields, Home, in_both, until_some};

/// None of them is a status, and none is text.
fn odd() -> Vec<Bson> {
    vec![
        Bson::Null,
        Bson::Boolean(true),
        Bson::Int32(0),
        Bson::Int32(-7),
        Bson::Int64(i64::MAX),
        Bson::Double(1.5),
        Bson::Double(f64::NAN),
        Bson::Double(f64::INFINITY),
        Bson::Array(vec![Bson::Int32(1)]),
        Bson::Document(doc! {"$numberInt": "1"}),
        Bson::ObjectId(ObjectId::new()),
        Bson::DateTime(DateTime::now()),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] }),
        Bson::MaxKey,
    ]
}

/// Runs a task of this kind for each of the results, which the test writes in place of the plugin,
/// and waits until each has this status.
fn ended(home: &Home, kind: &str, results: &[Document], status: i64) -> Vec<Document> {
    let queue = home.line(&home.plugin(kind, "gate"), 99);
    let tasks = home.add(queue, results.len());
    let _den = home.den("one");
    for (task, result) in tasks.iter().zip(results) {
        home.began(*task);
        home.reaches(*task, 0);
        if kind == "handoff" {
            home.mongo.set("tasks", *task, result.clone());
        } else {
            let mut result = result.clone();
            result.insert("_id", *task);
            home.mongo.insert("results", result);
        }
    }
    home.open_all();
    let end = |(task, result): (&ObjectId, &Document)| {
        until_some(&format!("{result} becomes {status}"), || {
            let found = home.mongo.get("tasks", *task);
            (found.int("status") == Some(status)).then_some(found)
        })
    };
    tasks.iter().zip(results).map(end).collect()
}

#[test]
fn a_status_that_is_none_is_a_failure_that_says_so() {
    in_both(|home| {
        let mut results: Vec<Document> =
            odd().into_iter().map(|status| doc! {"status": status, "stdout": "o"}).collect();
        results.push(doc! {"stdout": "o"});
        for (result, task) in results.iter().zip(ended(&home, "mongo", &results, 2)) {
            let why = task.text("stderr").unwrap_or_default();
            assert!(why.starts_with("plugin returned "), "{result}: {task}");
            assert!(task.text("stdout").unwrap().contains("\"o\""), "{result}: {task}");
        }
        assert_eq!(home.mongo.count("results", doc! {}), 0);
    });
}

/// Output of another type does not affect the status.
#[test]
fn output_that_is_no_text_ends_its_task_all_the_same() {
    in_both(|home| {
        let results: Vec<Document> = odd()
            .into_iter()
            .map(|value| doc! {"status": 3, "stdout": value.clone(), "stderr": value})
            .collect();
        for (result, task) in results.iter().zip(ended(&home, "mongo", &results, 3)) {
            for name in ["stdout", "stderr"] {
                let kept = task.get(name);
                assert!(matches!(kept, Some(Bson::Null | Bson::String(_))), "{result}: {task}");
            }
        }
    });
}

/// A plugin that ends its task itself may write anything into it.
#[test]
fn a_handed_off_task_never_keeps_a_status_that_is_none() {
    in_both(|home| {
        let results: Vec<Document> =
            odd().into_iter().map(|status| doc! {"status": status}).collect();
        for (result, task) in results.iter().zip(ended(&home, "handoff", &results, 2)) {
            assert!(task.text("stderr").unwrap().starts_with("plugin "), "{result}: {task}");
        }
    });
}
