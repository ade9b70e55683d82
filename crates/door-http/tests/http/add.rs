//! Adds, in each of their forms.

use serde_json::json;

use crate::client::{Client, request};
use crate::daemon::Daemon;

const TEXT: &str = "content-type: text/plain";
const JSON: &str = "content-type: application/json";
const BINARY: &str = "content-type: application/octet-stream";

/// Retries a large payload that is still on its way into the store, as the 503 asks.
async fn payload(daemon: &Daemon, id: &str) -> Vec<u8> {
    let path = format!("/v1/acme/jobs/{id}/payload");
    let mut answer = daemon.get(&path).await;
    for _ in 0..60 {
        if answer.status != 503 {
            break;
        }
        answer = daemon.get(&path).await;
    }
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    answer.body
}

async fn payloads(daemon: &Daemon, ids: &[String]) -> Vec<String> {
    let mut texts = Vec::new();
    for id in ids {
        texts.push(String::from_utf8(payload(daemon, id).await).unwrap());
    }
    texts
}

#[tokio::test]
async fn s0_35_the_seeds_add_answers_with_one_id_a_line_in_order() {
    let daemon = Daemon::start().await;
    for content_type in [TEXT, JSON, BINARY, "content-type: application/x-www-form-urlencoded"] {
        let body = "{\"a\":1}\r\n\nb\nlast";
        let answer = daemon.call("POST /acme/job/www-prod%2FFoo/add", &[content_type], body).await;
        assert_eq!(answer.status, 200);
        let ids = answer.ids();
        assert_eq!(payloads(&daemon, &ids).await, ["{\"a\":1}", "b", "last"]);
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    }
    let job = daemon.get("/v1/acme/jobs?limit=1").await.json()["jobs"][0].clone();
    assert_eq!(job["type"], "www-prod/Foo");
}

#[tokio::test]
async fn s0_4_lines_become_jobs_with_exactly_their_bytes() {
    let daemon = Daemon::start().await;
    let body: &[u8] = b"one\n\xff\xfe\r\n  spaced  \n\n\rthird\r\r\n";
    let answer = daemon.call("POST /v1/acme/jobs/t", &[TEXT], body).await;
    assert_eq!(answer.status, 201);
    let expected: [&[u8]; 4] = [b"one", b"\xff\xfe", b"  spaced  ", b"\rthird\r"];
    assert_eq!(answer.ids().len(), expected.len());
    for (id, expected) in answer.ids().iter().zip(expected) {
        assert_eq!(payload(&daemon, id).await, expected);
    }
}

#[tokio::test]
async fn a_body_without_a_content_type_is_lines() {
    let daemon = Daemon::start().await;
    let answer = daemon.call("POST /v1/acme/jobs/t", &[], "a\nb").await;
    assert_eq!((answer.status, answer.ids().len()), (201, 2));
}

#[tokio::test]
async fn a_binary_body_is_one_payload_whatever_its_size() {
    let daemon = Daemon::start().await;
    let mebibyte = 1024 * 1024;
    for size in [0, 1, 65_537, mebibyte, mebibyte + 1, 3 * mebibyte + 17] {
        let body: Vec<u8> = (0..size).map(|index: usize| (index * 7 % 251) as u8).collect();
        let answer = daemon.call("POST /v1/acme/jobs/t", &[BINARY], &body).await;
        assert_eq!((answer.status, answer.ids().len()), (201, 1), "{size}");
        assert!(payload(&daemon, &answer.ids()[0]).await == body, "{size} bytes differ");
    }
}

#[tokio::test]
async fn a_body_in_chunks_of_unknown_length_is_taken_too() {
    let daemon = Daemon::start().await;
    let chunk = vec![b'x'; 300_000];
    for (content_type, chunks) in [(TEXT, 2), (BINARY, 2), (BINARY, 5)] {
        let mut client = Client::connect(daemon.address).await;
        let head = format!(
            "POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\n{content_type}\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        client.send(head.as_bytes()).await;
        for _ in 0..chunks {
            client.send(format!("{:x}\r\n", chunk.len()).as_bytes()).await;
            client.send(&chunk).await;
            client.send(b"\r\n").await;
        }
        client.send(b"0\r\n\r\n").await;
        let answer = client.receive().await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        let stored = payload(&daemon, &answer.ids()[0]).await;
        assert!(stored == chunk.repeat(chunks), "{} bytes", stored.len());
    }
}

#[tokio::test]
async fn a_line_too_large_for_one_buffer_is_kept_in_pieces_between_its_neighbours() {
    let daemon = Daemon::start().await;
    let large = "y".repeat(1024 * 1024 + 1);
    let ids = daemon.add("/v1/acme/jobs/t", &format!("a\n{large}\nb")).await;
    assert_eq!(payloads(&daemon, &ids).await, ["a", &large, "b"]);
    let body = json!({"jobs": [{"payload": large}]});
    let ids = daemon.json("POST /v1/acme/jobs/t", body).await.ids();
    assert_eq!(payloads(&daemon, &ids).await, [large]);
}

#[tokio::test]
async fn json_jobs_keep_strings_as_text_and_other_values_as_sent() {
    let daemon = Daemon::start().await;
    let body = r#"{"jobs":[{"payload":"a\nb"},{"payload":{"k":  [1.50]}},{"payload":null}]}"#;
    let answer = daemon.call("POST /v1/acme/jobs/t", &[JSON], body).await;
    assert_eq!(answer.status, 201);
    assert_eq!(payloads(&daemon, &answer.ids()).await, ["a\nb", "{\"k\":  [1.50]}", "null"]);
}

#[tokio::test]
async fn s2_35_options_are_honoured_in_the_query_and_in_json() {
    let daemon = Daemon::start().await;
    let query = "run_at=2099-01-02T03:04:05.678%2B01:00&priority=900&timeout=5s&expires=1h";
    let ids = daemon.add(&format!("/v1/acme/jobs/t?{query}"), "a").await;
    let fields = json!({"payload": "a", "run_at": "2099-01-02T03:04:05.678+01:00",
        "priority": 900, "timeout": "5s", "expires": "1h"});
    let more = daemon.json("POST /v1/acme/jobs/t", json!({"jobs": [fields]})).await.ids();
    for id in ids.iter().chain(&more) {
        let job = daemon.get(&format!("/v1/acme/jobs/{id}")).await.json();
        assert_eq!(job["run_at"], "2099-01-02T02:04:05.678Z");
        assert_eq!((&job["priority"], &job["state"]), (&json!(900), &json!("queued")));
        assert!(job["expires_at"].is_string());
    }
}

#[tokio::test]
async fn s0_5_a_delayed_job_is_due_only_later() {
    let daemon = Daemon::start().await;
    daemon.add("/acme/job/t/add?delay=1h", "a").await;
    let types = daemon.get("/v1/acme/types").await.json();
    assert_eq!((&types[0]["ready"], &types[0]["deferred"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_unique_key_leads_to_the_job_that_holds_it() {
    let daemon = Daemon::start().await;
    let first = daemon.add("/v1/acme/jobs/t?unique=k", "a\nb").await;
    assert_eq!(first[0], first[1]);
    assert_eq!(daemon.add("/v1/acme/jobs/t?unique=k", "c").await[0], first[0]);
    assert_ne!(daemon.add("/v1/acme/jobs/t?unique=l", "c").await[0], first[0]);
    assert_ne!(daemon.add("/v1/acme/jobs/u?unique=k", "c").await[0], first[0]);
    daemon.post(&format!("/v1/acme/jobs/{}/cancel", first[0])).await;
    assert_ne!(daemon.add("/v1/acme/jobs/t?unique=k", "c").await[0], first[0]);
}

#[tokio::test]
async fn an_idempotency_key_makes_an_add_repeatable() {
    let daemon = Daemon::start().await;
    let key = "idempotency-key: Zürich 1";
    let line = "POST /v1/acme/jobs/t?priority=1&delay=1h";
    let first = daemon.call(line, &[key], "a\nb").await;
    assert_eq!(first.status, 201);
    let swapped = "POST /v1/acme/jobs/t?delay=1h&priority=1";
    for line in [line, swapped] {
        let again = daemon.call(line, &[key], "a\nb").await;
        assert_eq!((again.status, again.ids()), (200, first.ids()));
    }
    let seed = daemon.call("POST /acme/job/t/add?priority=1&delay=1h", &[key], "a\nb").await;
    assert_eq!((seed.status, seed.ids()), (200, first.ids()));

    let conflicts = [
        daemon.call(line, &[key], "a\nc").await,
        daemon.call("POST /v1/acme/jobs/u?priority=1&delay=1h", &[key], "a\nb").await,
        daemon.call("POST /v1/acme/jobs/t", &[key], "a\nb").await,
        daemon.call(line, &[key, BINARY], "a\nb").await,
        daemon.json("POST /v1/acme/jobs/t", json!({"jobs": [{"payload": "a"}]})).await,
    ];
    for conflict in &conflicts[..4] {
        assert_eq!(conflict.refusal(), (409, "conflict".into(), None));
    }
    assert_eq!(conflicts[4].status, 201, "without the key it is an add like any other");
    let other = daemon.call("POST /v1/other/jobs/t?priority=1&delay=1h", &[key], "a\nb").await;
    assert_eq!(other.status, 201, "another tenant's key is another key");
    let jobs = daemon.get("/v1/acme/jobs").await.json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn an_idempotency_key_covers_large_and_json_bodies() {
    let daemon = Daemon::start().await;
    let large = vec![b'x'; 2 * 1024 * 1024];
    let key = ["idempotency-key: large", BINARY];
    let first = daemon.call("POST /v1/acme/jobs/t", &key, &large).await;
    let again = daemon.call("POST /v1/acme/jobs/t", &key, &large).await;
    assert_eq!((first.status, again.status, again.ids()), (201, 200, first.ids()));
    let other = daemon.call("POST /v1/acme/jobs/t", &key, &large[1..]).await;
    assert_eq!(other.status, 409);

    let key = ["idempotency-key: json", JSON];
    let call = async |body: &'static str| daemon.call("POST /v1/acme/jobs/t", &key, body).await;
    let first = call(r#"{"jobs":[{"payload":1,"delay":"1h"}]}"#).await;
    let again = call(r#"{"jobs":[{"payload":1,"delay":"1h"}]}"#).await;
    assert_eq!((first.status, again.status, again.ids()), (201, 200, first.ids()));
    assert_eq!(call(r#"{"jobs":[{"payload":1,"delay":"2h"}]}"#).await.status, 409);
}

#[tokio::test]
async fn tenants_may_be_called_like_parts_of_other_routes() {
    let daemon = Daemon::start().await;
    for tenant in ["control", "status", "events", "job", "jobs"] {
        assert_eq!(daemon.add(&format!("/v1/{tenant}/jobs/t"), "a").await.len(), 1);
        assert_eq!(daemon.add(&format!("/{tenant}/job/t/add"), "a").await.len(), 1);
        let jobs = daemon.get(&format!("/v1/{tenant}/jobs")).await.json();
        assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2, "{tenant}");
    }
    let answer = daemon.call("POST /v1/acme/jobs/%72equeue", &[TEXT], "a").await;
    assert_eq!(answer.status, 201, "a type called requeue is reached by encoding its name");
    assert_eq!(daemon.get("/v1/acme/jobs?type=requeue").await.json()["jobs"][0]["type"], "requeue");
}

#[tokio::test]
async fn s0_21_adds_are_accepted_while_the_store_is_away() {
    let daemon = Daemon::start().await;
    daemon.store.set_available(false);
    let ids = daemon.add("/v1/acme/jobs/t", "a").await;
    let unique = daemon.call("POST /v1/acme/jobs/t?unique=k", &[TEXT], "a").await;
    assert_eq!(unique.refusal(), (503, "unavailable".into(), None));
    assert_eq!(unique.header("retry-after"), Some("1"));
    daemon.store.set_available(true);
    let job = daemon.get(&format!("/v1/acme/jobs/{}", ids[0])).await;
    assert_eq!(job.json()["state"], "queued");
}

#[tokio::test]
async fn several_adds_share_a_connection() {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(daemon.address).await;
    for _ in 0..3 {
        let answer = client.call(&request("POST /v1/acme/jobs/t", &[TEXT], "a\nb")).await;
        assert_eq!((answer.status, answer.ids().len()), (201, 2));
    }
}
