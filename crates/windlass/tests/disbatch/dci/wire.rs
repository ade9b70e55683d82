//! HTTP as other clients use it, and values that a database cannot hold.

use std::io::{Read, Write};

use mongodb::bson::doc;
use serde_json::{Value, json};
use windlass_test_kit::http::until_closed;

use crate::harness::{DEMO, Dci, Home, both, number, plain};

/// The answer to these bytes, until the server closes.
fn raw(dci: &Dci, bytes: &str) -> String {
    let mut stream = dci.http.connect();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn one_connection_carries_many_requests() {
    let home = Home::released();
    let dci = home.dci();
    let one = "GET /plugins HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /plugins HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let told = raw(&dci, &format!("{one}{one}{last}"));
    assert_eq!(told.matches("HTTP/1.1 200 OK").count(), 3, "{told}");
}

#[test]
fn old_and_unusual_requests_are_answered() {
    let home = Home::released();
    let dci = home.dci();
    let told = raw(&dci, "GET /plugins HTTP/1.0\r\n\r\n");
    assert!(told.starts_with("HTTP/1.0 200") || told.starts_with("HTTP/1.1 200"), "{told}");
    let whole = format!(
        "GET {}/plugins HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        dci.url()
    );
    assert!(raw(&dci, &whole).contains(" 200 "), "the whole address is a way to ask");
    let head = raw(&dci, "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(head.contains(" 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let home = Home::released();
    let dci = home.dci();
    let body = json!({"name": "q", "plugin": DEMO}).to_string();
    let mut stream = dci.http.connect();
    let head = format!(
        "POST /queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 100");
    stream.write_all(body.as_bytes()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
}

#[test]
fn what_is_no_request_is_refused() {
    let home = Home::released();
    let mut dci = home.dci();
    for bytes in [
        "\r\n\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET /queues HTTP/9.9\r\n\r\n",
        "POST /queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST /queues HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}",
    ] {
        let mut stream = dci.http.connect();
        let _ = stream.write_all(bytes.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let answer = String::from_utf8_lossy(&until_closed(&mut stream)).into_owned();
        assert!(answer.is_empty() || answer.contains(" 400 "), "{bytes:?}: {answer}");
    }
    assert!(dci.program.alive());
    dci.http.get("/plugins").ok();
}

#[test]
fn headers_without_an_end_are_refused() {
    let home = Home::released();
    let mut dci = home.dci();
    let long = dci.http.with("X-Long", &"x".repeat(2_000_000)).get("/plugins");
    assert!([400, 431].contains(&long.status), "{}", long.status);
    let path = format!("/queues/{}", "x".repeat(500_000));
    let long = dci.http.get(&path);
    assert!([400, 414, 431].contains(&long.status), "{}", long.status);
    assert!(dci.program.alive());
    dci.http.get("/plugins").ok();
}

/// The original is behind nginx, which terminates TLS and passes on the requested name.
#[test]
fn a_page_behind_a_proxy_is_the_own_page() {
    let home = Home::released();
    let dci = home.dci_with(json!({"tokens": ["word"]}));
    let proxy = dci.http.with("Host", "disbatch.example").with("Authorization", "Bearer word");
    let page = proxy.with("Origin", "https://disbatch.example");
    page.post("/queues", &json!({"name": "q", "plugin": DEMO})).ok();
    let other = proxy.with("Origin", "https://evil.example");
    assert_eq!(other.delete("/queues/q").status, 403);
    assert_eq!(home.mongo.count("queues", doc! {}), 1);
    // Without a login, any name could belong to a page that was made to point here.
    let open = home.dci();
    let answer = open.http.with("Host", "disbatch.example").get("/queues").expect(403);
    assert!(answer.json()["error"].as_str().unwrap().contains("users"));
}

/// A zero byte ends a key in the database's format, so no key may contain one.
#[test]
fn keys_with_a_zero_byte_are_refused() {
    for home in both() {
        let queue = home.queue("q");
        let mut dci = home.dci();
        home.mongo.insert("users", doc! {"n": 1});
        for (path, body) in [
            ("/tasks", json!({"queue": "q", "params": {"a\u{0}b": 1}})),
            ("/tasks", json!({"queue": "q", "params": [{"ok": 1}, {"a": {"b\u{0}": 1}}]})),
            (
                "/tasks",
                json!({
                    "queue": "q", "collection": "users", "filter": {"\u{0}": 1}, "params": {"x": 1},
                }),
            ),
            (
                "/tasks",
                json!({
                    "queue": "q", "collection": "users", "filter": {},
                    "params": {"x": "document.a\u{0}b"},
                }),
            ),
            ("/tasks/q", json!([{"a\u{0}b": 1}])),
            ("/tasks/search", json!({"filter": {"a\u{0}b": 1}})),
            ("/balance", json!({"max_tasks": {"* 07:00\u{0}": 1}, "queues": [["q"]]})),
        ] {
            let answer = dci.http.post(path, &body);
            assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text());
        }
        let filter = json!({"queue": queue.to_hex(), ".fields": ["a\u{0}b"]});
        let status = dci.http.get_json("/tasks", &filter).status;
        assert!([200, 400].contains(&status), "{status}");
        assert!(dci.program.alive(), "{}", dci.program.console());
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn names_with_a_zero_byte_are_only_names() {
    let home = Home::released();
    let mut dci = home.dci();
    let status = dci.http.post("/queues", &json!({"name": "a\u{0}b", "plugin": DEMO})).status;
    assert!([200, 400].contains(&status), "{status}");
    for path in ["/queues/a%00b", "/nodes/a%00b"] {
        let status = dci.http.get(path).status;
        assert!([200, 400].contains(&status), "{path} {status}");
    }
    assert!(dci.program.alive());
}

/// The database's numbers have a smaller range than JSON's.
#[test]
fn numbers_beyond_the_databases_are_not_turned_around() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for huge in ["18446744073709551615", "9223372036854775808", "1e300", "-9223372036854775809"]
        {
            let body = format!("{{\"queue\":\"q\",\"params\":{{\"n\":{huge}}}}}");
            let answer = dci.http.post_text("/tasks", "application/json", &body);
            assert!([200, 400].contains(&answer.status), "{huge}: {}", answer.text());
            if answer.status == 200 {
                let stored = home.mongo.all("tasks", doc! {"queue": queue});
                let stored = stored.last().unwrap().get_document(home.dialect.params()).unwrap();
                let kept = plain(stored.get("n")).as_f64().unwrap();
                let wanted: f64 = huge.parse().unwrap();
                assert!((kept / wanted - 1.0).abs() < 1e-9, "{huge} became {kept}");
            }
        }
        let answer = dci.http.post_text(
            "/tasks",
            "application/json",
            "{\"queue\":\"q\",\"params\":{\"n\":1e999}}",
        );
        assert_eq!(answer.status, 400);
        for option in [".limit", ".skip"] {
            let query = format!("/tasks?queue={queue}&{option}=99999999999999999999");
            assert_eq!(dci.http.get(&query).status, 400, "{option}");
            let query = format!("/tasks?queue={queue}&{option}=4294967296");
            let status = dci.http.get(&query).status;
            assert!([200, 400].contains(&status), "{option} {status}");
        }
    }
}

/// A document of the database has at most 16 MiB.
#[test]
fn a_task_that_is_too_large_is_refused() {
    let home = Home::seed();
    let mut dci = home.dci();
    let queue = home.queue("q");
    let body = json!({"queue": "q", "params": [{"a": 1}, {"text": "x".repeat(17 << 20)}]});
    let answer = dci.http.post("/tasks", &body);
    assert!([400, 413].contains(&answer.status), "{} {}", answer.status, answer.text());
    assert!(dci.program.alive(), "{}", dci.program.console());
    let stored = home.mongo.count("tasks", doc! {});
    assert_eq!(stored, 0, "all of a list or nothing");
    assert_eq!(number(home.mongo.get("queues", queue).get("count_total")), Some(0));
}

#[test]
fn large_params_are_kept() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("q");
    let text = "ä".repeat(200_000);
    let body = json!({"queue": "q", "params": {"text": text}});
    dci.http.post("/tasks", &body).ok();
    let stored = home.mongo.one("tasks", doc! {}).unwrap();
    assert_eq!(plain(stored.get("params"))["text"], json!(text));
    let read = dci.http.get("/tasks?.limit=1").ok();
    assert_eq!(read["params"]["text"], json!(text));
}

/// Every field of every route with every wrong type: a refusal, never a change or a crash.
#[test]
fn no_value_of_any_type_ends_the_interface() {
    let home = Home::released();
    let mut dci = home.dci();
    let queue = home.queue("q");
    let before = home.mongo.all("queues", doc! {});
    let values = [
        json!(null),
        json!(true),
        json!(-1.5),
        json!(1e308),
        json!(""),
        json!("\u{0}"),
        json!("$where"),
        json!([]),
        json!([[[]]]),
        json!({}),
        json!({"$gt": ""}),
        json!({"$oid": "x"}),
        json!({"": {"": null}}),
    ];
    for (path, fields) in [
        ("/tasks", &["queue", "params", "collection", "filter"][..]),
        ("/tasks/search", &["filter", "options", "count", "terse", "pretty"]),
        ("/tasks/q/users", &["filter", "params"]),
        ("/set-queue-attr-json", &["queueid", "attr", "value"]),
        ("/start-queue-json", &["type", "name"]),
        ("/delete-queue-json", &["id"]),
        ("/queue-create-tasks-json", &["queueid", "object"]),
        ("/queue-create-tasks-from-query-json", &["queueid", "collection", "jsonfilter", "params"]),
        ("/search-tasks-json", &["queue", "filter", "limit", "skip", "count", "terse", "json"]),
    ] {
        for field in fields {
            for value in &values {
                let mut body = json!({
                    "queue": "q", "params": {"a": 1}, "queueid": "none", "attr": "threads",
                    "value": 1,
                });
                if path.starts_with("/tasks/") || path == "/search-tasks-json" {
                    body = json!({});
                }
                body[*field] = value.clone();
                let status = dci.http.post(path, &body).status;
                assert!([200, 400, 404].contains(&status), "{path} {body} {status}");
            }
        }
    }
    assert!(dci.program.alive(), "{}", dci.program.console());
    assert_eq!(home.mongo.all("queues", doc! {}), before);
    assert_eq!(dci.http.get("/queues").ok()[0]["id"], json!(queue.to_hex()));
    let told: Value = dci.http.get("/plugins").ok();
    assert_eq!(told, json!([DEMO]));
}
