//! Adding jobs: what is accepted, what is answered, what is refused.

use std::collections::HashSet;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant, file_bytes_below, ids_of, text, until};

#[test]
fn s0_4_three_lines_without_a_last_newline_are_three_jobs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let path = "/v1/a/jobs/t";
    let ids = ids_of(&daemon.send_text(path, "one\ntwo  two\nthr|ee").expect(201));
    assert_eq!(ids.len(), 3);
    tenant.until_all(&ids, "finished");
    let mut seen = daemon.home().lines("seen");
    seen.sort();
    let wanted = ["one", "two  two", "thr|ee"];
    let mut wanted: Vec<String> =
        ids.iter().zip(wanted).map(|(id, payload)| format!("{id} {payload}")).collect();
    wanted.sort();
    assert_eq!(seen, wanted);
}

#[test]
fn s0_4_lines_end_in_newline_or_carriage_return_and_empty_ones_are_skipped() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let ids = ids_of(&daemon.send_text("/v1/a/jobs/t", "one\r\n\n\r\ntwo\n").expect(201));
    assert_eq!(ids.len(), 2);
    let payload = |id: &str| tenant.get(&format!("jobs/{id}/payload")).expect(200).text();
    assert_eq!([payload(&ids[0]), payload(&ids[1])], ["one", "two"]);
}

#[test]
fn s0_35_the_seeds_route_answers_one_id_a_line_in_order() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let answer = daemon.call(
        "POST",
        "/a/job/t/add",
        &[("Content-Type", "application/x-www-form-urlencoded")],
        b"first\nsecond\nthird\n",
    );
    let ids = ids_of(&answer.expect(200));
    assert_eq!(ids.len(), 3);
    let numbers: Vec<u64> = ids.iter().map(|id| id.parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "ids grow in the order of the lines: {ids:?}");
    tenant.until_all(&ids, "finished");
    for (id, payload) in ids.iter().zip(["first", "second", "third"]) {
        assert!(daemon.home().lines("seen").contains(&format!("{id} {payload}")));
        assert_eq!(daemon.log.story(id), ["job_entered", "job_started", "job_ended"]);
    }
}

#[test]
fn s0_35_the_seeds_route_takes_options() {
    let daemon = Daemon::start(Config::new());
    let answer = daemon.call("POST", "/a/job/t/add?delay=1h&priority=7", &[], b"x");
    let ids = ids_of(&answer.expect(200));
    let job = daemon.tenant("a").job(&ids[0]);
    assert_eq!(job["priority"], 7);
    assert!(text(&job["run_at"]) > text(&job["created_at"]), "{job}");
}

/// A name of 256 bytes is one too long for a type, one of 65 for a tenant.
#[test]
fn s0_39_bad_names_are_refused_and_leave_nothing_behind() {
    let daemon = Daemon::start(Config::new());
    let journal_before = file_bytes_below(&daemon.home().journal());
    let long_type = "t".repeat(256);
    let types = ["a%7Cb", "a%0Ab", "a%00b", "a%1Fb", "a%7Fb", "%FF%FE", long_type.as_str()];
    for kind in types {
        for path in [format!("/a/job/{kind}/add"), format!("/v1/a/jobs/{kind}")] {
            let answer = daemon.send_text(&path, "hidden-marker");
            assert_eq!(answer.status, 400, "{path}: {}", answer.text());
            assert_eq!(answer.error_code(), "invalid_type", "{path}");
        }
    }
    let long_tenant = "a".repeat(65);
    for tenant in ["-a", ".a", "a%20b", "a%2Fb", "%C3%A4", "a,b", long_tenant.as_str()] {
        for path in [format!("/{tenant}/job/t/add"), format!("/v1/{tenant}/jobs/t")] {
            let answer = daemon.send_text(&path, "hidden-marker");
            assert_eq!(answer.status, 400, "{path}: {}", answer.text());
            assert_eq!(answer.error_code(), "invalid_tenant", "{path}");
        }
    }
    for path in ["//job/t/add", "/v1//jobs/t", "/a/job//add", "/v1/a/jobs/"] {
        let answer = daemon.send_text(path, "hidden-marker");
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
    }
    assert_eq!(file_bytes_below(&daemon.home().journal()), journal_before);
    let marked = until(
        "a valid add still works",
        || daemon.tenant("a").add_one("t", "x"),
        |id| !id.is_empty(),
    );
    assert_eq!(daemon.tenant("a").list("").len(), 1, "only {marked} exists");
}

#[test]
fn s0_39_reserved_words_are_no_tenants_on_any_route() {
    let daemon = Daemon::start(Config::new());
    for tenant in ["v1", "healthz", "readyz", "metrics", "openapi.json", "ui"] {
        let answer = daemon.send_text(&format!("/v1/{tenant}/jobs/t"), "x");
        assert_eq!(answer.expect(400).error_code(), "invalid_tenant", "{tenant}");
        let answer = daemon.send_text(&format!("/{tenant}/job/t/add"), "x");
        assert!((400..500).contains(&answer.status), "{tenant}: {}", answer.status);
    }
}

#[test]
fn s0_39_types_may_be_any_other_utf8_text() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let longest = "t".repeat(255);
    for (path, name) in [
        ("www-prod%2FFoo", "www-prod/Foo"),
        ("a%2Cb%20c", "a,b c"),
        ("%C3%A4%E2%9C%93", "ä✓"),
        ("%25", "%"),
        ("123", "123"),
        ("123%2Fcancel", "123/cancel"),
        ("%2E%2E", ".."),
        ("a+b", "a+b"),
        (longest.as_str(), longest.as_str()),
    ] {
        let id = tenant.add_one(path, "x");
        assert_eq!(tenant.job(&id)["type"], name);
    }
}

#[test]
fn s0_39_an_invalid_part_stores_nothing_of_the_request() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    for body in [
        json!({"jobs": [{"payload": "good"}, {"payload": "bad", "priority": 1001}]}),
        json!({"jobs": [{"payload": "good"}, {"payload": "bad", "delay": "soon"}]}),
        json!({"jobs": [{"payload": "good"}, {"payload": "bad", "unheard_of": 1}]}),
        json!({"jobs": [{"payload": "x", "delay": "5s", "run_at": "2030-01-01T00:00:00Z"}]}),
        json!({"jobs": []}),
        json!({"jobs": "x"}),
        json!({"unheard_of": []}),
        json!([]),
    ] {
        let answer = tenant.post_json("jobs/t", &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert_eq!(answer.error_code(), "invalid_value", "{body}");
    }
    for query in [
        "priority=1001",
        "priority=-1",
        "priority=high",
        "delay=5",
        "delay=-5s",
        "run_at=tomorrow",
        "delay=5s&run_at=2030-01-01T00:00:00Z",
        "timeout=0s",
        "unheard_of=1",
    ] {
        let answer = daemon.send_text(&format!("/v1/a/jobs/t?{query}"), "x");
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        assert_eq!(answer.error_code(), "invalid_value", "{query}");
    }
    assert!(tenant.list("").is_empty());
}

#[test]
fn s0_39_an_error_names_the_field_at_fault() {
    let daemon = Daemon::start(Config::new());
    let answer = daemon.send_text("/v1/a/jobs/t?priority=1001", "x").expect(400).json();
    assert_eq!(answer["error"]["field"], "priority", "{answer}");
    let message = text(&answer["error"]["message"]);
    assert!(message.contains("1000"), "the message says what is accepted: {message}");
}

#[test]
fn s0_39_a_content_type_that_the_route_does_not_take_is_415() {
    let daemon = Daemon::start(Config::new());
    for kind in ["image/png", "application/xml"] {
        daemon.call("POST", "/v1/a/jobs/t", &[("Content-Type", kind)], b"x").expect(415);
    }
    let put = daemon.call("PUT", "/v1/a/handlers/t", &[("Content-Type", "text/plain")], b"true");
    put.expect(415);
}

#[test]
fn s0_39_an_empty_add_is_a_clear_answer_without_jobs() {
    let daemon = Daemon::start(Config::new());
    let answer = daemon.send_text("/v1/a/jobs/t", "\n\n");
    assert!(answer.status == 400 || ids_of(&answer).is_empty(), "{}", answer.text());
    assert!(daemon.tenant("a").list("").is_empty());
}

#[test]
fn json_adds_keep_strings_as_they_are_and_other_values_as_json() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let body = json!({"jobs": [
        {"payload": "two\nlines"},
        {"payload": {"n": 1, "list": [true, null]}},
        {"payload": 12, "priority": 900, "delay": "1h"},
    ]});
    let ids = ids_of(&tenant.post_json("jobs/t", &body).expect(201));
    assert_eq!(ids.len(), 3);
    let payload = |id: &str| tenant.get(&format!("jobs/{id}/payload")).expect(200);
    assert_eq!(payload(&ids[0]).text(), "two\nlines");
    let object: Value = serde_json::from_slice(&payload(&ids[1]).body).unwrap();
    assert_eq!(object, json!({"n": 1, "list": [true, null]}));
    assert_eq!(payload(&ids[2]).text(), "12");
    assert_eq!(tenant.job(&ids[2])["priority"], 900);
}

#[test]
fn a_job_is_visible_from_the_moment_its_add_is_answered() {
    const ADDS: usize = 200;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    for n in 0..ADDS {
        let id = tenant.add_one("t", &format!("payload {n}"));
        let job = tenant.job(&id);
        assert_eq!(job["state"], "queued");
        assert_eq!(job["payload_bytes"], format!("payload {n}").len());
        assert_eq!(tenant.list("type=t").len(), n + 1, "the list has it too");
    }
}

#[test]
fn idempotency_key_answers_a_repeated_add_with_the_first_ids() {
    let mut daemon = Daemon::start(Config::new());
    let add = |daemon: &Daemon, tenant: &str, kind: &str, key: &str, body: &str| {
        let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", key)];
        daemon.call("POST", &format!("/v1/{tenant}/jobs/{kind}"), &headers, body.as_bytes())
    };
    let first = ids_of(&add(&daemon, "a", "t", "key 1", "x\ny").expect(201));
    assert_eq!(first.len(), 2);
    assert_eq!(ids_of(&add(&daemon, "a", "t", "key 1", "x\ny").expect(200)), first);
    for (kind, body) in [("t", "x\nz"), ("u", "x\ny")] {
        assert_eq!(add(&daemon, "a", kind, "key 1", body).expect(409).error_code(), "conflict");
    }
    assert_ne!(ids_of(&add(&daemon, "b", "t", "key 1", "x\ny").expect(201)), first);
    assert_ne!(ids_of(&add(&daemon, "a", "t", "key 2", "x\ny").expect(201)), first);
    let too_long = "k".repeat(256);
    assert_eq!(add(&daemon, "a", "t", &too_long, "x").expect(400).error_code(), "invalid_value");
    assert_eq!(daemon.tenant("a").list("").len(), 4);

    daemon.kill9();
    daemon.restart();
    assert_eq!(ids_of(&add(&daemon, "a", "t", "key 1", "x\ny").expect(200)), first);
    assert_eq!(daemon.tenant("a").list("").len(), 4);
}

#[test]
fn idempotency_key_adds_once_when_many_send_it_at_the_same_time() {
    const CLIENTS: usize = 16;
    let daemon = Daemon::start(Config::new());
    let client = *daemon;
    let add = move || {
        let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", "one")];
        let answer = client.call("POST", "/v1/a/jobs/t", &headers, b"x");
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
        ids_of(&answer).remove(0)
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(add)).collect();
    let ids: HashSet<String> = clients.into_iter().map(|c| c.join().unwrap()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(daemon.tenant("a").list("").len(), 1);
}

#[test]
fn s2_8_one_call_is_enough_also_when_the_sender_does_not_wait_for_the_answer() {
    const ADDS: usize = 20;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let mut open = Vec::new();
    for n in 0..ADDS {
        let mut connection = daemon.connection();
        let payload = format!("half-closed-{n}");
        let headers = [("Content-Type", "text/plain")];
        connection.send("POST", "/v1/a/jobs/t", &headers, payload.as_bytes()).unwrap();
        connection.half_close().unwrap();
        open.push(connection);
    }
    until_payloads(&tenant, &daemon, ADDS);
    drop(open);

    // Disconnected at once: such an add may be accepted or not, but never twice or in part.
    for n in 0..ADDS {
        let mut connection = daemon.connection();
        let payload = format!("gone-{n}");
        connection
            .send("POST", "/v1/a/jobs/t", &[("Content-Type", "text/plain")], payload.as_bytes())
            .unwrap();
    }
    let last = tenant.add_one("t", "last");
    tenant.until_state(&last, "finished");
    let gone = tenant.list("type=t").len() - ADDS - 1;
    assert!(gone <= ADDS);
    let ids: Vec<String> = tenant.list("type=t").iter().map(|job| text(&job["id"])).collect();
    tenant.until_all(&ids, "finished");
    let seen = daemon.home().lines("seen");
    let payloads: HashSet<&str> = seen.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(payloads.len(), seen.len(), "no payload ran twice: {seen:?}");
    let whole = |payload: &&str| {
        let number = payload.strip_prefix("gone-").or(payload.strip_prefix("half-closed-"));
        *payload == "last" || number.is_some_and(|n| n.parse::<usize>().is_ok_and(|n| n < ADDS))
    };
    assert!(payloads.iter().all(whole), "{payloads:?}");
}

fn until_payloads(tenant: &Tenant, daemon: &Daemon, count: usize) {
    tenant.until_count("t", "finished", count);
    assert_eq!(daemon.home().lines("seen").len(), count);
}

#[test]
fn s2_16_without_any_configuration_two_calls_run_the_first_job() {
    let config = Config::new();
    let dir = config.home.path("empty");
    std::fs::create_dir(&dir).unwrap();
    let mut command = crate::harness::windlass();
    command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(&dir);
    let daemon = Daemon::start_command(config, &mut command);
    let key = std::fs::read_to_string(dir.join("windlass-data/admin.key")).unwrap();
    let client = daemon.with_key(key.trim());
    let path = "/me/handler/add/hello/add?method=sh";
    client.send_text(path, "echo \"$WINDLASS_JOB_ID $(cat)\"").expect(200);
    let ids = ids_of(&client.send_text("/me/job/hello/add", "world").expect(200));
    client.tenant("me").until_state(&ids[0], "finished");
    let log = client.tenant("me").log(&ids[0]);
    assert!(log.contains(&format!("{} world\n", ids[0])), "{log}");
    assert!(dir.join("windlass-data").join("store.db").exists());
}

#[test]
fn s2_22_an_add_returns_while_its_job_still_runs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "running");
    let second = tenant.add_one("t", "y");
    assert_eq!(tenant.job(&id)["state"], "running");
    daemon.home().let_go("hold");
    tenant.until_all(&[id, second], "finished");
}

#[test]
fn pipelined_adds_are_answered_in_order() {
    const ADDS: usize = 50;
    let daemon = Daemon::start(Config::new());
    let mut connection = daemon.connection();
    for n in 0..ADDS {
        let headers = [("Content-Type", "text/plain")];
        connection
            .send("POST", "/v1/a/jobs/t", &headers, format!("payload-{n}").as_bytes())
            .unwrap();
    }
    for n in 0..ADDS {
        let id = ids_of(&connection.receive().unwrap().expect(201)).remove(0);
        let path = format!("/v1/a/jobs/{id}/payload");
        assert_eq!(daemon.get(&path).expect(200).text(), format!("payload-{n}"));
    }
}

#[test]
fn malformed_requests_cost_only_their_own_connection() {
    let daemon = Daemon::start(Config::new());
    let key = daemon.authorization();
    let head = format!("POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\n{key}");
    for raw in [
        "GET\r\n\r\n".to_owned(),
        format!("{head}Content-Length: many\r\n\r\nx"),
        "\0\0\0\0\r\n\r\n".to_owned(),
        format!("{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxxx"),
    ] {
        let mut connection = daemon.connection();
        connection.send_raw(raw.as_bytes()).unwrap();
        connection.half_close().unwrap();
        if let Ok(answer) = connection.receive() {
            assert_eq!(answer.status / 100, 4, "{raw:?}: {}", answer.status);
        }
    }
    let mut cut = daemon.connection();
    cut.send_raw(format!("{head}Content-Length: 100\r\n\r\ncut").as_bytes()).unwrap();
    drop(cut);
    assert!(!daemon.tenant("a").add_one("t", "x").is_empty());
    assert_eq!(daemon.tenant("a").list("").len(), 1);
}

#[test]
fn s0_4_lines_may_hold_any_bytes_and_any_length() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let long = vec![b'z'; 3_000_000];
    let body = [b"\xff\xfe\x00 odd".as_slice(), &long, b"short"].join(&b'\n');
    let answer = daemon.call("POST", "/v1/a/jobs/t", &[("Content-Type", "text/plain")], &body);
    let ids = ids_of(&answer.expect(201));
    assert_eq!(ids.len(), 3);
    let payload = |id: &str| tenant.get(&format!("jobs/{id}/payload")).expect(200).body;
    assert_eq!(payload(&ids[0]), b"\xff\xfe\x00 odd");
    assert!(payload(&ids[1]) == long);
    assert_eq!(payload(&ids[2]), b"short");
    let body = json!({"jobs": [{"payload": "y".repeat(2_000_000)}, {"payload": "x"}]});
    let ids = ids_of(&tenant.post_json("jobs/t", &body).expect(201));
    assert_eq!(payload(&ids[0]).len(), 2_000_000);
    assert_eq!(payload(&ids[1]), b"x");
}

#[test]
fn s0_35_a_request_of_many_lines_is_one_add() {
    const LINES: usize = 50_000;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let lines: Vec<String> = (0..LINES).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &lines);
    let distinct: HashSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), LINES);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == LINES);
}

#[test]
fn bodies_may_come_in_chunks_and_after_a_permission() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let mut connection = daemon.connection();
    let key = daemon.authorization();
    let head = "POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    let head = format!("{head}{key}");
    let chunks =
        "Transfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n2;x=y\r\ntw\r\n1\r\no\r\n0\r\n\r\n";
    connection.send_raw(format!("{head}{chunks}").as_bytes()).unwrap();
    let ids = ids_of(&connection.receive().unwrap().expect(201));
    let payload = |id: &str| tenant.get(&format!("jobs/{id}/payload")).expect(200).text();
    assert_eq!(ids.iter().map(|id| payload(id)).collect::<Vec<_>>(), ["one", "two"]);
    let wait = "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    connection.send_raw(format!("{head}{wait}").as_bytes()).unwrap();
    assert_eq!(connection.receive().unwrap().status, 100);
    connection.send_raw(b"three").unwrap();
    let ids = ids_of(&connection.receive().unwrap().expect(201));
    assert_eq!(payload(&ids[0]), "three");
}
