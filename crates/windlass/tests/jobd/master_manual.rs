//! Manual jobs and signals through the master: section 3 of the contract, fixes 13 and 14.

use serde_json::{Value, json};

use crate::harness::{Client, Daemon, Home, until};

fn start(home: &Home) -> (Daemon, Client) {
    let master = home.master(&home.master_conf());
    let client = master.client();
    (master, client)
}

fn real(home: &Home, master: &Daemon, name: &str, targets: &[(&str, &str)]) -> Daemon {
    let conf = home
        .conf()
        .set("name", name)
        .set("master_host", "127.0.0.1")
        .set("master_port", master.port())
        .targets(targets);
    let worker = home.worker(&conf);
    let mut client = master.client();
    until("it is registered", || {
        client.ask("status", Value::Null)["workers"].to_string().contains(&format!("\"{name}\""))
    });
    worker
}

fn register(master: &Daemon, data: Value) -> Client {
    let mut worker = master.client();
    worker.ok("register-worker", data);
    worker
}

#[test]
fn run_manual_checks_its_jobs() {
    let home = Home::new();
    let (_master, mut client) = start(&home);
    for (data, text) in [
        (json!({}), "jobs must be array"),
        (json!({"jobs": {}}), "jobs must be array"),
        (json!({"jobs": "x"}), "jobs must be array"),
        (json!({"jobs": [5]}), "data is not an object"),
        (json!({"jobs": [null]}), "data is not an object"),
        (json!({"jobs": [{}]}), "missing required field id"),
        (json!({"jobs": [{"id": 1}]}), "missing required field target"),
        (json!({"jobs": [{"id": "1", "target": "a"}]}), "'id' must be integer"),
        (json!({"jobs": [{"id": 1.5, "target": "a"}]}), "'id' must be integer"),
        (json!({"jobs": [{"id": 1, "target": 2}]}), "'target' must be string"),
    ] {
        assert_eq!(client.refused("run-manual", data.clone()), text, "{data}");
    }
    assert_eq!(client.ask("run-manual", json!({"jobs": []})), json!({}));
}

#[test]
fn a_target_that_nobody_serves_is_an_error_of_its_job() {
    let home = Home::new();
    let (_master, mut client) = start(&home);
    let request = concat!(
        r#"[0,{"type":"run-manual","no":899824,"#,
        r#""data":{"jobs":[{"id":4000000,"target":"low"}]}}]"#
    );
    let wanted = concat!(
        r#"[1,{"no":899824,"data":{"errors":{"4000000":"#,
        r#""worker serving target 'low' not found"}}}]"#
    );
    assert_eq!(client.exchange(request), wanted);
}

#[test]
fn jobs_run_on_the_workers_of_their_targets_and_are_answered_together() {
    let home = Home::new();
    let (master, mut client) = start(&home);
    let _one = real(&home, &master, "one", &[("a", "2")]);
    let _two = real(&home, &master, "two", &[("b", "2")]);
    let (a, b) = (home.manual("a", "echo a"), home.manual("b", "exit 4"));
    let told = client.ask(
        "run-manual",
        json!({"jobs": [
            {"id": a, "target": "a"}, {"id": a, "target": "a"}, {"id": b, "target": "b"},
            {"id": 99, "target": "a"}, {"id": 98, "target": "none"}
        ]}),
    );
    let wanted = json!({
        "jobs": {
            a.to_string(): {
                "result": "ok", "code": 0, "signal": null, "stdout": "a\n", "stderr": ""
            },
            b.to_string(): {
                "result": "fail", "code": 4, "signal": null, "stdout": "", "stderr": ""
            }
        },
        "errors": {"99": "job 99 not found", "98": "worker serving target 'none' not found"}
    });
    assert_eq!(told, wanted);
}

#[test]
fn a_failing_worker_spoils_only_its_own_jobs() {
    let home = Home::new();
    let (master, mut client) = start(&home);
    let _real = real(&home, &master, "real", &[("a", "2")]);
    let mut refusing = register(&master, json!({"name": "refusing", "targets": ["b"]}));
    let mut leaving = register(&master, json!({"name": "leaving", "targets": ["c"]}));
    let _strange = register(&master, json!({"name": "no targets"}));
    let a = home.manual("a", "echo a");
    let jobs = json!({"jobs": [
        {"id": a, "target": "a"}, {"id": 501, "target": "b"}, {"id": 502, "target": "c"}
    ]});
    let no = client.begin("run-manual", jobs);
    let asked = refusing.receive_json();
    assert_eq!(asked[1]["data"], json!({"ids": [501]}));
    refusing.send_json(&json!([1, {"no": asked[1]["no"], "error": "no way"}]));
    let asked = leaving.receive_json();
    assert_eq!(asked[1]["data"], json!({"ids": [502]}));
    drop(leaving);
    let told = client.answer(no)["data"].clone();
    assert_eq!(told["jobs"][a.to_string()]["stdout"], "a\n");
    assert_eq!(told["errors"]["501"], "no way");
    assert_eq!(told["errors"]["502"], "Socket is closed");
}

#[test]
fn a_worker_killed_with_a_manual_job_costs_only_its_own() {
    let home = Home::new();
    let (master, mut client) = start(&home);
    let mut one = real(&home, &master, "one", &[("a", "2")]);
    let _two = real(&home, &master, "two", &[("b", "2")]);
    let (a, b) = (home.manual("a", &home.gated("a")), home.manual("b", &home.gated("b")));
    let jobs = json!({"jobs": [{"id": a, "target": "a"}, {"id": b, "target": "b"}]});
    let no = client.begin("run-manual", jobs);
    home.began("a");
    home.began("b");
    one.kill();
    home.open("b");
    let told = client.answer(no)["data"].clone();
    assert_eq!(told["jobs"][b.to_string()]["result"], "ok");
    assert_eq!(told["errors"][a.to_string()], "Socket is closed");
    home.open("a");
}

#[test]
fn signals_are_checked() {
    let home = Home::new();
    let (_master, mut client) = start(&home);
    for (data, text) in [
        (json!({}), "jobs must be array"),
        (json!({"jobs": [7]}), "data is not an object"),
        (json!({"jobs": [{"signal": 9, "target": "a"}]}), "missing required field id"),
        (json!({"jobs": [{"id": 1, "target": "a"}]}), "missing required field signal"),
        (json!({"jobs": [{"id": 1, "signal": 9}]}), "missing required field target"),
        (json!({"jobs": [{"id": "1", "signal": 9, "target": "a"}]}), "'id' must be integer"),
        (json!({"jobs": [{"id": 1, "signal": "9", "target": "a"}]}), "'signal' must be integer"),
        (json!({"jobs": [{"id": 1, "signal": 9, "target": 4}]}), "'target' must be string"),
    ] {
        assert_eq!(client.refused("send-signal", data.clone()), text, "{data}");
    }
}

#[test]
fn a_signal_reaches_its_job_whichever_worker_has_it() {
    let home = Home::new();
    let (master, mut client) = start(&home);
    let _one = real(&home, &master, "one", &[("a", "1")]);
    let two = real(&home, &master, "two", &[("a", "1")]);
    let _three = real(&home, &master, "three", &[("a", "1")]);
    let request = concat!(
        r#"[0,{"type":"send-signal","no":899825,"#,
        r#""data":{"jobs":[{"id":5,"signal":9,"target":"a"}]}}]"#
    );
    assert_eq!(client.exchange(request), r#"[1,{"no":899825,"data":{"5":false}}]"#);
    let id = home.waiting("a", &home.gated("g"));
    two.client().ok("poll", Value::Null);
    home.began("g");
    let jobs = json!([
        {"id": id, "signal": 15, "target": "a"}, {"id": 77, "signal": 15, "target": "none"}
    ]);
    let told = client.ask("send-signal", json!({"jobs": jobs}));
    let error = "worker serving target 'none' not found";
    assert_eq!(told, json!({id.to_string(): true, "errors": {"77": error}}));
    assert_eq!(home.done(id).sig.as_deref(), Some("SIGTERM"));
}
