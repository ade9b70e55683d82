//! The audit: which requests have entries, what these tell, and who may read them.

use serde_json::{Value, json};

use windlass_core::audit::{Act, Actor, AuditEntry, AuditFilter, Reason, Subject};
use windlass_core::key::{KeyText, Role};
use windlass_core::store::AuditList;
use windlass_core::store::prelude::*;
use windlass_engine::api::Ended;
use windlass_test_kit::wait::{in_time, pause};

use crate::access::{call, call_json, id_of, key_of, start};
use crate::daemon::Daemon;

async fn list(daemon: &Daemon, key: &str, query: &str) -> Vec<Value> {
    let answer = call(daemon, &format!("GET /v1/audit?{query}"), key, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["entries"].as_array().unwrap().clone()
}

async fn stored(daemon: &Daemon) -> Vec<AuditEntry> {
    let filter = AuditFilter::default();
    let list = AuditList { filter, before: None, limit: 1000 };
    daemon.store.audit_list(list).await.unwrap().entries
}

/// Returns when the audit has this many entries.
async fn until_stored(daemon: &Daemon, count: usize) -> Vec<AuditEntry> {
    let enough = async {
        loop {
            let entries = stored(daemon).await;
            if entries.len() >= count {
                return entries;
            }
            pause().await;
        }
    };
    let entries = in_time("the entries are stored", enough).await;
    assert_eq!(entries.len(), count, "{entries:?}");
    entries
}

/// One use of each audited route, with its operation, and the type and the id of its entry.
/// `JOB`, `KEY` and `OLD` stand for a job and for keys.
const CHANGES: [(&str, &str, Option<&str>, Option<&str>); 21] = [
    ("seed_handler_add", "POST /acme/handler/add/t/add", Some("t"), Some("ID")),
    ("seed_handler_delete", "POST /acme/handler/del/t/delete", Some("t"), None),
    ("handler_set", "PUT /v1/acme/handlers/a%2Fb", Some("a/b"), Some("ID")),
    ("seed_handler_delete_too", "DELETE /acme/handler/del/a%2Fb/delete", Some("a/b"), None),
    ("handler_delete", "DELETE /v1/acme/handlers/a%2Fb", Some("a/b"), None),
    ("job_cancel", "POST /v1/acme/jobs/JOB/cancel", None, Some("JOB")),
    ("job_retry", "POST /v1/acme/jobs/JOB/retry", None, Some("JOB")),
    ("job_requeue", "POST /v1/acme/jobs/requeue", Some("w"), None),
    ("job_delete", "DELETE /v1/acme/jobs/JOB", None, Some("JOB")),
    ("type_suspend", "POST /v1/acme/types/t/suspend", Some("t"), None),
    ("type_resume", "POST /v1/acme/types/t/resume", Some("t"), None),
    ("type_settings_put", "PUT /v1/acme/types/t/settings", Some("t"), None),
    ("tenant_settings_put", "PUT /v1/tenants/acme", None, None),
    ("key_create", "POST /v1/keys", None, Some("ID")),
    ("key_rotate", "POST /v1/keys/OLD/rotate", None, Some("OLD")),
    ("key_revoke", "DELETE /v1/keys/KEY", None, Some("KEY")),
    ("secret_set", "PUT /v1/acme/secrets/TOKEN", None, Some("TOKEN")),
    ("secret_delete", "DELETE /v1/acme/secrets/TOKEN", None, Some("TOKEN")),
    ("secret_rekey", "POST /v1/secrets/rekey", None, None),
    ("control_stop", "POST /v1/control/stop", None, None),
    ("control_start", "POST /v1/control/start", None, None),
];

fn body_of(action: &str) -> Value {
    match action {
        "seed_handler_add" | "handler_set" => json!({"lang": "sh", "body": "echo of-the-handler"}),
        "job_requeue" => json!({"type": "w", "state": "failed"}),
        "key_create" => json!({"role": "viewer", "tenant": "acme", "name": "name-of-the-key"}),
        "key_rotate" | "type_settings_put" | "tenant_settings_put" => json!({}),
        _ => Value::Null,
    }
}

#[tokio::test]
async fn every_audited_route_writes_one_entry_with_its_fields() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let (old, key) =
        (key_of(&daemon, Role::Viewer, None).await, key_of(&daemon, Role::Viewer, None).await);
    let job = call(&daemon, "POST /v1/acme/jobs/u", &admin, "x").await.ids().remove(0);
    let document = call(&daemon, "GET /openapi.json", &admin, "").await.json();
    let operations = document["paths"].as_object().unwrap().values();
    let operations = operations.flat_map(|item| item.as_object().unwrap().values());
    let audited = operations.filter(|operation| {
        operation["description"].as_str().is_some_and(|text| text.ends_with("Audited."))
    });
    let mut audited: Vec<&str> = audited.map(|o| o["operationId"].as_str().unwrap()).collect();
    let mut tried: Vec<&str> = CHANGES.iter().map(|(action, ..)| *action).collect();
    audited.sort_unstable();
    tried.sort_unstable();
    assert_eq!(audited, tried, "every audited route is tried");

    for (number, (action, line, name, id)) in CHANGES.into_iter().enumerate() {
        let fill = |text: &str| {
            let text = text.replace("JOB", &job).replace("OLD", id_of(&old));
            text.replace("KEY", id_of(&key))
        };
        let answer = match body_of(action) {
            Value::Null if action == "secret_set" => {
                call(&daemon, &fill(line), &admin, "value-of-the-secret").await
            }
            Value::Null => call(&daemon, &fill(line), &admin, "").await,
            body => call_json(&daemon, &fill(line), &admin, body).await,
        };
        let entries = list(&daemon, &admin, "").await;
        assert_eq!(entries.len(), number + 1, "{action}: {entries:?}");
        let entry = &entries[0];
        assert_eq!(entry["status"], answer.status, "{action}");
        assert!(answer.status < 400 || action == "handler_delete", "{action}: {answer:?}");
        assert_eq!(entry["action"], action);
        assert_eq!((&entry["by"], &entry["role"]), (&json!("key"), &json!("admin")), "{action}");
        assert_eq!(entry["key"], id_of(&admin), "{action}");
        assert_eq!(entry["address"], "127.0.0.1", "{action}");
        assert_eq!((&entry["count"], &entry["reason"]), (&json!(1), &Value::Null), "{action}");
        let is_of_all = action.starts_with("control") || action == "secret_rekey";
        let tenant = if is_of_all { Value::Null } else { json!("acme") };
        assert_eq!(entry["tenant"], tenant, "{action}");
        assert_eq!(entry["type"], json!(name), "{action}");
        let expected = match id {
            Some("ID") => answer.json()["id"].clone(),
            id => json!(id.map(fill)),
        };
        assert_eq!(entry["id"], expected, "{action}");
        let (at, last_at) = (entry["at"].as_str().unwrap(), entry["last_at"].as_str().unwrap());
        assert!(at <= last_at, "{entry}");
    }
    let created = &list(&daemon, &admin, "action=key_create").await[0];
    assert_eq!(created["detail"], "role viewer");
    let rotated = &list(&daemon, &admin, "action=key_rotate").await[0];
    assert!(rotated["detail"].as_str().unwrap().starts_with("new key "), "{rotated}");
    let requeued = &list(&daemon, &admin, "action=job_requeue").await[0];
    assert_eq!(requeued["detail"], "0 failed jobs");
}

#[tokio::test]
async fn the_ordinary_traffic_has_no_entries() {
    let daemon = start().await;
    let manager = key_of(&daemon, Role::Manager, None).await;
    call(&daemon, "POST /v1/acme/jobs/t", &manager, "a").await;
    call(&daemon, "POST /acme/job/t/add", &manager, "b").await;
    let claim = json!({"types": ["t"], "limit": 2, "wait": "10s"});
    let claimed = call_json(&daemon, "POST /v1/acme/claim", &manager, claim).await.json();
    for job in claimed["jobs"].as_array().unwrap() {
        let line = |verb| format!("POST /v1/acme/jobs/{}/{verb}", job["id"].as_str().unwrap());
        let token = &job["token"];
        let progress = json!({"token": token, "percent": 5, "message": "m"});
        let answer = call_json(&daemon, &line("progress"), &manager, progress).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let renew = json!({"token": token});
        assert_eq!(call_json(&daemon, &line("renew"), &manager, renew).await.status, 200);
        let finish = json!({"token": token, "status": 200});
        assert_eq!(call_json(&daemon, &line("finish"), &manager, finish).await.status, 200);
    }
    for path in ["/v1/acme/jobs", "/v1/acme/types", "/v1/keys", "/v1/audit", "/openapi.json"] {
        assert_eq!(call(&daemon, &format!("GET {path}"), &manager, "").await.status, 200);
    }
    assert_eq!(stored(&daemon).await, []);
}

#[tokio::test]
async fn every_kind_of_refusal_has_an_entry() {
    let daemon = start().await;
    let viewer = key_of(&daemon, Role::Viewer, None).await;
    let manager = key_of(&daemon, Role::Manager, None).await;
    let revoked = key_of(&daemon, Role::Worker, None).await;
    daemon.engine.key_revoke(None, id_of(&revoked).parse().unwrap()).await.unwrap();
    let wrong = KeyText::random().unwrap().reveal();
    assert_eq!(daemon.get("/v1/acme/jobs").await.status, 401);
    assert_eq!(call(&daemon, "POST /v1/acme/jobs/mail", &wrong, "").await.status, 401);
    assert_eq!(call(&daemon, "POST /v1/acme/claim", &revoked, "").await.status, 401);
    assert_eq!(call(&daemon, "POST /v1/acme/jobs/7/cancel", &viewer, "").await.status, 403);
    assert_eq!(call(&daemon, "GET /v1/globex/jobs", &viewer, "").await.status, 404);
    assert_eq!(call(&daemon, "GET /v1/keys?tenant=globex", &manager, "").await.status, 404);
    let foreign = ["origin: http://evil.example"];
    assert_eq!(daemon.call("POST /v1/acme/jobs/t", &foreign, "").await.status, 403);
    let entries = until_stored(&daemon, 7).await;
    let find = |reason: &str, key: Option<&str>| {
        let is_it = |entry: &&AuditEntry| {
            entry.reason.is_some_and(|known| known.as_str() == reason)
                && entry.act.by.key() == key.map(|key| id_of(key).parse().unwrap())
        };
        let found = entries.iter().find(is_it).unwrap_or_else(|| panic!("{reason}: {entries:?}"));
        let Act { action, subject, address, .. } = &found.act;
        assert_eq!(address.unwrap().to_string(), "127.0.0.1");
        let Subject { tenant, name, id, detail } = subject.clone();
        let tenant = tenant.map(|tenant| tenant.to_string()).unwrap_or_default();
        let about = id.or(detail).or(name.map(|name| name.to_string())).unwrap_or_default();
        (action.as_str(), found.status.unwrap(), tenant, about)
    };
    let acme = || "acme".to_owned();
    assert_eq!(find("no_key", None), ("job_list", 401, acme(), String::new()));
    assert_eq!(find("wrong_key", None), ("job_add", 401, acme(), "mail".into()));
    assert_eq!(find("revoked", Some(&revoked)), ("claim", 401, acme(), String::new()));
    assert_eq!(find("role", Some(&viewer)), ("job_cancel", 403, acme(), "7".into()));
    let tenant = find("tenant", Some(&viewer));
    assert_eq!(tenant, ("job_list", 404, acme(), "tenant globex".into()), "of its own tenant");
    assert_eq!(find("tenant", Some(&manager)), ("key_list", 404, acme(), String::new()));
    assert_eq!(find("site", None), ("site", 403, String::new(), String::new()));
}

/// Of a request that asks for more than a maximum: its operation, and the type and the job of its
/// entry.
type Greedy = (&'static str, &'static str, Option<&'static str>, Option<&'static str>);

#[tokio::test]
async fn every_use_of_more_than_a_maximum_has_an_entry() {
    const GREEDY: [(Greedy, &str); 6] = [
        (("job_add", "POST /v1/acme/jobs/t?timeout=365d", Some("t"), None), "x"),
        (("seed_job_add", "POST /acme/job/t/add?timeout=365d", Some("t"), None), "x"),
        (("claim", "POST /v1/acme/claim", None, None), r#"{"lease": "365d"}"#),
        (
            ("job_renew", "POST /v1/acme/jobs/7/renew", None, Some("7")),
            r#"{"token": 1, "lease": "365d"}"#,
        ),
        (
            ("type_settings_put", "PUT /v1/acme/types/t/settings", Some("t"), None),
            r#"{"retention": "366d"}"#,
        ),
        (
            ("handler_set", "PUT /v1/acme/handlers/t", Some("t"), None),
            r#"{"lang": "sh", "body": "true", "options": {"memory": "1TB"}}"#,
        ),
    ];
    for has_keys in [true, false] {
        for ((action, line, name, id), body) in GREEDY {
            // Refusals of one key and address share an entry, so each has a daemon of its own.
            let daemon = if has_keys { start().await } else { Daemon::start().await };
            let manager = key_of(&daemon, Role::Manager, None).await;
            let answer = match body {
                "x" => call(&daemon, line, &manager, body).await,
                body => {
                    let body = serde_json::from_str(body).unwrap();
                    call_json(&daemon, line, &manager, body).await
                }
            };
            assert_eq!(answer.status, 400, "{action}: {answer:?}");
            let entries = until_stored(&daemon, 1).await;
            let AuditEntry { act, status, reason, .. } = &entries[0];
            assert_eq!((act.action.as_str(), *status), (action, Some(400)));
            assert_eq!(*reason, Some(Reason::Maximum), "{action}");
            let by = if has_keys { Some(id_of(&manager).parse().unwrap()) } else { None };
            let actor = if has_keys { "key" } else { "insecure" };
            assert_eq!((act.by.key(), act.by.as_str()), (by, actor), "{action}");
            assert_eq!(act.address.unwrap().to_string(), "127.0.0.1");
            let Subject { tenant, name: about, id: job, .. } = &act.subject;
            assert_eq!(tenant.as_ref().unwrap().as_str(), "acme");
            assert_eq!(about.as_ref().map(|name| name.as_str()), name, "{action}");
            assert_eq!(job.as_deref(), id, "{action}");
        }
    }
}

#[tokio::test]
async fn the_audit_is_for_admins_and_for_managers_within_their_tenant() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let manager = key_of(&daemon, Role::Manager, None).await;
    for (key, tenant) in [(&admin, "globex"), (&admin, "acme"), (&manager, "acme")] {
        let line = format!("POST /v1/{tenant}/types/t/suspend");
        assert_eq!(call(&daemon, &line, key, "").await.status, 200);
    }
    let wish = json!({"role": "viewer", "tenant": "acme"});
    let key = call_json(&daemon, "POST /v1/keys", &admin, wish).await.json();
    let revoke = format!("DELETE /v1/keys/{}", key["id"].as_str().unwrap());
    assert_eq!(call(&daemon, &revoke, &admin, "").await.status, 200);
    assert_eq!(call(&daemon, "POST /v1/control/start", &admin, "").await.status, 200);
    assert_eq!(list(&daemon, &admin, "").await.len(), 6);
    assert_eq!(list(&daemon, &admin, "tenant=globex").await.len(), 1);
    let seen = list(&daemon, &manager, "").await;
    let actions: Vec<&str> = seen.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key_revoke", "key_create", "type_suspend", "type_suspend"]);
    assert!(seen.iter().all(|entry| entry["tenant"] == "acme"), "{seen:?}");
    assert_eq!(list(&daemon, &manager, "tenant=acme").await, seen);
    assert_eq!(call(&daemon, "GET /v1/audit?tenant=globex", &manager, "").await.status, 404);
    for role in [Role::Producer, Role::Worker, Role::Viewer, Role::Metrics] {
        let key = key_of(&daemon, role, None).await;
        assert_eq!(call(&daemon, "GET /v1/audit", &key, "").await.status, 403, "{role}");
    }
    assert_eq!(daemon.get("/v1/audit").await.status, 401);
}

#[tokio::test]
async fn entries_are_listed_in_pages_and_filtered() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let manager = key_of(&daemon, Role::Manager, None).await;
    for number in 0..5 {
        let key = if number < 3 { &admin } else { &manager };
        let verb = if number % 2 == 0 { "suspend" } else { "resume" };
        let line = format!("POST /v1/acme/types/t{number}/{verb}");
        assert_eq!(call(&daemon, &line, key, "").await.status, 200);
    }
    let (mut types, mut after) = (Vec::new(), String::new());
    loop {
        let line = format!("GET /v1/audit?limit=2{after}");
        let page = call(&daemon, &line, &admin, "").await.json();
        let entries = page["entries"].as_array().unwrap();
        assert!(entries.len() <= 2);
        types.extend(entries.iter().map(|entry| entry["type"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(types, ["t4", "t3", "t2", "t1", "t0"]);
    let count = async |query: &str| list(&daemon, &admin, query).await.len();
    assert_eq!(count("action=type_suspend").await, 3);
    assert_eq!(count(&format!("key={}", id_of(&manager))).await, 2);
    assert_eq!(count("since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z").await, 0);
    let middle = list(&daemon, &admin, "").await[2]["at"].as_str().unwrap().to_owned();
    let (until, since) =
        (count(&format!("until={middle}")).await, count(&format!("since={middle}")).await);
    assert!(until + since == 5 && since >= 3, "{until} {since}");
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("key=x", "key"),
        ("since=yesterday", "since"),
        ("until=1", "until"),
        ("after=x", "after"),
        ("tenant=a%20b", "tenant"),
        ("who=me", "who"),
    ] {
        let refused = call(&daemon, &format!("GET /v1/audit?{query}"), &admin, "").await.refusal();
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some(field)), "{query}");
    }
}

#[tokio::test]
async fn no_entry_has_a_secret_a_payload_a_header_or_a_body() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let mut secrets = vec!["hush".to_owned(), admin.rsplit('_').next().unwrap().to_owned()];
    let body = json!({"lang": "sh", "body": "hush", "options": {"env": {"A": "hush"}}});
    call_json(&daemon, "PUT /v1/acme/handlers/t", &admin, body).await;
    call_json(&daemon, "PUT /v1/acme/handlers/t?x=hush", &admin, json!({"hush": "hush"})).await;
    call(&daemon, "POST /v1/acme/jobs/t", &admin, "hush").await;
    let wish = json!({"role": "viewer", "tenant": "acme", "name": "hush"});
    let made = call_json(&daemon, "POST /v1/keys", &admin, wish).await.json();
    let key = made["key"].as_str().unwrap();
    secrets.push(key.rsplit('_').next().unwrap().to_owned());
    // A whole key in a path, as a mistake.
    assert_eq!(call(&daemon, &format!("DELETE /v1/keys/{key}"), &admin, "").await.status, 400);
    let rotate = format!("POST /v1/keys/{}/rotate", id_of(key));
    let rotated = call_json(&daemon, &rotate, &admin, json!({})).await.json();
    secrets.push(rotated["key"].as_str().unwrap().rsplit('_').next().unwrap().to_owned());
    let wrong = KeyText::random().unwrap().reveal();
    secrets.push(wrong.clone());
    secrets.push(id_of(&wrong).to_owned());
    call(&daemon, "POST /v1/acme/jobs/t?unique=hush", &wrong, "hush").await;
    let odd = ["authorization: Basic hush", "user-agent: hush", "cookie: hush"];
    daemon.call("POST /v1/acme/jobs/t", &odd, "hush").await;
    daemon.call("POST /v1/acme/jobs/t", &["origin: http://hush.example"], "hush").await;
    until_stored(&daemon, 8).await;
    let shown = call(&daemon, "GET /v1/audit", &admin, "").await;
    assert!(shown.text().contains("handler_set") && shown.text().contains("site"));
    for secret in secrets {
        assert!(!shown.text().contains(&secret), "{secret}: {}", shown.text());
    }
}

#[tokio::test]
async fn a_flood_of_wrong_keys_has_few_entries() {
    const FLOOD: usize = 2000;
    let daemon = start().await;
    let key = key_of(&daemon, Role::Viewer, None).await;
    for number in 0..FLOOD {
        let wrong = format!("wl_{number:016x}_{number:064x}");
        let status = call(&daemon, "GET /v1/acme/jobs", &wrong, "").await.status;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    assert_eq!(call(&daemon, "GET /v1/acme/jobs", &key, "").await.status, 200);
    let entries = until_stored(&daemon, 2).await;
    let mut reasons: Vec<_> = entries.iter().map(|entry| entry.reason.unwrap().as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["limited", "wrong_key"]);
}

#[tokio::test]
async fn while_the_store_is_away_changes_are_refused_and_refusals_wait() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    daemon.store.set_available(false);
    assert_eq!(call(&daemon, "POST /v1/control/stop", &admin, "").await.status, 503);
    assert_eq!(daemon.get("/v1/acme/jobs").await.status, 401);
    daemon.store.set_available(true);
    let entries = until_stored(&daemon, 1).await;
    assert_eq!(entries[0].act.action, "job_list");
    let status = call(&daemon, "GET /v1/status", &admin, "").await.json();
    assert_eq!(status["picking"], true, "nothing changes without an entry");
}

#[tokio::test]
async fn without_keys_changes_are_audited_too() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let listed = daemon.get("/v1/audit").await.json();
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["by"]), (1, &json!("insecure")), "{listed}");
    assert_eq!((&entries[0]["key"], &entries[0]["status"]), (&Value::Null, &json!(200)));
}

fn act() -> Act {
    let subject = Subject::default();
    Act { by: Actor::Insecure, address: None, action: "handler_set".into(), subject }
}

#[tokio::test]
async fn an_entry_is_there_before_its_change_and_complete_before_the_answer() {
    let daemon = start().await;
    let store = daemon.store.clone();
    let change = async move {
        let filter = AuditFilter::default();
        let list = AuditList { filter, before: None, limit: 10 };
        let begun = store.audit_list(list).await.unwrap().entries;
        (begun, Ended { status: 200, reason: None, about: Subject::default() })
    };
    let begun = daemon.engine.audited(act(), change).await.unwrap();
    assert_eq!((begun.len(), begun[0].status), (1, None));
    assert_eq!(stored(&daemon).await[0].status, Some(200));
}

#[tokio::test]
async fn an_outcome_that_the_store_does_not_take_is_stored_later() {
    let daemon = start().await;
    let store = daemon.store.clone();
    let change = async move {
        store.set_available(false);
        ((), Ended { status: 200, reason: None, about: Subject::default() })
    };
    daemon.engine.audited(act(), change).await.unwrap();
    daemon.store.set_available(true);
    let complete = async {
        while stored(&daemon).await[0].status.is_none() {
            pause().await;
        }
    };
    in_time("the outcome is stored", complete).await;
}

#[tokio::test]
async fn a_change_whose_caller_disconnects_has_its_outcome_too() {
    let daemon = start().await;
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let change = async move {
        gone.await.unwrap();
        ((), Ended { status: 200, reason: None, about: Subject::default() })
    };
    let mut audited = Box::pin(daemon.engine.audited(act(), change));
    assert!(futures_util::poll!(&mut audited).is_pending());
    drop(audited);
    assert_eq!(stored(&daemon).await[0].status, None);
    go.send(()).unwrap();
    let complete = async {
        while stored(&daemon).await[0].status.is_none() {
            pause().await;
        }
    };
    in_time("the outcome is stored", complete).await;
}
