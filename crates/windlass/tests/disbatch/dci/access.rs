//! Access: users, tokens, and what a refusal looks like.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::doc;
use serde_json::json;

use crate::harness::{DEMO, Dci, Home, Http};

/// The hash of `correct horse`.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$d2luZGxhc3MtdGVzdHMtMQ\
                    $Yo1UhNw4874p+mNyLEteqHIVjRtsxhRsiTsV3UWVRbc";

fn basic(http: &Http, user: &str, password: &str) -> Http {
    let word = STANDARD.encode(format!("{user}:{password}"));
    http.with("Authorization", &format!("Basic {word}"))
}

fn bearer(http: &Http, token: &str) -> Http {
    http.with("Authorization", &format!("Bearer {token}"))
}

fn guarded(home: &Home) -> Dci {
    home.dci_with(json!({
        "users": {"ann": "plain: word ä", "bob": HASH},
        "tokens": ["token-one", "token-two"],
    }))
}

#[track_caller]
fn refused(http: &Http, method: &str, path: &str) {
    let answer = http.ask(method, path, &[("Content-Type", "application/json")], b"{}");
    assert_eq!(answer.status, 401, "{method} {path}: {}", answer.text());
    let asks = answer.header("www-authenticate").unwrap();
    assert!(asks.starts_with("Basic ") && asks.contains("realm=\"disbatch\""), "{asks}");
}

#[test]
fn without_users_nobody_is_asked() {
    let home = Home::released();
    let dci = home.dci();
    dci.http.get("/queues").ok();
    basic(&dci.http, "who", "ever").get("/queues").ok();
}

#[test]
fn every_route_needs_a_login() {
    let home = Home::released();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    let dci = guarded(&home);
    for (method, path) in [
        ("GET", "/info"),
        ("GET", "/nodes"),
        ("GET", "/nodes/one"),
        ("POST", "/nodes/one"),
        ("GET", "/plugins"),
        ("GET", "/queues"),
        ("GET", "/queues/q"),
        ("POST", "/queues"),
        ("POST", "/queues/q"),
        ("DELETE", "/queues/q?tasks=delete"),
        ("GET", "/tasks"),
        ("GET", &format!("/tasks/{task}")),
        ("POST", "/tasks"),
        ("POST", &format!("/tasks/{task}/cancel")),
        ("POST", &format!("/tasks/{task}/retry")),
        ("GET", "/balance"),
        ("POST", "/balance"),
        ("GET", "/monitoring"),
        ("POST", "/tasks/search"),
        ("POST", "/tasks/q"),
        ("POST", "/tasks/q/users"),
        ("GET", "/scheduler-json"),
        ("POST", "/set-queue-attr-json"),
        ("POST", "/start-queue-json"),
        ("POST", "/delete-queue-json"),
        ("GET", "/queue-prototypes-json"),
        ("GET", "/reload-queues-json"),
        ("POST", "/queue-create-tasks-json"),
        ("POST", "/queue-create-tasks-from-query-json"),
        ("POST", "/search-tasks-json"),
        ("GET", "/search-tasks-json"),
    ] {
        refused(&dci.http, method, path);
    }
    assert_eq!(home.mongo.count("queues", doc! {}), 1);
    assert_eq!(home.status(task), -2);
}

#[test]
fn the_page_itself_needs_no_login() {
    let home = Home::released();
    let dci = guarded(&home);
    let page = dci.http.get("/").expect(200).text();
    let files =
        page.split(['"', '\'']).filter(|word| word.ends_with(".js") || word.ends_with(".css"));
    let files: Vec<&str> = files.collect();
    assert!(!files.is_empty(), "{page}");
    for file in files {
        let path = format!("/{}", file.trim_start_matches(['.', '/']));
        dci.http.get(&path).expect(200);
    }
}

/// Additional files next to the page are not the page's own.
#[test]
fn other_files_need_a_login() {
    let home = Home::released();
    let root = home.path("htdocs");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("notes.txt"), "private").unwrap();
    let dci = home.dci_with(json!({"web_root": root, "tokens": ["token-one"]}));
    refused(&dci.http, "GET", "/notes.txt");
    refused(&dci.http, "GET", "/nothing");
    assert_eq!(bearer(&dci.http, "token-one").get("/notes.txt").expect(200).text(), "private");
}

#[test]
fn a_user_with_a_plain_password_or_a_hash_may_ask() {
    let home = Home::released();
    let dci = guarded(&home);
    for (user, password) in [("ann", "plain: word ä"), ("bob", "correct horse")] {
        let http = basic(&dci.http, user, password);
        http.get("/queues").ok();
        http.post("/queues", &json!({"name": user, "plugin": DEMO})).ok();
    }
    assert_eq!(home.mongo.count("queues", doc! {}), 2);
}

#[test]
fn wrong_names_and_passwords_are_refused() {
    let home = Home::released();
    let dci = guarded(&home);
    let wrong = [
        ("ann", ""),
        ("ann", "plain"),
        ("ann", "plain: word ä "),
        ("ann", "correct horse"),
        ("Ann", "plain: word ä"),
        ("bob", "Correct horse"),
        ("bob", HASH),
        ("bob", "plain: word ä"),
        ("", ""),
        ("nobody", "correct horse"),
        ("token-one", ""),
        ("", "token-one"),
    ];
    // All at once: a server may take its time with each.
    std::thread::scope(|scope| {
        for (user, password) in wrong {
            let http = basic(&dci.http, user, password);
            scope.spawn(move || refused(&http, "GET", "/queues"));
        }
    });
}

#[test]
fn a_token_may_ask() {
    let home = Home::released();
    let dci = guarded(&home);
    bearer(&dci.http, "token-one").get("/queues").ok();
    bearer(&dci.http, "token-two").get("/queues").ok();
    for token in ["", "token", "token-ones", "TOKEN-ONE", "token-one token-two", "ann"] {
        refused(&bearer(&dci.http, token), "GET", "/queues");
    }
}

#[test]
fn tokens_alone_close_the_interface_too() {
    let home = Home::released();
    let dci = home.dci_with(json!({"tokens": ["only"]}));
    refused(&dci.http, "GET", "/queues");
    refused(&basic(&dci.http, "only", "only"), "GET", "/queues");
    bearer(&dci.http, "only").get("/queues").ok();
}

#[test]
fn broken_credentials_are_refused() {
    let home = Home::released();
    let dci = guarded(&home);
    for header in [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic YW5u",
        "Basic //79",
        "Bearer",
        "Digest username=\"ann\"",
        "ann",
        ":",
        "basicYW5uOng=",
    ] {
        refused(&dci.http.with("Authorization", header), "GET", "/queues");
    }
    let long = "x".repeat(20_000);
    let answer = bearer(&dci.http, &long).get("/queues");
    assert!([401, 400, 431].contains(&answer.status), "{}", answer.status);
}

#[test]
fn the_scheme_is_read_in_any_case() {
    let home = Home::released();
    let dci = guarded(&home);
    dci.http.with("authorization", "bearer token-one").get("/queues").ok();
    let word = STANDARD.encode("bob:correct horse");
    dci.http.with("Authorization", &format!("BASIC {word}")).get("/queues").ok();
}

#[test]
fn a_refusal_and_a_log_tell_no_secret() {
    let home = Home::released();
    let mut dci = guarded(&home);
    let tries = [
        basic(&dci.http, "ann", "my wrong secret"),
        bearer(&dci.http, "my-wrong-secret"),
        basic(&dci.http, "ann", "plain: word ä"),
        bearer(&dci.http, "token-one"),
    ];
    let mut told = String::new();
    for http in &tries {
        told.push_str(&http.get("/queues").text());
        told.push_str(&http.get("/info").text());
    }
    dci.program.stop();
    told.push_str(&dci.program.console());
    for secret in ["my wrong secret", "my-wrong-secret", "plain: word", "token-one", HASH] {
        assert!(!told.contains(secret), "{secret} is told: {told}");
    }
}

#[test]
fn users_and_tokens_of_a_wrong_form_end_the_start() {
    let home = Home::released();
    for (key, value) in [
        ("users", json!(["ann"])),
        ("users", json!("ann")),
        ("users", json!({})),
        ("users", json!({"ann": 5})),
        ("users", json!({"ann": null})),
        ("users", json!({"ann": ""})),
        ("users", json!({"ann": "$argon2id$broken"})),
        ("users", json!({"a:b": "x"})),
        ("tokens", json!("one")),
        ("tokens", json!({"one": 1})),
        ("tokens", json!([5])),
        ("tokens", json!([""])),
    ] {
        let mut config = home.config();
        config[key] = value.clone();
        let told = home.dci_refused(&config);
        assert!(told.contains(key), "{key} {value}: {told}");
    }
}
