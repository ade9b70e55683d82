//! Keys and roles: who may use which route.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_core::key::{KeyText, NewKey, Owner, Role};
use windlass_core::name::Tenant;
use windlass_core::store::prelude::*;
use windlass_door_http::Access;
use windlass_test_kit::wait::{in_time, pause};

use crate::client::{Client, Response, request};
use crate::daemon::Daemon;
use crate::operate::{fill, valid_body};

/// What each operation needs, written down a second time: the operations of the document, and who
/// may use them besides the admin.
const TABLE: [(&str, &[&str]); 8] = [
    ("healthz readyz", &["nobody", "producer", "worker", "viewer", "manager", "metrics"]),
    ("openapi", &["producer", "worker", "viewer", "manager", "metrics"]),
    ("job_add seed_job_add", &["producer", "manager"]),
    ("job_get job_payload job_log", &["producer", "worker", "viewer", "manager"]),
    (
        "job_list type_list type_settings_get handler_list handler_get seed_handler_get",
        &["viewer", "manager"],
    ),
    ("claim job_renew job_finish job_release job_progress", &["worker", "manager"]),
    (
        "job_cancel job_retry job_delete job_requeue type_suspend type_resume type_settings_put \
         handler_set handler_delete seed_handler_add seed_handler_delete seed_handler_delete_too \
         key_create key_list key_revoke key_rotate audit_list secret_list secret_set \
         secret_delete",
        &["manager"],
    ),
    ("metrics", &["metrics"]),
];
/// For the admin alone.
const OPERATING: &str = "status events daemon_list control_stop control_start secret_rekey \
                         tenant_settings_get tenant_settings_put";

pub async fn start() -> Daemon {
    Daemon::start_with(|options| options.access = Access::Keys).await
}

pub async fn key_of(daemon: &Daemon, role: Role, lifetime: Option<Duration>) -> String {
    let text = KeyText::random().unwrap();
    let tenant = role.has_tenant().then(|| Tenant::new("acme").unwrap());
    let owner = Owner { role, tenant, name: format!("the {role}") };
    let new = NewKey { id: text.id(), digest: text.digest(), owner, lifetime };
    daemon.engine.key_create(new).await.unwrap();
    text.reveal()
}

pub async fn call(daemon: &Daemon, line: &str, key: &str, body: impl AsRef<[u8]>) -> Response {
    let authorization = format!("authorization: Bearer {key}");
    daemon.call(line, &[&authorization], body).await
}

pub async fn call_json(daemon: &Daemon, line: &str, key: &str, body: Value) -> Response {
    let authorization = format!("authorization: Bearer {key}");
    let headers = [authorization.as_str(), "content-type: application/json"];
    daemon.call(line, &headers, body.to_string()).await
}

pub fn id_of(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

/// The operations of the document: id, method and path.
async fn operations(daemon: &Daemon, key: &str) -> Vec<(String, String)> {
    let document = call(daemon, "GET /openapi.json", key, "").await.json();
    let mut operations = Vec::new();
    for (template, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            operations.push((id, format!("{} {}", method.to_uppercase(), fill(template))));
        }
    }
    operations
}

/// Every route refuses an unknown parameter, so that a request that was let in changes nothing.
#[tokio::test]
async fn every_route_lets_in_the_roles_of_the_table_and_no_others() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let mut keys = vec![("nobody", None)];
    for role in Role::ALL {
        keys.push((role.as_str(), Some(key_of(&daemon, role, None).await)));
    }
    let operations = operations(&daemon, &admin).await;
    assert!(operations.len() >= 36, "{}", operations.len());
    for (id, line) in operations {
        let has = |ids: &str| ids.split_whitespace().any(|known| known == id);
        let row = TABLE.iter().find(|(ids, _)| has(ids)).map(|(_, roles)| *roles);
        let able = row.or(has(OPERATING).then_some(&[]));
        let able = able.unwrap_or_else(|| panic!("{id} is not in the table"));
        let line = format!("{line}?nonsense=1");
        for (role, key) in &keys {
            let answer = match key {
                Some(key) => call(&daemon, &line, key, valid_body(&line)).await,
                None => daemon.call(&line, &[], valid_body(&line)).await,
            };
            let expected = match () {
                () if *role == "admin" || able.contains(role) => 400,
                () if *role == "nobody" => 401,
                () => 403,
            };
            assert_eq!(answer.status, expected, "{role}: {line}: {answer:?}");
        }
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_foreign_tenant_does_not_exist_for_a_key() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let manager = key_of(&daemon, Role::Manager, None).await;
    for (id, line) in operations(&daemon, &admin).await {
        if !line.contains("acme") {
            continue;
        }
        for other in ["globex", "acme%00", "ACME", "acm", "%61cme2"] {
            let line = format!("{}?nonsense=1", line.replace("acme", other));
            let answer = call(&daemon, &line, &manager, valid_body(&line)).await;
            assert_eq!(answer.refusal(), (404, "not_found".into(), None), "{id}: {line}");
        }
        let line = format!("{}?nonsense=1", line.replace("acme", "globex"));
        let answer = call(&daemon, &line, &admin, valid_body(&line)).await;
        assert_eq!(answer.status, 400, "an admin has all tenants: {line}");
        let line = line.replace("globex", "%61cme");
        let answer = call(&daemon, &line, &manager, valid_body(&line)).await;
        let is_for_admins = OPERATING.split_whitespace().any(|operation| operation == id);
        let expected = if is_for_admins { 403 } else { 400 };
        assert_eq!(answer.status, expected, "it is the same tenant: {line}");
    }
}

#[tokio::test]
async fn what_is_no_key_in_force_is_refused_with_words() {
    let daemon = start().await;
    let key = key_of(&daemon, Role::Viewer, None).await;
    let check = async |header: &str, words: &str| {
        let headers: &[&str] = if header.is_empty() { &[] } else { &[header] };
        let answer = daemon.call("GET /v1/acme/jobs", headers, "").await;
        let expected = (401, "unauthorized".into(), Some("Authorization".into()));
        assert_eq!(answer.refusal(), expected, "{header}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("bearer"), "{answer:?}");
        assert!(answer.text().contains(words), "{header}: {}", answer.text());
        answer.text().to_owned()
    };
    check("", "admin.key").await;
    for odd in ["authorization: Basic x", "authorization: Bearer", "authorization: \u{e9}"] {
        check(odd, "Authorization: Bearer KEY").await;
    }
    let unknown = KeyText::random().unwrap().reveal();
    let unknown = check(&format!("authorization: Bearer {unknown}"), "not valid").await;
    let end = if key.ends_with('0') { '1' } else { '0' };
    let wrong = format!("authorization: Bearer {}{end}", &key[..key.len() - 1]);
    assert_eq!(check(&wrong, "not valid").await, unknown, "nobody learns which keys exist");
    check("authorization: Bearer x", "not valid").await;
    let short = key_of(&daemon, Role::Viewer, Some(Duration::from_millis(1))).await;
    let expires = async {
        while call(&daemon, "GET /v1/acme/jobs", &short, "").await.status == 200 {
            pause().await;
        }
    };
    in_time("the key expires", expires).await;
    check(&format!("authorization: Bearer {short}"), "expired").await;
    for form in ["Bearer", "bearer", "BEARER "] {
        let header = format!("authorization: {form} {key}");
        assert_eq!(daemon.call("GET /v1/acme/jobs", &[&header], "").await.status, 200, "{form}");
    }
    daemon.engine.key_revoke(None, id_of(&key).parse().unwrap()).await.unwrap();
    check(&format!("authorization: Bearer {key}"), "revoked").await;
}

#[tokio::test]
async fn listed_networks_read_the_metrics_without_a_key_and_nothing_else() {
    let open_to = async |network: &str| {
        let network = network.parse().unwrap();
        Daemon::start_with(|options| {
            (options.access, options.metrics_allow) = (Access::Keys, vec![network]);
        })
        .await
    };
    let daemon = open_to("127.0.0.0/8").await;
    assert_eq!(daemon.get("/metrics").await.status, 200);
    for path in ["/v1/status", "/v1/acme/jobs", "/openapi.json"] {
        assert_eq!(daemon.get(path).await.status, 401, "{path}");
    }
    let viewer = key_of(&daemon, Role::Viewer, None).await;
    assert_eq!(call(&daemon, "GET /metrics", &viewer, "").await.status, 403);
    let elsewhere = open_to("10.0.0.0/8").await;
    assert_eq!(elsewhere.get("/metrics").await.status, 401);
}

#[tokio::test]
async fn a_flood_of_wrong_keys_slows_nobody_else() {
    const FLOOD: usize = 3000;
    let daemon = start().await;
    let key = key_of(&daemon, Role::Viewer, None).await;
    let mut statuses = std::collections::BTreeMap::new();
    for number in 0..FLOOD {
        let wrong = KeyText::random().unwrap().reveal();
        let answer = call(&daemon, "GET /v1/acme/jobs", &wrong, "").await;
        *statuses.entry(answer.status).or_insert(0) += 1;
        if answer.status == 429 {
            let expected = (429, "limited".into(), Some("Authorization".into()));
            assert_eq!(answer.refusal(), expected);
            assert_eq!(answer.header("retry-after"), Some("10"));
            assert_eq!(answer.header("connection"), Some("close"));
        }
        if number % 100 == 0 {
            let right = call(&daemon, "GET /v1/acme/jobs", &key, "").await;
            assert_eq!(right.status, 200, "from the same address, in the middle of the flood");
        }
    }
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [401, 429]);
    assert!(statuses[&429] > FLOOD / 2, "{statuses:?}");
    assert_eq!(daemon.get("/v1/acme/jobs").await.status, 401, "no key is not a wrong key");
}

#[tokio::test]
async fn health_is_for_everybody_and_details_are_not() {
    let daemon = start().await;
    assert_eq!(daemon.get("/healthz").await.text(), "ok");
    let detailed = json!({"journal": "ok", "store": "ok", "services": "ok", "takeover": "ok"});
    let viewer = key_of(&daemon, Role::Viewer, None).await;
    let plain = json!({"ready": "ok"});
    assert_eq!(daemon.get("/readyz").await.json(), plain);
    assert_eq!(call(&daemon, "GET /readyz", &viewer, "").await.json(), plain);
    assert_eq!(call(&daemon, "GET /readyz", "wl_wrong", "").await.json(), plain);
    for role in [Role::Admin, Role::Metrics] {
        let key = key_of(&daemon, role, None).await;
        assert_eq!(call(&daemon, "GET /readyz", &key, "").await.json(), detailed);
        assert_eq!(call(&daemon, "GET /metrics", &key, "").await.status, 200);
    }
}

#[tokio::test]
async fn an_admin_makes_lists_and_revokes_keys() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let wish = json!({"role": "worker", "tenant": "globex", "name": "pump", "expires": "1h"});
    let made = call_json(&daemon, "POST /v1/keys", &admin, wish).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let key = made["key"].as_str().unwrap();
    assert_eq!(made["id"], id_of(key));
    assert_eq!((&made["role"], &made["tenant"]), (&json!("worker"), &json!("globex")));
    assert!(made["expires_at"].is_string() && made["revoked_at"].is_null(), "{made}");
    let claim = async || {
        let answer = call_json(&daemon, "POST /v1/globex/claim", key, json!({})).await;
        answer.status
    };
    assert_eq!(claim().await, 200);
    let listed = call(&daemon, "GET /v1/keys?tenant=globex", &admin, "").await;
    assert!(!listed.text().contains(key.rsplit('_').next().unwrap()), "no secret is shown");
    assert_eq!(listed.json()["keys"].as_array().unwrap().len(), 1);
    let revoke = format!("DELETE /v1/keys/{}", id_of(key));
    assert_eq!(call(&daemon, &revoke, &admin, "").await.status, 200);
    assert_eq!(claim().await, 401, "at once on the daemon that was asked");
    assert_eq!(call(&daemon, "DELETE /v1/keys/00ff", &admin, "").await.status, 400);
    let unknown = "DELETE /v1/keys/0123456789abcdef";
    assert_eq!(call(&daemon, unknown, &admin, "").await.status, 404);
    for (wish, field) in [
        (json!({"role": "boss"}), "role"),
        (json!({"role": "worker"}), "tenant"),
        (json!({"role": "admin", "tenant": "acme"}), "tenant"),
        (json!({"role": "worker", "tenant": "a b"}), "tenant"),
        (json!({"role": "worker", "tenant": "keys"}), "tenant"),
        (json!({"role": "metrics", "name": "a\u{7}"}), "name"),
        (json!({"role": "metrics", "expires": "0s"}), "expires"),
    ] {
        let refused = call_json(&daemon, "POST /v1/keys", &admin, wish.clone()).await.refusal();
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some(field)), "{wish}");
    }
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    for _ in 0..4 {
        key_of(&daemon, Role::Viewer, None).await;
    }
    let (mut ids, mut after) = (Vec::new(), String::new());
    for page in 0..3 {
        let line = format!("GET /v1/keys?limit=2{after}");
        let listed = call(&daemon, &line, &admin, "").await.json();
        let keys = listed["keys"].as_array().unwrap();
        ids.extend(keys.iter().map(|key| key["id"].as_str().unwrap().to_owned()));
        match listed["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => assert_eq!(page, 2),
        }
    }
    let mut sorted = ids.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((ids.len(), &ids), (5, &sorted));
}

#[tokio::test]
async fn a_manager_has_the_keys_of_its_tenant() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let manager = key_of(&daemon, Role::Manager, None).await;
    let foreign = json!({"role": "viewer", "tenant": "globex"});
    let foreign = call_json(&daemon, "POST /v1/keys", &admin, foreign).await.json();
    let foreign = foreign["id"].as_str().unwrap().to_owned();
    for role in ["producer", "worker", "viewer", "manager"] {
        let made = call_json(&daemon, "POST /v1/keys", &manager, json!({"role": role})).await;
        assert_eq!((made.status, &made.json()["tenant"]), (201, &json!("acme")), "{role}");
    }
    let wish = json!({"role": "viewer", "tenant": "globex"});
    assert_eq!(call_json(&daemon, "POST /v1/keys", &manager, wish).await.status, 404);
    for role in ["admin", "metrics"] {
        let made = call_json(&daemon, "POST /v1/keys", &manager, json!({"role": role})).await;
        assert_eq!(made.status, 403, "{role}");
    }
    let listed = call(&daemon, "GET /v1/keys", &manager, "").await.json();
    let keys = listed["keys"].as_array().unwrap();
    assert!(keys.len() == 5 && keys.iter().all(|key| key["tenant"] == "acme"), "{listed}");
    assert_eq!(call(&daemon, "GET /v1/keys?tenant=globex", &manager, "").await.status, 404);
    for id in [foreign.as_str(), id_of(&admin)] {
        let revoke = format!("DELETE /v1/keys/{id}");
        assert_eq!(call(&daemon, &revoke, &manager, "").await.status, 404);
        let rotate = format!("POST /v1/keys/{id}/rotate");
        assert_eq!(call_json(&daemon, &rotate, &manager, json!({})).await.status, 404);
    }
    assert_eq!(call(&daemon, "GET /v1/status", &admin, "").await.status, 200);
}

#[tokio::test]
async fn a_rotated_key_works_beside_the_new_one_for_the_overlap() {
    let daemon = start().await;
    let admin = key_of(&daemon, Role::Admin, None).await;
    let old = key_of(&daemon, Role::Viewer, None).await;
    let rotate = format!("POST /v1/keys/{}/rotate", id_of(&old));
    let refused = call_json(&daemon, &rotate, &admin, json!({"overlap": "31d"})).await.refusal();
    assert_eq!((refused.0, refused.2.as_deref()), (400, Some("overlap")));
    let new = call_json(&daemon, &rotate, &admin, json!({"overlap": "1h"})).await;
    assert_eq!(new.status, 201, "{new:?}");
    let new = new.json()["key"].as_str().unwrap().to_owned();
    let read = async |key: &str| call(&daemon, "GET /v1/acme/jobs", key, "").await.status;
    assert_eq!((read(&old).await, read(&new).await), (200, 200));
    let again = format!("POST /v1/keys/{}/rotate", id_of(&new));
    let newest = call_json(&daemon, &again, &admin, json!({"overlap": "0s"})).await.json();
    assert_eq!(read(&new).await, 401);
    assert_eq!(read(newest["key"].as_str().unwrap()).await, 200);
    assert_eq!(call_json(&daemon, &again, &admin, json!({})).await.status, 409);
}

#[tokio::test]
async fn the_use_of_a_key_is_noted() {
    let daemon = start().await;
    let key = key_of(&daemon, Role::Viewer, None).await;
    let id = id_of(&key).parse().unwrap();
    assert_eq!(daemon.store.key_find(id).await.unwrap().unwrap().last_used_at, None);
    assert_eq!(call(&daemon, "GET /v1/acme/jobs", &key, "").await.status, 200);
    let noted = async {
        while daemon.store.key_find(id).await.unwrap().unwrap().last_used_at.is_none() {
            pause().await;
        }
    };
    in_time("the use is noted", noted).await;
}

#[tokio::test]
async fn keys_are_checked_while_the_store_is_away() {
    let daemon = start().await;
    let key = key_of(&daemon, Role::Producer, None).await;
    daemon.store.set_available(false);
    let added = call(&daemon, "POST /v1/acme/jobs/t", &key, "x").await;
    assert_eq!(added.status, 201, "{added:?}");
    let unknown = KeyText::random().unwrap().reveal();
    assert_eq!(call(&daemon, "POST /v1/acme/jobs/t", &unknown, "x").await.status, 401);
}

#[tokio::test]
async fn only_the_headers_are_asked_for_with_a_key_too() {
    let daemon = start().await;
    let key = key_of(&daemon, Role::Viewer, None).await;
    for (headers, status) in
        [(String::new(), "401"), (format!("authorization: Bearer {key}"), "200")]
    {
        let headers = [headers.as_str(), "connection: close"];
        let headers = headers.iter().copied().filter(|header| !header.is_empty());
        let mut client = Client::connect(daemon.address).await;
        let head = request("HEAD /v1/acme/jobs", &headers.collect::<Vec<_>>(), "");
        client.send(&head).await;
        let answer = String::from_utf8(client.rest().await).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn a_request_that_waits_ends_with_its_key() {
    let daemon = start().await;
    let worker = key_of(&daemon, Role::Worker, None).await;
    let short = key_of(&daemon, Role::Worker, Some(Duration::from_secs(1))).await;
    let producer = key_of(&daemon, Role::Producer, None).await;
    let id = call(&daemon, "POST /v1/acme/jobs/t", &producer, "x").await.ids().remove(0);
    let claim = json!({"types": ["other"], "wait": "5m"});
    let claims = async |key: &str| {
        call_json(&daemon, "POST /v1/acme/claim", key, claim.clone()).await.refusal()
    };
    let job = format!("GET /v1/acme/jobs/{id}?wait=5m");
    let waits = async { call(&daemon, &job, &worker, "").await.refusal() };
    let revokes = async {
        // Both claims have found nothing.
        while daemon.store.named_looks() < 2 {
            pause().await;
        }
        daemon.engine.key_revoke(None, id_of(&worker).parse().unwrap()).await.unwrap();
    };
    let all = async { tokio::join!(claims(&worker), waits, claims(&short), revokes) };
    let (claimed, waited, expired, ()) = in_time("all are answered", all).await;
    let expected = (401, "unauthorized".into(), Some("Authorization".into()));
    assert_eq!((&claimed, &waited, &expired), (&expected, &expected, &expected));
}

/// A refused body is not read, however long it is, and the client sees the answer.
#[tokio::test]
async fn a_request_without_a_key_is_answered_before_its_body() {
    let daemon = start().await;
    let mut client = Client::connect(daemon.address).await;
    let whole = request("POST /v1/acme/jobs/t", &["content-type: text/plain"], "x".repeat(100_000));
    client.send(&whole[..300]).await;
    let answer = client.receive().await.expect("an answer");
    assert_eq!(answer.status, 401);
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}
