//! Hostile input: broken, endless, unread. No other client may notice.

use serde_json::{Value, json};

use crate::harness::{Daemon, Home, until};

/// How much more memory a daemon may need, whatever one client does.
const MEMORY_KB_MAX: u64 = 400_000;

fn memory_kb(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn both(home: &Home) -> [Daemon; 2] {
    [home.worker(&home.conf()), home.master(&home.master_conf())]
}

#[test]
fn a_message_without_an_end_is_cut_off_in_bounded_memory() {
    const MEGABYTES: usize = 300;
    let home = Home::new();
    for mut daemon in both(&home) {
        let before = memory_kb(&daemon);
        let mut client = daemon.client();
        let piece = vec![b'x'; 1_000_000];
        let mut most = 0;
        for _ in 0..MEGABYTES {
            if !client.try_send_bytes(&piece) {
                break;
            }
            most = most.max(memory_kb(&daemon));
        }
        assert!(most < before + MEMORY_KB_MAX, "{most} kB");
        assert!(daemon.client().ask("status", Value::Null).is_object());
        assert!(daemon.alive());
    }
}

#[test]
fn a_message_of_a_hundred_megabytes_hurts_nobody() {
    let home = Home::new();
    for mut daemon in both(&home) {
        let mut client = daemon.client();
        let filler = "x".repeat(100_000_000);
        let request = json!([0, {"no": 1, "type": "status", "data": {"filler": filler}}]);
        let mut bytes = request.to_string().into_bytes();
        bytes.push(4);
        client.try_send_bytes(&bytes);
        assert!(daemon.client().ask("status", Value::Null).is_object());
        assert!(daemon.alive());
    }
}

#[test]
fn a_client_that_never_reads_holds_nobody_and_no_memory() {
    let home = Home::new();
    for mut daemon in both(&home) {
        let before = memory_kb(&daemon);
        let mut deaf = daemon.client();
        let name = "y".repeat(100_000);
        let request = format!("[0,{{\"no\":1,\"type\":\"{name}\"}}]\u{4}");
        let (mut most, mut open) = (0, true);
        std::thread::scope(|scope| {
            let port = daemon.port();
            let sender = scope.spawn(move || {
                // Its own sending is bounded too: it stops when the other side reads no more.
                deaf.short_patience();
                (0..5000).all(|_| deaf.try_send_bytes(request.as_bytes()))
            });
            while open {
                most = most.max(memory_kb(&daemon));
                let mut other = crate::harness::Client::connect(port);
                assert!(other.ask("status", Value::Null).is_object());
                open = !sender.is_finished();
            }
        });
        assert!(most < before + MEMORY_KB_MAX, "{most} kB");
        assert!(daemon.alive());
    }
}

#[test]
fn json_that_is_nested_very_deep_hurts_nobody() {
    let home = Home::new();
    for mut daemon in both(&home) {
        let mut client = daemon.client();
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        client.send(&deep);
        client.send(&format!(r#"[0,{{"no":1,"type":"status","data":{deep}}}]"#));
        assert!(daemon.client().ask("status", Value::Null).is_object());
        assert!(daemon.alive());
    }
}

#[test]
fn damaged_requests_never_hurt() {
    let home = Home::new();
    let mut random = fastrand::Rng::with_seed(5);
    let whole = br#"[0,{"no":1,"type":"run-manual","data":{"ids":[1,2,3],"jobs":[{"id":1}]}}]"#;
    for mut daemon in both(&home) {
        for _ in 0..60 {
            let mut client = daemon.client();
            let mut bytes = whole.to_vec();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.push(4);
            client.try_send_bytes(&bytes);
        }
        assert!(daemon.client().ask("status", Value::Null).is_object());
        assert!(daemon.alive());
    }
}

#[test]
fn strange_numbers_are_no_crash() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf());
    let mut client = worker.client();
    for id in ["1e308", "-1e308", "18446744073709551616", "9007199254740993", "-0", "0"] {
        let request = format!(r#"[0,{{"no":1,"type":"run-manual","data":{{"ids":[{id}]}}}}]"#);
        let answer: Value = serde_json::from_str(&client.exchange(&request)).unwrap();
        assert!(answer[1]["data"]["errors"].is_object(), "{id}: {answer}");
    }
    let huge = client.ask("set-target-concurrency", json!({"target": "low", "concurrency": 2e9}));
    assert_eq!(huge, "ok");
    let id = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    home.done(id);
    assert!(worker.alive());
}

#[test]
fn names_are_never_read_as_sql() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let mut client = worker.client();
    for name in ["x'; DROP TABLE jobs; --", "a\\", "\"", "`", "\u{0}"] {
        client.ok("add-target", json!({"target": name, "concurrency": 1}));
        client.ok("poll", json!({"targets": [name]}));
    }
    let id = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    home.done(id);
}

#[test]
fn many_connections_that_say_nothing_leave_room_for_others() {
    let home = Home::new();
    for daemon in both(&home) {
        let silent: Vec<_> = (0..200).map(|_| daemon.client()).collect();
        assert!(daemon.client().ask("status", Value::Null).is_object());
        drop(silent);
        until("it still answers", || daemon.client().ask("status", Value::Null).is_object());
    }
}
