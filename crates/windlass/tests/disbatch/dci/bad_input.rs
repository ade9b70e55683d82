//! Bad input, and a database that becomes unavailable.

use std::io::Write;

use mongodb::bson::doc;
use serde_json::{Value, json};
use windlass_test_kit::http::{is_silence, until_closed};

use crate::harness::{DEMO, Dci, Home, Proxy, both, mongohost, until};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// The routes that read a body.
const POSTS: [&str; 9] = [
    "/nodes/one",
    "/queues",
    "/queues/q",
    "/tasks",
    "/tasks/search",
    "/tasks/q",
    "/tasks/q/users",
    "/balance",
    "/start-queue-json",
];

/// It is still running and has changed nothing.
#[track_caller]
fn unharmed(home: &Home, dci: &mut Dci) {
    assert!(dci.program.alive(), "{}", dci.program.console());
    assert_eq!(dci.http.get("/queues").ok().as_array().unwrap().len(), 1);
    assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    assert_eq!(home.mongo.count("balance", doc! {}), 0);
}

#[test]
fn broken_json_is_refused() {
    for home in both() {
        home.queue("q");
        let mut dci = home.dci();
        for path in POSTS {
            for body in ["{", "{\"name\": }", "nonsense", "{}}", "{'a': 1}", "[1,]", "\u{feff}{}"] {
                let answer = dci.http.post_text(path, JSON, body);
                assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text());
                let told = answer.json();
                let text = told["error"].as_str().or(told["status"].as_str()).or(told[1].as_str());
                assert!(text.is_some_and(|text| !text.is_empty()), "{path} {body} {told}");
            }
        }
        let kind = [("Content-Type", JSON)];
        let answer = dci.http.ask("GET", "/tasks", &kind, b"{\"queue\": ");
        assert!(answer.bad()["error"].is_string());
        unharmed(&home, &mut dci);
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let home = Home::released();
    home.queue("q");
    let mut dci = home.dci();
    for path in POSTS {
        for (kind, body) in [
            (JSON, b"{\"name\": \"\xff\xfe\"}".as_slice()),
            (JSON, b"\x00\x01\x02"),
            (FORM, b"name=%ff%fe&plugin=%00"),
            (FORM, b"\xff=\xff&&=&=="),
        ] {
            let answer = dci.http.ask("POST", path, &[("Content-Type", kind)], body);
            assert_eq!(answer.status, 400, "{path} {kind}: {}", answer.text());
        }
    }
    unharmed(&home, &mut dci);
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let home = Home::released();
    home.queue("q");
    let mut dci = home.dci();
    for path in POSTS {
        for body in [json!(null), json!(5), json!("x"), json!(true), json!([]), json!([[]])] {
            if path == "/tasks/search" && body.is_null() {
                continue;
            }
            let answer = dci.http.post(path, &body);
            assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text());
        }
    }
    unharmed(&home, &mut dci);
}

#[test]
fn json_that_is_nested_very_deep_is_refused() {
    let home = Home::released();
    home.queue("q");
    let mut dci = home.dci();
    for depth in [200, 100_000] {
        let list = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let object = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for value in [&list, &object] {
            for body in
                [value.clone(), format!("{{\"queue\":\"q\",\"params\":[{{\"a\":{value}}}]}}")]
            {
                let answer = dci.http.post_text("/tasks", JSON, &body);
                assert_eq!(answer.status, 400, "{depth}: {}", answer.text());
            }
        }
    }
    unharmed(&home, &mut dci);
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let home = Home::released();
    home.queue("q");
    let mut dci = home.dci();
    let head = "POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                Connection: close\r\nContent-Length: 68719476736\r\n\r\n{\"queue\"";
    assert_eq!(dci.http.raw(head.as_bytes()).status, 413);
    unharmed(&home, &mut dci);
}

#[test]
fn a_body_without_an_end_is_cut_off() {
    let home = Home::released();
    home.queue("q");
    let mut dci = home.dci();
    let mut stream = dci.http.connect();
    let head = "POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.extend_from_slice(b"\r\n");
    let refused = (0..512).find_map(|_| stream.write_all(&chunk).err());
    let refused = refused.expect("half a gigabyte was taken");
    assert!(!is_silence(&refused), "it is neither read nor cut off");
    let answer = until_closed(&mut stream);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.contains(" 413 "), "{answer}");
    unharmed(&home, &mut dci);
}

#[test]
fn a_body_that_never_comes_holds_nobody() {
    let home = Home::released();
    home.queue("q");
    let mut dci = home.dci();
    let head = "POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                Content-Length: 100\r\n\r\n{";
    let waiting: Vec<_> = (0..60)
        .map(|number| {
            let mut stream = dci.http.connect();
            let sent = if number % 2 == 0 { head } else { "GET /queues HT" };
            stream.write_all(sent.as_bytes()).unwrap();
            stream
        })
        .collect();
    unharmed(&home, &mut dci);
    drop(waiting);
}

#[test]
fn a_type_of_content_may_have_a_charset() {
    let home = Home::released();
    let dci = home.dci();
    let body = json!({"name": "a", "plugin": DEMO}).to_string();
    dci.http.post_text("/queues", "application/json; charset=utf-8", &body).ok();
    let body = "name=b&plugin=Disbatch%3A%3APlugin%3A%3ADemo";
    dci.http.post_text("/queues", "application/x-www-form-urlencoded; charset=UTF-8", body).ok();
    assert_eq!(home.mongo.count("queues", doc! {}), 2);
}

/// A page of another site, opened in the browser of a user of this interface.
#[test]
fn a_post_of_another_site_is_refused() {
    let home = Home::released();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    let dci = home.dci();
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "https://127.0.0.1.evil.example"),
        ("Sec-Fetch-Site", "cross-site"),
    ] {
        let site = dci.http.with(name, value);
        let told = [
            site.post_form("/queues", &[("name", "evil"), ("plugin", DEMO)]),
            site.post_text("/tasks", "text/plain", "{\"queue\":\"q\",\"params\":{\"a\":1}}"),
            site.ask("POST", &format!("/tasks/{task}/cancel"), &[], b""),
            site.ask("POST", "/queues/q?threads=9", &[], b""),
            site.delete("/queues/q?tasks=delete"),
            site.post_form("/delete-queue-json", &[("id", &queue.to_hex())]),
        ];
        for answer in told {
            assert_eq!(answer.status, 403, "{name}: {value}: {}", answer.text());
        }
    }
    assert_eq!(home.mongo.count("queues", doc! {}), 1);
    assert_eq!(home.status(task), -2);
    assert!(!home.mongo.get("queues", queue).contains_key("threads"));
}

#[test]
fn a_post_of_the_own_page_is_taken() {
    let home = Home::released();
    let dci = home.dci();
    let own = dci.http.with("Origin", &dci.url()).with("Sec-Fetch-Site", "same-origin");
    own.post("/queues", &json!({"name": "q", "plugin": DEMO})).ok();
    own.delete("/queues/q").ok();
}

#[test]
fn no_other_site_may_read() {
    let home = Home::released();
    let dci = home.dci();
    let answer = dci.http.with("Origin", "http://evil.example").get("/queues");
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!(allowed, None);
    let asked = [("Access-Control-Request-Method", "DELETE"), ("Origin", "http://evil.example")];
    let answer = dci.http.ask("OPTIONS", "/queues/q", &asked, b"");
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert_eq!(answer.header("access-control-allow-methods"), None);
}

#[test]
fn answers_are_not_guessed_at_or_framed() {
    let home = Home::released();
    let dci = home.dci();
    for path in ["/", "/queues"] {
        let answer = dci.http.get(path).expect(200);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}

#[test]
fn names_with_markup_are_given_back_as_json() {
    let home = Home::released();
    let dci = home.dci();
    let name = "<script>alert(1)</script>\"'\\";
    dci.http.post("/queues", &json!({"name": name, "plugin": DEMO})).ok();
    let answer = dci.http.get("/queues").expect(200);
    assert!(answer.header("content-type").unwrap().starts_with("application/json"));
    assert_eq!(answer.json()[0]["name"], json!(name));
}

#[test]
fn the_same_field_twice_is_no_way_around_a_check() {
    let home = Home::released();
    let id = home.queue("q");
    let dci = home.dci();
    let before = home.mongo.get("queues", id);
    let answer = dci.http.post_text("/queues/q", JSON, "{\"threads\": 1, \"threads\": -1}");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let answer = dci.http.post_form("/queues/q", &[("threads", "1"), ("threads", "-1")]);
    assert_eq!(answer.status, 400, "{}", answer.text());
    let answer = dci.http.post_form("/queues/q", &[("name", "a"), ("name", "b")]);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(home.mongo.get("queues", id), before);
}

fn reached(dci: &Dci, proxy: &Proxy) {
    proxy.mend();
    until("the database is back", || dci.http.get("/queues").status == 200);
}

#[test]
fn a_database_that_is_away_is_told_and_comes_back() {
    let home = Home::released();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    let proxy = Proxy::to(&mongohost());
    let mut dci = home.dci_with(json!({"mongohost": proxy.mongohost()}));
    dci.http.get("/queues").ok();
    proxy.cut();
    let asked: Vec<(&str, String, Value)> = vec![
        ("GET", "/queues".to_owned(), Value::Null),
        ("GET", "/nodes".to_owned(), Value::Null),
        ("GET", "/nodes/one".to_owned(), Value::Null),
        ("GET", format!("/tasks/{task}"), Value::Null),
        ("POST", "/queues".to_owned(), json!({"name": "new", "plugin": DEMO})),
        ("POST", "/tasks".to_owned(), json!({"queue": "q", "params": {"a": 1}})),
        ("POST", format!("/tasks/{task}/cancel"), json!({})),
    ];
    // All at once: each waits for the database as long as the interface allows.
    std::thread::scope(|scope| {
        for (method, path, body) in &asked {
            let http = &dci.http;
            scope.spawn(move || {
                let text = if body.is_null() { String::new() } else { body.to_string() };
                let kind = [("Content-Type", JSON)];
                let kind = if body.is_null() { &[][..] } else { &kind[..] };
                let answer = http.ask(method, path, kind, text.as_bytes());
                assert_eq!(answer.status, 503, "{method} {path}: {}", answer.text());
                let told = answer.json()["error"].as_str().unwrap().to_owned();
                assert!(!told.is_empty(), "{method} {path}");
                if path == "/queues" && *method == "GET" {
                    assert!(told.starts_with("Could not get current queues: "), "{told}");
                }
                if path == "/nodes/one" {
                    assert!(told.starts_with("Could not get node one: "), "{told}");
                }
                if path == "/nodes" {
                    assert!(told.starts_with("Could not get current nodes: "), "{told}");
                }
            });
        }
    });
    assert!(dci.program.alive());
    dci.http.get("/").expect(200);
    dci.http.get("/plugins").ok();
    reached(&dci, &proxy);
    assert_eq!(dci.http.get("/queues").ok().as_array().unwrap().len(), 1);
    assert_eq!(home.mongo.count("tasks", doc! {}), 1);
    assert_eq!(home.status(task), -2);
    dci.http.post("/queues", &json!({"name": "new", "plugin": DEMO})).ok();
}

#[test]
fn what_is_reported_of_a_database_that_is_away_has_no_password() {
    let home = Home::released();
    let port = crate::harness::free_port();
    let host = format!("mongodb://disbatch:hunter2@127.0.0.1:{port}/?directConnection=true");
    let mut config = home.config();
    config["mongohost"] = json!(host);
    let file = home.write(&config);
    let command = crate::harness::windlass(&["dci", "--config", file.to_str().unwrap()]);
    let mut program = crate::harness::Program::spawn(command, home.folder());
    let port: u16 = config["listen"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let http = crate::harness::Http::new(port);
    let mut told = String::new();
    until("it tells of the database, or ends", || {
        if !program.alive() {
            return true;
        }
        let listens = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        if listens {
            let answer = http.get("/queues");
            assert_eq!(answer.status, 503, "{}", answer.text());
            told = answer.text();
        }
        listens
    });
    told.push_str(&program.console());
    assert!(told.contains("database"), "it tells of it: {told}");
    assert!(!told.contains("hunter2"), "{told}");
}
