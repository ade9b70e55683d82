//! Framing and messages: section 1 of the contract, and the bytes of section 10.

use serde_json::{Value, json};

use crate::harness::{Client, Daemon, Home, error_zero};

/// A worker and a master, which share every rule of this file.
fn both(home: &Home) -> [Daemon; 2] {
    [home.worker(&home.conf()), home.master(&home.master_conf())]
}

/// Each message is answered with number 0 and this text, and the connection stays usable.
fn check_errors(table: &[(&str, &str)]) {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        for (message, text) in table {
            assert_eq!(client.exchange(message), error_zero(text), "{message}");
        }
        client.nothing_came();
    }
}

#[test]
fn what_is_no_array_is_answered_in_the_words_of_javascript() {
    check_errors(&[
        ("null", "JSON array expected, got: null"),
        ("5", "JSON array expected, got: 5"),
        ("-1.5", "JSON array expected, got: -1.5"),
        ("5.0", "JSON array expected, got: 5"),
        ("1e3", "JSON array expected, got: 1000"),
        ("1e21", "JSON array expected, got: 1e+21"),
        ("true", "JSON array expected, got: true"),
        ("false", "JSON array expected, got: false"),
        (r#""abc""#, "JSON array expected, got: abc"),
        (r#""""#, "JSON array expected, got: "),
        ("{}", "JSON array expected, got: [object Object]"),
        (r#"{"no":1}"#, "JSON array expected, got: [object Object]"),
    ]);
}

#[test]
fn a_type_that_is_none_of_four_is_unexpected() {
    check_errors(&[
        ("[]", "unexpected type undefined"),
        (r#"["0"]"#, "unexpected type 0"),
        ("[[1,2]]", "unexpected type 1,2"),
        ("[[]]", "unexpected type "),
        ("[4]", "unexpected type 4"),
        ("[-1]", "unexpected type -1"),
        ("[1.5]", "unexpected type 1.5"),
        ("[null]", "unexpected type null"),
        ("[true]", "unexpected type true"),
        ("[{}]", "unexpected type [object Object]"),
        (r#"["ping"]"#, "unexpected type ping"),
    ]);
}

#[test]
fn a_malformed_request_is_named_with_its_fault() {
    const KINDS: &str = "malformed REQUEST message: \
                         'data' must be any of: string, number, object, array";
    check_errors(&[
        ("[0]", "malformed REQUEST message: data is not an object"),
        ("[0,null]", "malformed REQUEST message: data is not an object"),
        ("[0,5]", "malformed REQUEST message: data is not an object"),
        (r#"[0,"x"]"#, "malformed REQUEST message: data is not an object"),
        ("[0,true]", "malformed REQUEST message: data is not an object"),
        ("[0,[]]", "malformed REQUEST message: missing required field type"),
        ("[0,{}]", "malformed REQUEST message: missing required field type"),
        (r#"[0,{"no":1}]"#, "malformed REQUEST message: missing required field type"),
        (r#"[0,{"type":"status"}]"#, "malformed REQUEST message: missing required field no"),
        (r#"[0,{"type":"status","no":"1"}]"#, "malformed REQUEST message: 'no' must be integer"),
        (r#"[0,{"type":"status","no":1.5}]"#, "malformed REQUEST message: 'no' must be integer"),
        (r#"[0,{"type":"status","no":[]}]"#, "malformed REQUEST message: 'no' must be integer"),
        (r#"[0,{"type":5,"no":1}]"#, "malformed REQUEST message: 'type' must be string"),
        (r#"[0,{"type":["status"],"no":1}]"#, "malformed REQUEST message: 'type' must be string"),
        (
            r#"[0,{"type":"status","no":1,"password":null}]"#,
            "malformed REQUEST message: 'password' must be string",
        ),
        (
            r#"[0,{"type":"status","no":1,"password":5}]"#,
            "malformed REQUEST message: 'password' must be string",
        ),
        (r#"[0,{"type":"status","no":1,"data":true}]"#, KINDS),
        (r#"[0,{"type":"status","no":1,"data":false}]"#, KINDS),
    ]);
}

#[test]
fn a_malformed_response_is_named_with_its_fault() {
    const KINDS: &str = "malformed RESPONSE message: \
                         'data' must be any of: string, number, object, array";
    check_errors(&[
        ("[1]", "malformed RESPONSE message: data is not an object"),
        ("[1,null]", "malformed RESPONSE message: data is not an object"),
        ("[1,7]", "malformed RESPONSE message: data is not an object"),
        ("[1,{}]", "malformed RESPONSE message: missing required field no"),
        ("[1,[]]", "malformed RESPONSE message: missing required field no"),
        (r#"[1,{"no":1,"error":5}]"#, "malformed RESPONSE message: 'error' must be string"),
        (r#"[1,{"no":1,"error":null}]"#, "malformed RESPONSE message: 'error' must be string"),
        (r#"[1,{"no":1,"data":true}]"#, KINDS),
    ]);
}

#[test]
fn broken_json_is_not_answered_and_leaves_the_connection_usable() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        for broken in ["", "{", "[0,", "nonsense", "[2]]", "\u{0}", "[0,{'no':1}]"] {
            client.send(broken);
        }
        client.send_bytes(b"\xff\xfe\x04");
        assert!(client.ask("status", Value::Null).is_object());
        client.nothing_came();
    }
}

#[test]
fn pings_are_answered_and_pongs_and_strange_answers_dropped() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        assert_eq!(client.exchange("[2]"), "[3]");
        assert_eq!(client.exchange(r#"[2,{"x":1}]"#), "[3]");
        client.send("[3]");
        client.send(r#"[1,{"no":77,"data":"ok"}]"#);
        client.send(r#"[1,{"no":78,"error":"no"}]"#);
        client.nothing_came();
    }
}

#[test]
fn a_message_may_come_in_pieces_and_several_at_once() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        for byte in b"[0,{\"no\":5,\"type\":\"nothing\"}]\x04" {
            client.send_bytes(&[*byte]);
        }
        let wanted = r#"[1,{"no":5,"error":"unknown request type: 'nothing'"}]"#;
        assert_eq!(client.receive(), wanted);
        client.send_bytes(b"[2]\x04[2]\x04[2");
        assert_eq!((client.receive(), client.receive()), ("[3]".into(), "[3]".into()));
        client.send_bytes(b"]\x04");
        assert_eq!(client.receive(), "[3]");
    }
}

#[test]
fn white_space_and_extra_items_are_fine() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        let wanted = r#"[1,{"no":5,"error":"unknown request type: 'x'"}]"#;
        let spaced = " [ 0 ,\n{ \"no\" : 5 , \"type\" : \"x\" } ] \n";
        assert_eq!(client.exchange(spaced), wanted);
        assert_eq!(client.exchange(r#"[0,{"no":5,"type":"x","more":true},9,{}]"#), wanted);
    }
}

#[test]
fn numbers_are_echoed_as_integers() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        for (sent, echoed) in [("1.0", "1"), ("0", "0"), ("-7", "-7"), ("999999", "999999")] {
            let message = format!(r#"[0,{{"type":"x","no":{sent}}}]"#);
            let wanted = format!(r#"[1,{{"no":{echoed},"error":"unknown request type: 'x'"}}]"#);
            assert_eq!(client.exchange(&message), wanted);
        }
    }
}

#[test]
fn types_are_case_sensitive_and_nothing_is_inherited() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        for name in ["Status", "STATUS", "", "toString", "constructor", "__proto__", "stat us"] {
            let wanted = format!("unknown request type: '{name}'");
            assert_eq!(client.refused(name, Value::Null), wanted);
        }
    }
}

#[test]
fn each_daemon_refuses_what_only_the_other_knows() {
    let home = Home::new();
    let [worker, master] = both(&home);
    for name in ["poke", "register-worker"] {
        let told = worker.client().refused(name, json!({}));
        assert_eq!(told, format!("unknown request type: '{name}'"));
    }
    for name in ["poll", "add-target", "remove-target", "set-target-concurrency"] {
        let told = master.client().refused(name, json!({}));
        assert_eq!(told, format!("unknown request type: '{name}'"));
    }
}

#[test]
fn data_of_another_kind_means_no_arguments() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let mut client = worker.client();
    for data in ["null", "0", r#""""#, r#""low""#, "5", "[]", "{}"] {
        let request = format!(r#"[0,{{"type":"poll","no":3,"data":{data}}}]"#);
        assert_eq!(client.exchange(&request), r#"[1,{"no":3,"data":"ok"}]"#, "{data}");
    }
}

#[test]
fn answers_come_when_they_are_ready() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let mut client = worker.client();
    let id = home.manual("low", &home.gated("slow"));
    let run = client.begin("run-manual", json!({"ids": [id]}));
    home.began("slow");
    client.ok("poll", Value::Null);
    client.nothing_came();
    home.open("slow");
    assert_eq!(client.answer(run)["data"]["jobs"][id.to_string()]["result"], "ok");
}

#[test]
fn a_half_closed_client_still_gets_its_answers() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        client.send(r#"[0,{"no":1,"type":"x"}]"#);
        client.send("[2]");
        client.end_writing();
        assert_eq!(client.receive(), r#"[1,{"no":1,"error":"unknown request type: 'x'"}]"#);
        assert_eq!(client.receive(), "[3]");
        client.closed();
    }
}

#[test]
fn a_request_of_two_megabytes_works() {
    let home = Home::new();
    for daemon in both(&home) {
        let mut client = daemon.client();
        let filler = "x".repeat(2_000_000);
        client.send_json(&json!([0, {"no": 1, "type": "status", "data": {"filler": filler}}]));
        assert!(client.answer(1)["data"].is_object());
    }
}

/// Replaces every byte count, which differs each time.
fn without_memory(mut answer: Value) -> Value {
    let memory = answer["memoryUsage"].as_object_mut().unwrap();
    for (key, value) in memory.iter_mut() {
        assert!(value.is_u64(), "{key}: {value}");
        *value = json!(0);
    }
    answer
}

fn keys_in_order(text: &str, keys: &[&str]) {
    let places: Vec<_> =
        keys.iter().map(|key| text.find(&format!("\"{key}\":")).unwrap()).collect();
    assert!(places.is_sorted(), "{keys:?} in {text}");
}

#[test]
fn the_status_of_a_worker_has_its_bytes() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let text = worker.client().exchange(r#"[0,{"no":285390,"type":"status"}]"#);
    let head = concat!(
        r#"[1,{"no":285390,"data":{"targets":{"low":{"paused":false,"concurrency":2,"length":0},"#,
        r#""1/high":{"paused":false,"concurrency":3,"length":0}},"jobPromisesCount":0,"#,
        r#""memoryUsage":{"rss":"#
    );
    assert!(text.starts_with(head), "{text}");
    keys_in_order(&text, &["rss", "heapTotal", "heapUsed", "external", "arrayBuffers"]);
    let message: Value = serde_json::from_str(&text).unwrap();
    let data = without_memory(message[1]["data"].clone());
    assert_eq!(data["memoryUsage"].as_object().unwrap().len(), 5);
    assert!(message[1]["data"]["memoryUsage"]["rss"].as_u64().unwrap() > 0);
}

#[test]
fn the_status_of_a_master_has_its_bytes() {
    let home = Home::new();
    let master = home.master(&home.master_conf());
    let mut worker = master.client();
    let register = concat!(
        r#"[0,{"no":943230,"type":"register-worker","#,
        r#""data":{"name":"w1","targets":["low","1/high"]}}]"#
    );
    assert_eq!(worker.exchange(register), r#"[1,{"no":943230,"data":"ok"}]"#);
    let text = master.client().exchange(r#"[0,{"no":787748,"type":"status","data":{}}]"#);
    let head = r#"[1,{"no":787748,"data":{"workers":[{"remoteAddr":"127.0.0.1","remotePort":"#;
    assert!(text.starts_with(head), "{text}");
    let tail = r#""targets":["low","1/high"],"name":"w1"}],"memoryUsage":{"rss":"#;
    assert!(text.contains(tail), "{text}");
    let message: Value = serde_json::from_str(&text).unwrap();
    without_memory(message[1]["data"].clone());
}

#[test]
fn the_requests_of_the_php_client_have_their_bytes() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("password", "pw"));
    let mut client = worker.client();
    assert_eq!(client.exchange("[2]"), "[3]");
    let status = client.exchange(r#"[0,{"type":"status","no":775946,"password":"pw"}]"#);
    assert!(status.starts_with(r#"[1,{"no":775946,"data":{"targets":"#), "{status}");
    let session = [
        (r#"[0,{"type":"poll","no":775947,"data":{}}]"#, r#"[1,{"no":775947,"data":"ok"}]"#),
        (
            r#"[0,{"type":"poll","no":775948,"data":{"targets":["1\/high"]}}]"#,
            r#"[1,{"no":775948,"data":"ok"}]"#,
        ),
        (
            r#"[0,{"type":"run-manual","no":775951,"data":{"ids":[1,2]}}]"#,
            r#"[1,{"no":775951,"data":{"errors":{"1":"job 1 not found","2":"job 2 not found"}}}]"#,
        ),
        (
            r#"[0,{"type":"send-signal","no":775952,"data":{"jobs":{"7":15,"9":9}}}]"#,
            r#"[1,{"no":775952,"data":{"7":false,"9":false}}]"#,
        ),
        (
            concat!(
                r#"[0,{"no":5,"type":"set-target-concurrency","#,
                r#""data":{"target":"low","concurrency":2}}]"#
            ),
            r#"[1,{"no":5,"data":"ok"}]"#,
        ),
    ];
    for (sent, wanted) in session {
        assert_eq!(client.exchange(sent), wanted);
    }
}

#[test]
fn names_outside_ascii_are_one_name_however_they_are_escaped() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("größe", "1")]));
    let mut client: Client = worker.client();
    let escaped = r#"[0,{"type":"poll","no":1,"data":{"targets":["gr\u00f6\u00dfe"]}}]"#;
    assert_eq!(client.exchange(escaped), r#"[1,{"no":1,"data":"ok"}]"#);
    client.ok("poll", json!({"targets": ["größe"]}));
    assert_eq!(
        client.exchange(r#"[0,{"type":"poll","no":2,"data":{"targets":["größer"]}}]"#),
        r#"[1,{"no":2,"error":"invalid target 'größer'"}]"#
    );
}
