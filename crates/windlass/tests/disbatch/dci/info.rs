//! What an interface shows about itself: its page, its files, `/info`, `/plugins`.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::harness::{DEMO, Home, both};

#[test]
fn plugins_are_the_names_that_the_config_allows() {
    for home in both() {
        let dci = home.dci();
        assert_eq!(dci.http.get("/plugins").ok(), json!([DEMO]));
    }
}

#[test]
fn the_list_form_of_plugins_names_programs() {
    for home in both() {
        let dci = home.dci_with(json!({"plugins": ["/bin/true", "/bin/false"]}));
        let mut names = dci.http.get("/plugins").ok();
        names.as_array_mut().unwrap().sort_by_key(ToString::to_string);
        assert_eq!(names, json!(["/bin/false", "/bin/true"]));
        let made = dci.http.post("/queues", &json!({"name": "q", "plugin": "/bin/true"}));
        made.ok();
    }
}

#[test]
fn the_object_form_of_plugins_may_have_a_path_for_a_name() {
    let home = Home::released();
    let dci = home.dci_with(json!({"plugins": {"/bin/true": {"type": "mongo"}}}));
    assert_eq!(dci.http.get("/plugins").ok(), json!(["/bin/true"]));
}

#[test]
fn a_config_without_plugins_allows_none() {
    let home = Home::released();
    let mut config = home.config();
    config.as_object_mut().unwrap().remove("plugins");
    let dci = home.dci_of(&config);
    assert_eq!(dci.http.get("/plugins").ok(), json!([]));
    let refused = dci.http.post("/queues", &json!({"name": "q", "plugin": DEMO})).bad();
    assert_eq!(refused, json!({"error": "Unknown plugin", "plugin": DEMO}));
}

#[test]
fn the_page_is_html() {
    for home in both() {
        let answer = home.dci().http.get("/").expect(200);
        let kind = answer.header("content-type").unwrap();
        assert!(kind.starts_with("text/html"), "{kind}");
        assert!(answer.text().to_lowercase().contains("<!doctype html>"));
    }
}

#[test]
fn info_tells_database_extensions_routes_and_dashboard() {
    let home = Home::released();
    let info = home.dci().http.get("/info").ok();
    let mut keys: Vec<&String> = info.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(keys, ["dashboard", "database", "routes", "web_extensions"]);
    assert_eq!(info["database"], json!(home.mongo.name()));
    assert_eq!(info["web_extensions"], json!([]));
    assert_eq!(info["dashboard"], json!({"refresh_ms": 30_000, "live_window_ms": 15_000}));
    for verb in ["GET", "POST", "DELETE"] {
        let routes = info["routes"][verb].as_array().unwrap();
        assert!(routes.iter().all(Value::is_string) && !routes.is_empty(), "{verb} {routes:?}");
    }
    let routes = info["routes"]["GET"].to_string();
    for path in ["/nodes", "/queues", "/tasks", "/plugins", "/info", "/balance", "/monitoring"] {
        assert!(routes.contains(path), "{path} is not in {routes}");
    }
}

#[test]
fn info_tells_what_the_config_says() {
    let home = Home::released();
    let dci = home.dci_with(json!({
        "dashboard": {"refresh_ms": 1000, "live_window_ms": 2000},
        "web_extensions": {"Disbatch::Web::V3": null, "Disbatch::Web::Tasks": null},
    }));
    let info = dci.http.get("/info").ok();
    assert_eq!(info["dashboard"], json!({"refresh_ms": 1000, "live_window_ms": 2000}));
    assert_eq!(info["web_extensions"], json!(["Disbatch::Web::Tasks", "Disbatch::Web::V3"]));
}

#[test]
fn other_paths_are_files_of_the_web_root() {
    let home = Home::released();
    let root = home.path("htdocs");
    fs::create_dir_all(root.join("js")).unwrap();
    fs::write(root.join("hello.txt"), "good day").unwrap();
    fs::write(root.join("js/a b.js"), "1;").unwrap();
    let dci = home.dci_with(json!({"web_root": root}));
    let answer = dci.http.get("/hello.txt").expect(200);
    assert_eq!(answer.text(), "good day");
    let answer = dci.http.get("/js/a%20b.js").expect(200);
    assert_eq!(answer.text(), "1;");
    assert!(answer.header("content-type").unwrap().contains("javascript"));
    dci.http.get("/none.txt").expect(404);
    dci.http.get("/js").expect(404);
    dci.http.get("/js/").expect(404);
}

#[test]
fn no_path_leads_out_of_the_web_root() {
    let home = Home::released();
    let root = home.path("htdocs");
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::write(root.join("inside.txt"), "inside").unwrap();
    fs::write(home.path("secret.txt"), "hunter2").unwrap();
    fs::create_dir(home.path("htdocs-other")).unwrap();
    fs::write(home.path("htdocs-other/secret.txt"), "hunter2").unwrap();
    symlink(home.path("secret.txt"), root.join("link.txt")).unwrap();
    symlink(home.folder(), root.join("up")).unwrap();
    let dci = home.dci_with(json!({"web_root": root}));
    let whole = home.path("secret.txt");
    let whole = whole.to_str().unwrap();
    for path in [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%5csecret.txt",
        "/sub/%2e%2e/%2e%2e/secret.txt",
        "/../htdocs-other/secret.txt",
        "/link.txt",
        "/up/secret.txt",
        "/inside.txt%00.html",
        "/./../secret.txt",
        "/%252e%252e/secret.txt",
        &format!("/{whole}"),
        &format!("/%2f{}", &whole[1..]),
    ] {
        let answer = dci.http.get(path);
        assert!((400..500).contains(&answer.status), "{path} {} {}", answer.status, answer.text());
        assert!(!answer.text().contains("hunter2"), "{path}");
    }
    assert_eq!(dci.http.get("/inside.txt").expect(200).text(), "inside");
}

#[test]
fn a_method_that_a_path_does_not_have_is_refused() {
    let home = Home::released();
    let dci = home.dci();
    for (method, path) in [
        ("DELETE", "/nodes"),
        ("PUT", "/queues"),
        ("DELETE", "/tasks"),
        ("POST", "/info"),
        ("PATCH", "/queues/demo"),
        ("POST", "/nothing/here"),
    ] {
        let answer = dci.http.ask(method, path, &[], b"");
        assert!([404, 405].contains(&answer.status), "{method} {path} {}", answer.status);
    }
}
