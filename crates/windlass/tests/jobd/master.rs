//! The master and its workers: section 3 of the contract, and the fixes of section 9.

use serde_json::{Value, json};

use crate::harness::{Client, Conf, Daemon, Home, until};

fn start(home: &Home) -> Daemon {
    home.master(&home.master_conf())
}

/// A worker played by the test.
fn register(master: &Daemon, name: &str, targets: &[&str]) -> Client {
    let mut worker = master.client();
    worker.ok("register-worker", json!({"name": name, "targets": targets}));
    worker
}

/// Takes the next request of the master; returns its number, type and targets.
fn request(worker: &mut Client) -> (i64, String, Value) {
    loop {
        let message = worker.receive_json();
        if message[0] == 2 {
            worker.send("[3]");
            continue;
        }
        assert_eq!(message[0], 0, "{message}");
        let body = &message[1];
        assert!(body.get("password").is_none(), "{body}");
        let kind = body["type"].as_str().unwrap().to_owned();
        return (body["no"].as_i64().unwrap(), kind, body["data"].clone());
    }
}

/// Takes a request of this kind, answers it with "ok", and returns its data.
fn obey(worker: &mut Client, kind: &str) -> Value {
    let (no, asked, data) = request(worker);
    assert_eq!(asked, kind);
    worker.send_json(&json!([1, {"no": no, "data": "ok"}]));
    data
}

fn workers(client: &mut Client) -> Vec<Value> {
    client.ask("status", Value::Null)["workers"].as_array().unwrap().clone()
}

fn linked(home: &Home, master: &Daemon, name: &str) -> Conf {
    home.conf()
        .set("name", name)
        .set("master_host", "127.0.0.1")
        .set("master_port", master.port())
        .set("master_reconnect_timeout", 1)
}

#[test]
fn targets_are_checked_by_every_request_that_has_them() {
    let home = Home::new();
    let master = start(&home);
    let mut client = master.client();
    for kind in ["poke", "pause", "continue", "register-worker"] {
        for (targets, text) in [
            (json!(null), "targets must be array"),
            (json!("low"), "targets must be array"),
            (json!({}), "targets must be array"),
            (json!([]), "targets are empty"),
            (json!([5]), "all targets must be strings, number given"),
            (json!(["low", false]), "all targets must be strings, boolean given"),
            (json!([null]), "all targets must be strings, object given"),
            (json!([{}]), "all targets must be strings, object given"),
        ] {
            let data = json!({"name": "w", "targets": targets});
            assert_eq!(client.refused(kind, data), text, "{kind} {targets}");
        }
    }
    assert_eq!(workers(&mut client), Vec::<Value>::new());
}

#[test]
fn a_worker_needs_a_name() {
    let home = Home::new();
    let master = start(&home);
    let mut client = master.client();
    let wanted = "name is missing or invalid";
    for data in [
        json!({"targets": ["low"]}),
        json!({"targets": ["low"], "name": 5}),
        json!({"targets": ["low"], "name": null}),
        json!({"targets": ["low"], "name": ""}),
    ] {
        assert_eq!(client.refused("register-worker", data.clone()), wanted, "{data}");
    }
    // Targets are checked first.
    assert_eq!(client.refused("register-worker", json!({"targets": []})), "targets are empty");
    assert_eq!(workers(&mut client), Vec::<Value>::new());
}

#[test]
fn a_worker_is_listed_while_its_connection_lasts() {
    let home = Home::new();
    let master = start(&home);
    let mut client = master.client();
    let worker = register(&master, "w1", &["low", "1/high"]);
    let listed = workers(&mut client);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["name"], "w1");
    assert_eq!(listed[0]["remoteAddr"], "127.0.0.1");
    assert_eq!(listed[0]["targets"], json!(["low", "1/high"]));
    assert!(listed[0]["remotePort"].is_u64());
    assert_eq!(listed[0].as_object().unwrap().len(), 4);
    drop(worker);
    until("it is gone", || workers(&mut client).is_empty());
}

#[test]
fn a_poke_polls_every_worker_that_serves_a_target_with_its_own_targets() {
    let home = Home::new();
    let master = start(&home);
    let mut one = register(&master, "one", &["any", "1/low"]);
    let mut two = register(&master, "two", &["any", "2/low"]);
    let mut three = register(&master, "three", &["3/low"]);
    let mut client = master.client();
    client.ok("poke", json!({"targets": ["any", "2/low", "nobody"]}));
    assert_eq!(obey(&mut one, "poll"), json!({"targets": ["any"]}));
    let mut data = obey(&mut two, "poll");
    data["targets"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!(data, json!({"targets": ["2/low", "any"]}));
    three.nothing_came();
}

#[test]
fn a_poke_without_targets_is_refused() {
    let home = Home::new();
    let master = start(&home);
    let told = master.client().refused("poke", json!({}));
    assert_eq!(told, "targets is not iterable");
}

#[test]
fn the_first_poke_goes_out_at_once_and_the_rest_of_a_burst_as_one() {
    let home = Home::new();
    let master = home.master(&home.master_conf().set("poke_throttle_interval", "2.5"));
    let mut worker = register(&master, "w", &["a", "b", "c"]);
    let mut client = master.client();
    client.ok("poke", json!({"targets": ["a"]}));
    for target in ["b", "c", "b", "c", "b"] {
        client.begin("poke", json!({"targets": [target]}));
    }
    for _ in 0..5 {
        assert_eq!(client.receive_json()[1]["data"], "ok");
    }
    assert_eq!(obey(&mut worker, "poll"), json!({"targets": ["a"]}));
    let mut data = obey(&mut worker, "poll");
    data["targets"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!(data, json!({"targets": ["b", "c"]}));
    worker.nothing_came();
}

#[test]
fn pokes_that_nobody_serves_are_remembered_for_the_next_that_does() {
    let home = Home::new();
    let master = home.master(&home.master_conf().set("poke_throttle_interval", 0));
    let mut client = master.client();
    client.ok("poke", json!({"targets": ["late", "later"]}));
    let mut wrong = register(&master, "wrong", &["other"]);
    let mut right = register(&master, "right", &["late", "other"]);
    assert_eq!(obey(&mut right, "poll"), json!({"targets": ["late"]}));
    wrong.nothing_came();
    let mut second = register(&master, "second", &["later"]);
    assert_eq!(obey(&mut second, "poll"), json!({"targets": ["later"]}));
    // Until the answer of the first has arrived, others that register are polled for its targets.
    let mut tries = 0..;
    until("what was answered is no longer told", || {
        let unserved = format!("unserved {}", tries.next().unwrap());
        client.ok("poke", json!({"targets": [unserved]}));
        let mut next = register(&master, "next", &["late", "later", &unserved]);
        obey(&mut next, "poll") == json!({"targets": [unserved]})
    });
}

/// The original sends the poll before the worker listens for requests.
#[test]
fn a_remembered_poke_runs_the_jobs_of_a_real_worker() {
    let home = Home::new();
    let master = start(&home);
    let id = home.waiting("low", "echo x");
    master.client().ok("poke", json!({"targets": ["low"]}));
    let _worker = home.worker(&linked(&home, &master, "w"));
    home.done(id);
}

#[test]
fn a_poke_runs_the_jobs_of_real_workers() {
    let home = Home::new();
    let master = start(&home);
    let _one = home.worker(&linked(&home, &master, "one").targets(&[("a", "1")]));
    let _two = home.worker(&linked(&home, &master, "two").targets(&[("b", "1")]));
    let mut client = master.client();
    until("both are registered", || workers(&mut client).len() == 2);
    let (a, b) = (home.waiting("a", "echo a"), home.waiting("b", "echo b"));
    client.ok("poke", json!({"targets": ["a", "b"]}));
    home.done(a);
    home.done(b);
}

#[test]
fn pause_and_continue_are_passed_on_and_answered() {
    let home = Home::new();
    let master = start(&home);
    let mut one = register(&master, "one", &["a", "b"]);
    let mut two = register(&master, "two", &["b", "c"]);
    let mut client = master.client();
    for kind in ["pause", "continue"] {
        let no = client.begin(kind, json!({"targets": ["a", "b", "x"]}));
        let mut data = obey(&mut one, kind);
        data["targets"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
        assert_eq!(data, json!({"targets": ["a", "b"]}));
        assert_eq!(obey(&mut two, kind), json!({"targets": ["b"]}));
        assert_eq!(client.answer(no)["data"], "ok");
        let no = client.begin(kind, Value::Null);
        assert_eq!(obey(&mut one, kind), json!({}));
        assert_eq!(obey(&mut two, kind), json!({}));
        assert_eq!(client.answer(no)["data"], "ok");
        client.ok(kind, json!({"targets": ["nobody"]}));
    }
}

#[test]
fn the_pause_of_a_master_pauses_a_real_worker() {
    let home = Home::new();
    let master = start(&home);
    let worker = home.worker(&linked(&home, &master, "w"));
    let (mut client, mut direct) = (master.client(), worker.client());
    until("it is registered", || workers(&mut client).len() == 1);
    client.ok("pause", json!({"targets": ["low"]}));
    let targets = direct.ask("status", Value::Null)["targets"].clone();
    assert_eq!((&targets["low"]["paused"], &targets["1/high"]["paused"]), {
        (&Value::Bool(true), &Value::Bool(false))
    });
    client.ok("continue", Value::Null);
    assert_eq!(direct.ask("status", Value::Null)["targets"]["low"]["paused"], false);
}

#[test]
fn status_may_ask_the_workers() {
    let home = Home::new();
    let master = start(&home);
    let mut client = master.client();
    let _real = home.worker(&linked(&home, &master, "real"));
    until("it is registered", || workers(&mut client).len() == 1);
    let mut played = register(&master, "played", &["x"]);
    let no = client.begin("status", json!({"poll_workers": true}));
    let (asked, kind, data) = request(&mut played);
    assert_eq!((kind.as_str(), data), ("status", Value::Null));
    played.send_json(&json!([1, {"no": asked, "error": "not today"}]));
    let told = client.answer(no)["data"]["workers"].clone();
    assert_eq!(told[0]["workerStatus"]["targets"]["low"]["concurrency"], 2);
    assert!(told[0]["workerStatus"]["memoryUsage"]["rss"].is_u64());
    assert_eq!(told[1]["workerStatusError"], "not today");
    assert_eq!(told[1].get("workerStatus"), None);
}

#[test]
fn a_worker_that_leaves_while_it_is_asked_is_an_error_of_its_own() {
    let home = Home::new();
    let master = start(&home);
    let mut worker = register(&master, "w", &["x"]);
    let mut client = master.client();
    let no = client.begin("status", json!({"poll_workers": true}));
    request(&mut worker);
    drop(worker);
    let told = client.answer(no)["data"]["workers"].clone();
    assert_eq!(told[0]["workerStatusError"], "Socket is closed");
}

#[test]
fn a_mute_worker_holds_nobody_for_ever() {
    let home = Home::new();
    let master = start(&home);
    let _mute = register(&master, "mute", &["a"]);
    let mut client = master.client();
    let told = client.ask("status", json!({"poll_workers": true}))["workers"].clone();
    assert!(told[0]["workerStatusError"].is_string(), "{told}");
    client.ok("pause", Value::Null);
}

#[test]
fn workers_are_pinged_and_dropped_when_they_are_silent() {
    let home = Home::new();
    let master = home.master(&home.master_conf().set("ping_interval", 1));
    let mut mute = register(&master, "mute", &["a"]);
    let mut client = master.client();
    assert_eq!(mute.receive(), "[2]");
    until("the mute one is dropped", || workers(&mut client).is_empty());
    let mut alive = register(&master, "alive", &["a"]);
    for _ in 0..4 {
        assert_eq!(alive.receive(), "[2]");
        alive.send("[3]");
    }
    assert_eq!(workers(&mut client).len(), 1);
}

#[test]
fn ordinary_clients_are_never_pinged() {
    let home = Home::new();
    let master = home.master(&home.master_conf().set("ping_interval", 1));
    let mut client = master.client();
    let mut worker = register(&master, "w", &["a"]);
    for _ in 0..2 {
        assert_eq!(worker.receive(), "[2]");
        worker.send("[3]");
    }
    client.nothing_came();
}

#[test]
fn a_worker_finds_its_master_again() {
    let home = Home::new();
    let conf = home.master_conf();
    let mut master = home.master(&conf);
    let _worker = home.worker(&linked(&home, &master, "w"));
    until("it is registered", || workers(&mut master.client()).len() == 1);
    master.kill();
    let master = home.master(&conf);
    until("it is registered again", || workers(&mut master.client()).len() == 1);
    let id = home.waiting("low", "echo x");
    master.client().ok("poke", json!({"targets": ["low"]}));
    home.done(id);
}

/// The original never retries if the connection dies before the answer.
#[test]
fn a_worker_whose_registration_is_never_answered_tries_again() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let conf = home
        .conf()
        .set("name", "w")
        .set("master_host", "127.0.0.1")
        .set("master_port", listener.local_addr().unwrap().port())
        .set("master_reconnect_timeout", 1);
    let _worker = home.worker(&conf);
    for _ in 0..2 {
        drop(Client::accept(&listener));
        let mut link = Client::accept(&listener);
        assert_eq!(request(&mut link).1, "register-worker");
    }
    let mut link = Client::accept(&listener);
    let message = link.receive();
    let tail = r#""type":"register-worker","data":{"name":"w","targets":["low","1/high"]}}]"#;
    assert!(message.starts_with(r#"[0,{"no":"#) && message.ends_with(tail), "{message}");
    let no = serde_json::from_str::<Value>(&message).unwrap()[1]["no"].clone();
    assert!((1..=999_999).contains(&no.as_i64().unwrap()), "{no}");
    link.send_json(&json!([1, {"no": no, "data": "ok"}]));
    link.send(r#"[0,{"no":5,"type":"poll","data":{"targets":["low"]}}]"#);
    assert_eq!(link.receive_past_pings(), r#"[1,{"no":5,"data":"ok"}]"#);
    link.send("[2]");
    assert_eq!(link.receive_past_pings(), "[3]");
}

#[test]
fn targets_added_and_removed_are_told_to_the_master() {
    let home = Home::new();
    let master = start(&home);
    let worker = home.worker(&linked(&home, &master, "w"));
    let mut client = master.client();
    until("it is registered", || workers(&mut client).len() == 1);
    let mut direct = worker.client();
    direct.ok("add-target", json!({"target": "new", "concurrency": 1}));
    let serves = |client: &mut Client, targets: Value| {
        let listed = workers(client);
        listed.len() == 1 && listed[0]["targets"] == targets
    };
    until("the new one is known", || serves(&mut client, json!(["low", "1/high", "new"])));
    let id = home.waiting("new", "echo x");
    client.ok("poke", json!({"targets": ["new"]}));
    home.done(id);
    until("it is idle", || direct.ask("status", Value::Null)["targets"]["new"]["length"] == 0);
    direct.ok("remove-target", json!({"target": "new"}));
    until("it is gone", || serves(&mut client, json!(["low", "1/high"])));
    let low = home.waiting("low", "echo x");
    client.ok("poke", json!({"targets": ["new", "low"]}));
    home.done(low);
}
