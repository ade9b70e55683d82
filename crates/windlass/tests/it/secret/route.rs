//! Secrets over HTTP: a value goes in, and who may do what.

use serde_json::{Value, json};

use crate::harness::{Client, Config, Daemon, text};

const TEXT: [(&str, &str); 1] = [("Content-Type", "text/plain")];

fn key(daemon: &Daemon, role: &str, tenant: &str) -> Client {
    let wish = json!({"role": role, "tenant": tenant});
    let made = daemon.send_json("POST", "/v1/keys", &wish).expect(201).json();
    daemon.with_key(&text(&made["key"]))
}

fn secrets(client: &Client, tenant: &str) -> Vec<Value> {
    let list = client.get(&format!("/v1/{tenant}/secrets")).expect(200).json();
    list["secrets"].as_array().unwrap().clone()
}

#[test]
fn secrets_are_listed_with_the_handlers_that_name_them_and_removed() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let versions = ["B_KEY", "A_KEY"].map(|name| tenant.secret(name, "hunter2!"));
    let handler = json!({"lang": "sh", "body": "true", "options": {"secrets": ["A_KEY"]}});
    for kind in ["one", "two"] {
        tenant.handler(kind, &handler);
    }
    let seen = secrets(&daemon, "a");
    let shown: Vec<_> = seen.iter().map(|s| (text(&s["name"]), s["handlers"].clone())).collect();
    let expected = [("A_KEY".to_owned(), json!(["one", "two"])), ("B_KEY".to_owned(), json!([]))];
    assert_eq!(shown, expected);
    assert_eq!([&seen[1]["version"], &seen[0]["version"]], [&versions[0], &versions[1]]);
    assert!(text(&seen[0]["updated_at"]).ends_with('Z'));
    let fields: Vec<&String> = seen[0].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["handlers", "name", "updated_at", "version"], "and no value");
    daemon.delete("/v1/a/secrets/A_KEY").expect(200);
    daemon.delete("/v1/a/secrets/A_KEY").expect(404);
    assert_eq!(secrets(&daemon, "a").len(), 1);
    daemon.get("/v1/a/secrets/B_KEY").expect(405);
}

#[test]
fn what_cannot_be_a_secret_is_refused_and_never_cited() {
    let daemon = Daemon::start(Config::new());
    let put = |name: &str, headers: &[(&str, &str)], value: &[u8]| {
        daemon.call("PUT", &format!("/v1/a/secrets/{name}"), headers, value)
    };
    for name in ["PATH", "LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "WINDLASS_KEY", "a", "A%20B"] {
        let refused = put(name, &TEXT, b"hunter2!").expect(400);
        assert_eq!(refused.json()["error"]["field"], "name", "{name}");
    }
    let long = vec![b'x'; 64 * 1024 + 1];
    for (value, status) in
        [(&b""[..], 400), (b"hunter\0two", 400), (b"hunter2!\xff", 400), (&long, 413)]
    {
        let refused = put("A", &TEXT, value).expect(status).text();
        assert!(!refused.contains("hunter"), "{refused}");
    }
    let json = [("Content-Type", "application/json")];
    let refused = put("A", &json, br#"{"value":12345678}"#).expect(415).text();
    assert!(!refused.contains("12345678"), "{refused}");
    assert_eq!(secrets(&daemon, "a"), [json!(null); 0]);
    put("A", &TEXT, &long[1..]).expect(200);
    put("B", &[], b"without a content type").expect(200);
}

#[test]
fn a_handler_that_names_a_missing_secret_is_set_with_a_warning() {
    let daemon = Daemon::start(Config::new());
    daemon.tenant("a").secret("A_KEY", "hunter2!");
    let set = |names: Value| {
        let handler = json!({"lang": "sh", "body": "true", "options": {"secrets": names}});
        daemon.send_json("PUT", "/v1/a/handlers/t", &handler)
    };
    assert_eq!(set(json!(["A_KEY"])).expect(200).json()["warnings"], json!(null));
    let warned = set(json!(["A_KEY", "B_KEY"])).expect(200).json();
    let sentence = "there is no secret B_KEY yet: jobs fail until it is set";
    assert_eq!(warned["warnings"], json!([sentence]));
    let shown = daemon.get("/v1/a/handlers/t").expect(200).json();
    assert_eq!(shown["options"]["secrets"], json!(["A_KEY", "B_KEY"]));
    set(json!(["a"])).expect(400);
    let many: Vec<String> = (0..21).map(|number| format!("S{number}")).collect();
    let refused = set(json!(many)).expect(400).json();
    assert_eq!(refused["error"]["field"], "options.secrets");
    let http =
        json!({"lang": "http", "body": "https://example.org", "options": {"secrets": ["A"]}});
    let refused = daemon.send_json("PUT", "/v1/a/handlers/h", &http).expect(400).json();
    assert_eq!(refused["error"]["field"], "options.secrets");
    assert!(text(&refused["error"]["message"]).contains("an http handler has no process"));
}

#[test]
fn a_job_fails_for_its_secret_by_the_ordinary_rules_and_others_run() {
    let daemon = Daemon::start(Config::new().set("retry.delay", "\"10ms\""));
    let tenant = daemon.tenant("a");
    let retry = json!({"attempts": 3, "delay": "10ms"});
    let options = json!({"secrets": ["A_KEY"], "retry": retry});
    tenant.handler("t", &json!({"lang": "sh", "body": "true", "options": options}));
    tenant.sh("plain", "true");
    let failed = tenant.until_end(&tenant.add_one("t", "x"));
    assert_eq!((&failed["state"], &failed["attempt"]), (&json!("failed"), &json!(3)));
    assert_eq!(failed["code"], "error");
    let plain = tenant.until_end(&tenant.add_one("plain", "x"));
    assert_eq!(plain["state"], "finished");
    tenant.secret("A_KEY", "hunter2!");
    let id = text(&failed["id"]);
    daemon.post(&format!("/v1/a/jobs/{id}/retry")).expect(200);
    assert_eq!(tenant.until_end(&id)["state"], "finished");
}

#[test]
fn only_managers_of_the_tenant_and_admins_may_use_secrets() {
    let daemon = Daemon::start(Config::new());
    daemon.tenant("a").secret("A_KEY", "hunter2!");
    let all = |client: &Client| {
        [
            client.get("/v1/a/secrets").status,
            client.call("PUT", "/v1/a/secrets/B_KEY", &TEXT, b"x").status,
            client.delete("/v1/a/secrets/B_KEY").status,
        ]
    };
    let manager = key(&daemon, "manager", "a");
    assert_eq!(all(&manager), [200, 200, 200]);
    for role in ["producer", "worker", "viewer"] {
        assert_eq!(all(&key(&daemon, role, "a")), [403, 403, 403], "{role}");
    }
    assert_eq!(all(&key(&daemon, "manager", "b")), [404, 404, 404]);
    assert_eq!(all(&daemon.without_key()), [401, 401, 401]);
    manager.post("/v1/secrets/rekey").expect(403);
    daemon.post("/v1/secrets/rekey").expect(200);
}

#[test]
fn a_secret_of_another_tenant_does_not_exist() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    daemon.tenant("a").secret("A_KEY", "hunter2!");
    let other = daemon.tenant("b");
    let handler = json!({"lang": "sh", "body": "env", "options": {"secrets": ["A_KEY"]}});
    let answer = daemon.send_json("PUT", "/v1/b/handlers/t", &handler).expect(200);
    assert!(answer.text().contains("there is no secret A_KEY yet"));
    let failed = other.until_end(&other.add_one("t", "x"));
    assert_eq!(failed["state"], "failed");
    assert!(other.log(&text(&failed["id"])).contains("there is no secret A_KEY"));
    assert_eq!(secrets(&daemon, "b").len(), 0);
    daemon.delete("/v1/b/secrets/A_KEY").expect(404);
    assert_eq!(secrets(&daemon, "a").len(), 1);
}
