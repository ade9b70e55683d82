//! The requests of the original's client `disbatch`, byte by byte as its library sends them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::harness::{Answer, DEMO, Dci, Dialect, Home, both, number, oid, plain};

/// The head of every request of libwww-perl.
fn lwp(dci: &Dci, method: &str, path: &str, more: &str, body: &str) -> Answer {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nTE: deflate,gzip;q=0.3\r\nConnection: TE, close\r\n\
         Host: localhost:{}\r\nUser-Agent: libwww-perl/6.68\r\n{more}",
        dci.port
    );
    if !body.is_empty() || method == "POST" {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    request.push_str(body);
    dci.http.raw(request.as_bytes())
}

fn form(dci: &Dci, path: &str, body: &str) -> Answer {
    lwp(dci, "POST", path, "Content-Type: application/x-www-form-urlencoded\r\n", body)
}

fn with_json(dci: &Dci, method: &str, path: &str, body: &Value) -> Answer {
    lwp(dci, method, path, "Content-Type: application/json\r\n", &body.to_string())
}

#[test]
fn plugins_and_queues_are_read() {
    for home in both() {
        let dci = home.dci();
        home.queue_with("demo", doc! {home.dialect.limit(): 0});
        assert_eq!(lwp(&dci, "GET", "/plugins", "", "").ok(), json!([DEMO]));
        let queues = lwp(&dci, "GET", "/queues", "", "").ok();
        let queue = &queues[0];
        for key in ["id", "name", "queued", "running", "completed"] {
            assert!(queue[key].is_string() || queue[key].is_u64(), "{key} of {queue}");
        }
        assert_eq!(queue[home.dialect.plugin()], json!(DEMO));
        assert_eq!(queue[home.dialect.limit()], json!(0));
    }
}

#[test]
fn a_queue_is_made_changed_and_deleted_with_forms() {
    for home in both() {
        let dci = home.dci();
        let made =
            form(&dci, "/queues", "plugin=Disbatch%3A%3APlugin%3A%3ADemo&name=my+queue").ok();
        let id = oid(&made["id"]);
        let stored = home.mongo.one("queues", doc! {"name": "my queue"}).unwrap();
        assert_eq!(stored.get_object_id("_id").unwrap().to_hex(), id);
        let changed = form(&dci, &format!("/queues/{id}"), "threads=10").ok();
        assert_eq!(changed["MongoDB::UpdateResult"]["modified_count"], json!(1));
        let stored = home.mongo.one("queues", doc! {"name": "my queue"}).unwrap();
        assert_eq!(number(stored.get(home.dialect.limit())), Some(10), "{stored}");
        let same = form(&dci, &format!("/queues/{id}"), "threads=10").ok();
        assert_eq!(same["MongoDB::UpdateResult"]["modified_count"], json!(0));
        form(&dci, &format!("/queues/{id}"), "name=buzz&sort=fifo").ok();
        let gone = lwp(&dci, "DELETE", "/queues/buzz", "", "").ok();
        assert_eq!(gone["MongoDB::DeleteResult"]["deleted_count"], json!(1));
    }
}

#[test]
fn arguments_that_were_not_given_are_refused() {
    let home = Home::released();
    let dci = home.dci();
    let refused = json!({"error": "name and plugin required"});
    for body in ["", "plugin&name", "plugin=&name=", "name=test&plugin", "name=test"] {
        assert_eq!(form(&dci, "/queues", body).bad(), refused, "{body}");
    }
    home.queue("q");
    assert_eq!(form(&dci, "/queues/q", "").bad(), json!({"error": "no params"}));
    let told = form(&dci, "/queues/q", "bad=field").bad();
    assert_eq!(told, json!({"error": "unknown param", "param": "bad"}));
    let told = form(&dci, "/queues/q", "threads=zero").bad();
    assert_eq!(told, json!({"error": "threads must be a non-negative integer or null"}));
    let told = form(&dci, "/queues/q", "plugin=Disbatch%3A%3APlugin%3A%3AFake").bad();
    assert_eq!(told, json!({"error": "unknown plugin", "plugin": "Disbatch::Plugin::Fake"}));
}

#[test]
fn tasks_are_made_as_the_newest_client_asks() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        let body = json!({"queue": "demo", "params": [{"user1": "ashley", "user2": "7"}]});
        let made = with_json(&dci, "POST", "/tasks", &body).ok();
        let made = made["MongoDB::InsertManyResult"]["inserted"].as_array().unwrap();
        assert_eq!(made.len(), 1);
        home.mongo.insert("users", doc! {"username": "ashley", "migration": "foo"});
        let body = json!({
            "filter": {"migration": "foo"}, "params": {"user": "document.username"},
            "collection": "users", "queue": "demo",
        });
        let made = with_json(&dci, "POST", "/tasks", &body).ok();
        assert_eq!(made["MongoDB::InsertManyResult"]["inserted"].as_array().unwrap().len(), 1);
        let stored = home.mongo.all("tasks", doc! {});
        assert_eq!(plain(stored[1].get(home.dialect.params())), json!({"user": "ashley"}));
        for (params, text) in [(json!({}), " with key/value pairs"), (json!([]), "")] {
            let body = json!({"queue": "demo", "params": params});
            let told = with_json(&dci, "POST", "/tasks", &body).bad();
            let wanted = format!("'params' must be a JSON array of task params objects{text}");
            assert_eq!(told["error"], json!(wanted), "{body}");
        }
    }
}

#[test]
fn tasks_are_made_as_the_older_client_asks() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        let path = format!("/tasks/{queue}");
        let made = with_json(&dci, "POST", &path, &json!([{"fizz": 1}])).ok();
        assert_eq!(made["MongoDB::InsertManyResult"]["inserted"].as_array().unwrap().len(), 1);
        home.mongo.insert("users", doc! {"username": "ashley", "migration": "foo"});
        let body = json!({"filter": {"migration": "foo"}, "params": {"user": "document.username"}});
        let made = with_json(&dci, "POST", "/tasks/demo/users", &body).ok();
        assert_eq!(made["MongoDB::InsertManyResult"]["inserted"].as_array().unwrap().len(), 1);
        with_json(&dci, "POST", "/tasks/demo", &json!({})).bad();
    }
}

/// What the client sends if only a filter is given: every option, each with its default.
fn options(filter: Value) -> Value {
    let mut body = json!({
        ".count": 0, ".fields": null, ".limit": 20, ".skip": 0, ".terse": 0, ".full": 0,
        ".epoch": 0, ".pretty": 0,
    });
    for (key, value) in filter.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[test]
fn tasks_are_searched_for_with_every_option() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        for _ in 0..22 {
            home.task(queue, -2);
        }
        let hex = queue.to_hex();
        for path in ["/tasks", "/tasks.json"] {
            let ask = |filter: Value| with_json(&dci, "GET", path, &options(filter));
            let found = ask(json!({"queue": hex})).ok();
            assert_eq!(found.as_array().unwrap().len(), 20, "{path}");
            let found = ask(json!({})).ok();
            assert_eq!(found.as_array().unwrap().len(), 20, "a limit is restriction enough");
            assert_eq!(ask(json!({"queue": hex, ".count": 1})).ok(), json!({"count": 22}));
            // Values from a command line are text.
            let found = ask(json!({"queue": hex, ".limit": "5", ".skip": "20"})).ok();
            assert_eq!(found.as_array().unwrap().len(), 2);
            let found = ask(json!({"queue": hex, ".limit": "1", ".fields": "[\"status\"]"})).ok();
            assert_eq!(found["status"], json!(-2));
            assert!(found.get("mtime").is_none(), "{found}");
            let told = ask(json!({"status": -2})).bad();
            assert_eq!(told["error"], json!("non-indexed params given"));
        }
    }
}

#[test]
fn options_in_a_query_are_read() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        for _ in 0..3 {
            home.task(queue, -2);
        }
        for query in [
            format!(".limit=2&queue={queue}"),
            format!("queue={queue}&.limit=2&.terse=1&.epoch=1&.pretty=1"),
            format!("%2Elimit=2&queue={queue}"),
        ] {
            let found = lwp(&dci, "GET", &format!("/tasks?{query}"), "", "").ok();
            assert_eq!(found.as_array().unwrap().len(), 2, "{query}");
        }
    }
}

/// The library first asks without a name, and repeats the request after a refusal in the right
/// realm.
#[test]
fn a_login_is_asked_for_and_given() {
    let home = Home::new(Dialect::Released);
    let dci = home.dci_with(json!({"users": {"ann": "secret"}}));
    let first = lwp(&dci, "GET", "/queues", "", "").expect(401);
    let asks = first.header("www-authenticate").unwrap();
    assert!(asks.starts_with("Basic realm=\"disbatch\""), "{asks}");
    let word = STANDARD.encode("ann:secret");
    let login = format!("Authorization: Basic {word}\r\n");
    lwp(&dci, "GET", "/queues", &login, "").ok();
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let body = "plugin=Disbatch%3A%3APlugin%3A%3ADemo&name=fizz";
    lwp(&dci, "POST", "/queues", kind, body).expect(401);
    assert_eq!(home.mongo.count("queues", doc! {}), 0);
    lwp(&dci, "POST", "/queues", &format!("{login}{kind}"), body).ok();
}
