//! The requests of a worker with their exact texts: section 2 of the contract.

use serde_json::{Value, json};

use crate::harness::{Client, Daemon, Home};

fn worker(home: &Home) -> (Daemon, Client) {
    let worker = home.worker(&home.conf());
    let client = worker.client();
    (worker, client)
}

fn check(client: &mut Client, kind: &str, table: &[(Value, &str)]) {
    for (data, text) in table {
        assert_eq!(client.refused(kind, data.clone()), *text, "{kind} {data}");
    }
}

#[test]
fn targets_are_checked_by_poll_pause_and_continue() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    for kind in ["poll", "pause", "continue"] {
        let table = [
            (json!({"targets": null}), "targets must be array"),
            (json!({"targets": "low"}), "targets must be array"),
            (json!({"targets": {}}), "targets must be array"),
            (json!({"targets": 5}), "targets must be array"),
            (json!({"targets": []}), "targets are empty"),
            (json!({"targets": [1]}), "all targets must be strings, number given"),
            (json!({"targets": ["low", true]}), "all targets must be strings, boolean given"),
            (json!({"targets": [{}]}), "all targets must be strings, object given"),
            (json!({"targets": [null]}), "all targets must be strings, object given"),
            (json!({"targets": [["low"]]}), "all targets must be strings, object given"),
            (json!({"targets": ["low", "nobody"]}), "invalid target 'nobody'"),
            (json!({"targets": ["LOW"]}), "invalid target 'LOW'"),
            (json!({"targets": [""]}), "invalid target ''"),
            (json!({"targets": ["toString"]}), "invalid target 'toString'"),
            (json!({"targets": ["constructor"]}), "invalid target 'constructor'"),
            (json!({"targets": ["__proto__"]}), "invalid target '__proto__'"),
        ];
        check(&mut client, kind, &table);
        client.ok(kind, Value::Null);
        client.ok(kind, json!({"targets": ["low"]}));
        client.ok(kind, json!({"targets": ["low", "1/high", "low"]}));
    }
}

#[test]
fn a_refused_pause_pauses_nothing() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    client.refused("pause", json!({"targets": ["low", "nobody"]}));
    assert_eq!(client.ask("status", Value::Null)["targets"]["low"]["paused"], false);
}

#[test]
fn pause_and_continue_may_be_repeated() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let paused = |client: &mut Client| {
        let targets = client.ask("status", Value::Null)["targets"].clone();
        (targets["low"]["paused"] == true, targets["1/high"]["paused"] == true)
    };
    for _ in 0..2 {
        client.ok("pause", json!({"targets": ["low"]}));
        assert_eq!(paused(&mut client), (true, false));
    }
    for _ in 0..2 {
        client.ok("pause", Value::Null);
        assert_eq!(paused(&mut client), (true, true));
    }
    for _ in 0..2 {
        client.ok("continue", json!({"targets": ["1/high"]}));
        assert_eq!(paused(&mut client), (true, false));
    }
    client.ok("continue", Value::Null);
    assert_eq!(paused(&mut client), (false, false));
}

#[test]
fn add_target_checks_its_fields() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let table = [
        (json!("low"), "data is not an object"),
        (json!(5), "data is not an object"),
        (Value::Null, "missing required field target"),
        (json!({"concurrency": 1}), "missing required field target"),
        (json!({"target": "new"}), "missing required field concurrency"),
        (json!({"target": 5, "concurrency": 1}), "'target' must be string"),
        (json!({"target": "new", "concurrency": "1"}), "'concurrency' must be integer"),
        (json!({"target": "new", "concurrency": 1.5}), "'concurrency' must be integer"),
        (json!({"target": "new", "concurrency": true}), "'concurrency' must be integer"),
        (json!({"target": "new", "concurrency": 0}), "Invalid concurrency value."),
        (json!({"target": "new", "concurrency": -2}), "Invalid concurrency value."),
        (json!({"target": "low", "concurrency": 1}), "target 'low' already added"),
    ];
    check(&mut client, "add-target", &table);
    client.send(r#"[0,{"no":90,"type":"add-target","data":{"target":"new","concurrency":2.0}}]"#);
    assert_eq!(client.answer(90)["data"], "ok");
    let wanted = json!({"paused": false, "concurrency": 2, "length": 0});
    assert_eq!(client.ask("status", Value::Null)["targets"]["new"], wanted);
    client.ok("add-target", json!({"target": "toString", "concurrency": 1}));
    client.ok("remove-target", json!({"target": "toString"}));
}

#[test]
fn set_target_concurrency_checks_its_fields() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let table = [
        (json!("low"), "data is not an object"),
        (json!({}), "missing required field target"),
        (json!({"target": "low"}), "missing required field concurrency"),
        (json!({"target": [], "concurrency": 1}), "'target' must be string"),
        (json!({"target": "low", "concurrency": "1"}), "'concurrency' must be integer"),
        (json!({"target": "low", "concurrency": 1.5}), "'concurrency' must be integer"),
        (json!({"target": "low", "concurrency": 0}), "Invalid concurrency value."),
        (json!({"target": "nobody", "concurrency": 1}), "target 'nobody' not found"),
        (json!({"target": "valueOf", "concurrency": 1}), "target 'valueOf' not found"),
    ];
    check(&mut client, "set-target-concurrency", &table);
    client.ok("set-target-concurrency", json!({"target": "low", "concurrency": 9}));
    assert_eq!(client.ask("status", Value::Null)["targets"]["low"]["concurrency"], 9);
}

#[test]
fn remove_target_checks_its_fields_and_its_queue() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let table = [
        (json!("low"), "data is not an object"),
        (json!({}), "missing required field target"),
        (json!({"target": 7}), "'target' must be string"),
        (json!({"target": "nobody"}), "target 'nobody' not found"),
        (json!({"target": "hasOwnProperty"}), "target 'hasOwnProperty' not found"),
    ];
    check(&mut client, "remove-target", &table);
    let id = home.waiting("low", &home.gated("g"));
    client.ok("poll", Value::Null);
    home.began("g");
    assert_eq!(client.refused("remove-target", json!({"target": "low"})), "queue is not empty");
    home.open("g");
    home.done(id);
    crate::harness::until("the queue is empty", || {
        client.ask("status", Value::Null)["targets"]["low"]["length"] == 0
    });
    client.ok("remove-target", json!({"target": "low"}));
    let targets = client.ask("status", Value::Null)["targets"].clone();
    assert_eq!(targets.as_object().unwrap().len(), 1);
    assert_eq!(client.refused("poll", json!({"targets": ["low"]})), "invalid target 'low'");
}

#[test]
fn a_queued_job_keeps_its_target_too() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    client.ok("pause", Value::Null);
    let id = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    home.reaches(id, "accepted");
    crate::harness::until("it is queued", || {
        client.ask("status", Value::Null)["targets"]["low"]["length"] == 1
    });
    assert_eq!(client.refused("remove-target", json!({"target": "low"})), "queue is not empty");
    client.ok("continue", Value::Null);
    home.done(id);
}

#[test]
fn status_lists_targets_in_the_order_of_config_then_of_adding() {
    let home = Home::new();
    let conf = home.conf().targets(&[("zeta", "1"), ("alpha", "2"), ("1/mid", "3")]);
    let worker = home.worker(&conf);
    let mut client = worker.client();
    client.ok("add-target", json!({"target": "beta", "concurrency": 4}));
    let text = client.exchange(r#"[0,{"no":1,"type":"status"}]"#);
    let places: Vec<_> = ["\"zeta\"", "\"alpha\"", "\"1/mid\"", "\"beta\""]
        .map(|name| text.find(name).unwrap())
        .to_vec();
    assert!(places.is_sorted(), "{text}");
}

/// In the order of JavaScript's object keys.
#[test]
fn status_lists_integer_like_names_first() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("low", "1"), ("10", "2"), ("9", "3")]));
    let mut client = worker.client();
    client.ok("add-target", json!({"target": "1", "concurrency": 4}));
    let text = client.exchange(r#"[0,{"no":1,"type":"status"}]"#);
    let places = ["\"1\":", "\"9\":", "\"10\":", "\"low\":"].map(|name| text.find(name).unwrap());
    assert!(places.is_sorted(), "{text}");
}

/// In the original, a poll of a target with this name means all targets.
#[test]
fn a_target_called_null_is_refused_or_means_itself() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let added = client.begin("add-target", json!({"target": "null", "concurrency": 1}));
    if client.answer(added).get("error").is_some() {
        return;
    }
    let own = home.waiting("null", "echo x");
    let other = home.waiting("low", "echo x");
    client.ok("poll", json!({"targets": ["null"]}));
    home.done(own);
    assert_eq!(home.base.status(other), "waiting");
}

#[test]
fn an_empty_name_is_accepted_at_run_time() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    client.ok("add-target", json!({"target": "", "concurrency": 1}));
    client.ok("poll", json!({"targets": [""]}));
    client.ok("remove-target", json!({"target": ""}));
}

#[test]
fn run_manual_answers_with_jobs_and_errors() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let good = home.manual("low", "echo out; echo err >&2");
    let bad = home.manual("1/high", "exit 3");
    let killed = home.manual("low", "kill -KILL $$");
    let message = json!({"ids": [good, good]});
    let request = format!(r#"[0,{{"no":1,"type":"run-manual","data":{message}}}]"#);
    let wanted = concat!(
        r#"[1,{"no":1,"data":{"jobs":{"1":{"result":"ok","code":0,"signal":null,"#,
        r#""stdout":"out\n","stderr":"err\n"}}}}]"#
    );
    assert_eq!(client.exchange(&request), wanted);
    let message = json!({"ids": [bad, killed, 99]});
    let request = format!(r#"[0,{{"no":3,"type":"run-manual","data":{message}}}]"#);
    let wanted = concat!(
        r#"[1,{"no":3,"data":{"jobs":{"2":{"result":"fail","code":3,"signal":null,"#,
        r#""stdout":"","stderr":""},"3":{"result":"fail","code":null,"signal":"SIGKILL","#,
        r#""stdout":"","stderr":""}},"errors":{"99":"job 99 not found"}}}]"#
    );
    assert_eq!(client.exchange(&request), wanted);
    let row = home.done(killed);
    assert_eq!((row.code, row.sig.as_deref()), (None, Some("SIGKILL")));
}

#[test]
fn run_manual_of_what_is_not_manual_sets_the_row_to_ignored() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    for status in ["waiting", "accepted", "running", "done", "ignored"] {
        let id = home.job("low", status, "echo x");
        let told = client.ask("run-manual", json!({"ids": [id]}));
        let wanted = json!({"errors": {id.to_string(): format!("status = {status} != manual")}});
        assert_eq!(told, wanted);
        assert_eq!(home.base.status(id), "ignored");
    }
}

#[test]
fn run_manual_of_a_target_that_is_not_served_sets_the_row_to_ignored() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    for target in ["nobody", "LOW", "toString"] {
        let id = home.manual(target, "echo x");
        let told = client.ask("run-manual", json!({"ids": [id]}));
        let text = format!("target '{target}' not found (job id={id})");
        assert_eq!(told, json!({"errors": {id.to_string(): text}}));
        assert_eq!(home.base.status(id), "ignored");
    }
}

#[test]
fn run_manual_checks_its_ids() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let table = [
        (json!({"ids": ["1"]}), "all ids must be numbers, got string"),
        (json!({"ids": [1, true]}), "all ids must be numbers, got boolean"),
        (json!({"ids": [null]}), "all ids must be numbers, got object"),
        (json!({"ids": [[1]]}), "all ids must be numbers, got object"),
    ];
    check(&mut client, "run-manual", &table);
    assert_eq!(client.ask("run-manual", json!({"ids": [-1]})), {
        json!({"errors": {"-1": "job -1 not found"}})
    });
    assert_eq!(client.ask("run-manual", json!({"ids": [1.5]})), {
        json!({"errors": {"1.5": "job 1.5 not found"}})
    });
}

/// The original answers with an error too, and leaves a transaction open.
#[test]
fn run_manual_without_ids_is_refused_and_leaves_no_transaction() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    for data in [Value::Null, json!({}), json!({"ids": []})] {
        client.refused("run-manual", data);
    }
    let id = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    assert_eq!(home.done(id).stdout.as_deref(), Some("x\n"));
    let name = home.base.name();
    let open = format!(
        "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist \
         p ON p.id = t.trx_mysql_thread_id WHERE p.db = '{name}'"
    );
    crate::harness::until("no transaction is open", || home.base.number(&open) == 0);
}

#[test]
fn one_client_waits_for_a_manual_job_at_a_time() {
    let home = Home::new();
    let (worker, mut client) = worker(&home);
    let id = home.manual("low", &home.gated("g"));
    let other = home.manual("low", "echo x");
    let run = client.begin("run-manual", json!({"ids": [id]}));
    home.began("g");
    let mut second = worker.client();
    let told = second.refused("run-manual", json!({"ids": [other, id]}));
    assert_eq!(told, format!("another client is already waiting for job {id}"));
    assert_eq!(home.base.status(other), "manual");
    assert_eq!(second.ask("status", Value::Null)["jobPromisesCount"], 1);
    home.open("g");
    client.answer(run);
    assert_eq!(second.ask("status", Value::Null)["jobPromisesCount"], 0);
}

#[test]
fn a_manual_job_goes_on_when_its_client_leaves() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let id = home.manual("low", &format!("{}echo late", home.gated("g")));
    client.begin("run-manual", json!({"ids": [id]}));
    home.began("g");
    drop(client);
    home.open("g");
    assert_eq!(home.done(id).stdout.as_deref(), Some("late\n"));
}

#[test]
fn run_manual_answers_when_all_are_finished() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let quick = home.manual("low", "echo quick");
    let slow = home.manual("low", &home.gated("g"));
    let run = client.begin("run-manual", json!({"ids": [slow, quick]}));
    home.done(quick);
    home.began("g");
    client.nothing_came();
    home.open("g");
    assert_eq!(client.answer(run)["data"]["jobs"].as_object().unwrap().len(), 2);
}

#[test]
fn a_signal_reaches_the_direct_child_by_number_or_name() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    for (gate, signal) in [("a", json!(15)), ("b", json!("SIGTERM"))] {
        let id = home.waiting("low", &home.gated(gate));
        client.ok("poll", Value::Null);
        home.began(gate);
        let key = id.to_string();
        assert_eq!(client.ask("send-signal", json!({"jobs": {&key: 0}})), json!({&key: true}));
        let told = client.ask("send-signal", json!({"jobs": {&key: signal}}));
        assert_eq!(told, json!({&key: true}));
        let row = home.done(id);
        assert_eq!(row.result.as_deref(), Some("fail"));
        assert_eq!((row.code, row.sig.as_deref()), (None, Some("SIGTERM")));
    }
}

#[test]
fn a_signal_that_cannot_be_sent_is_false() {
    let home = Home::new();
    let (_worker, mut client) = worker(&home);
    let id = home.waiting("low", &home.gated("g"));
    client.ok("poll", Value::Null);
    home.began("g");
    let key = id.to_string();
    for bad in [json!("SIGNOTHING"), json!("TERM"), json!(9999), json!(-1), json!(null), json!([])]
    {
        let told = client.ask("send-signal", json!({"jobs": {&key: bad.clone()}}));
        assert_eq!(told, json!({&key: false}), "{bad}");
    }
    assert_eq!(client.ask("send-signal", json!({"jobs": {"77": 9}})), json!({"77": false}));
    assert_eq!(client.ask("send-signal", json!({})), json!({}));
    assert_eq!(client.ask("send-signal", Value::Null), json!({}));
    let told = client.ask("send-signal", json!({"jobs": [9, 9]}));
    assert_eq!(told["0"], false, "an array is read as index and signal: {told}");
    // The array's index 1 is the job.
    assert_eq!(told["1"], true);
    assert_eq!(home.done(id).sig.as_deref(), Some("SIGKILL"));
}
