//! The audit of the Bedrock door: which commands have entries, what these tell, and that the door
//! answers as before.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Door, Link, StoreLock, until};

/// Entries of the door, oldest first.
fn entries(daemon: &Daemon) -> Vec<Value> {
    let page = daemon.get("/v1/audit?limit=1000").expect(200).json();
    let entries = page["entries"].as_array().unwrap().iter().rev().cloned();
    entries.filter(|entry| entry["by"] == "bedrock").collect()
}

#[test]
fn every_change_that_is_no_traffic_has_one_entry_with_its_fields() {
    let door = Door::start();
    let (first, second) = (door.named("a"), door.named("b"));
    let (one, two) = (first.to_string(), second.to_string());
    let both = format!("{one},{two},x");
    let parent = door.named("p");
    door.take(parent, "p");
    let child = door.child(parent, "c");
    door.about("FinishJob", parent).done();
    let more = [("data", "{}"), ("repeat", "HOURLY")];
    door.about_with("UpdateJob", first, &more).done();
    door.about("CancelJob", child).done();
    let named = [("jobIDs", both.as_str()), ("name", "renamed")];
    door.call("RequeueJobs", &named).done();
    door.about("DeleteJob", first).done();
    door.about("DeleteJob", first).fails("404 No job with this jobID");
    door.call("deletejob", &[("jobID", "hush")]).fails("402 Malformed jobID");
    door.call("CrashBedrockJob", &[("names", "none")]).done();
    door.call("ClearCrashedBedrockJobs", &[]).done();
    let child = child.to_string();
    let details = json!(format!("2 jobs: {one} {two}"));
    let expected = [
        ("UpdateJob", 200, json!(one), Value::Null),
        ("CancelJob", 200, json!(child), Value::Null),
        ("RequeueJobs", 200, Value::Null, details),
        ("DeleteJob", 200, json!(one), Value::Null),
        ("DeleteJob", 404, json!(one), Value::Null),
        ("DeleteJob", 402, Value::Null, Value::Null),
        ("CrashBedrockJob", 200, Value::Null, Value::Null),
        ("ClearCrashedBedrockJobs", 200, Value::Null, Value::Null),
    ];
    let entries = entries(&door.daemon);
    assert_eq!(entries.len(), expected.len(), "{entries:?}");
    for (entry, (action, status, id, detail)) in entries.iter().zip(expected) {
        assert_eq!((&entry["action"], &entry["status"]), (&json!(action), &json!(status)));
        assert_eq!((&entry["id"], &entry["detail"]), (&id, &detail), "{entry}");
        assert_eq!((&entry["address"], &entry["tenant"]), (&json!("127.0.0.1"), &json!("default")));
        let name = if action == "RequeueJobs" { json!("renamed") } else { Value::Null };
        assert_eq!((&entry["type"], &entry["reason"]), (&name, &Value::Null), "{entry}");
    }
}

#[test]
fn the_ordinary_traffic_has_no_entries() {
    let door = Door::start();
    let id = door.named("t");
    door.take(id, "t");
    door.about_with("UpdateJob", id, &[("data", "{}")]).done();
    door.about("RetryJob", id).done();
    door.take(id, "t");
    door.about("FinishJob", id).done();
    let id = door.named("t");
    door.take(id, "t");
    door.about("FailJob", id).done();
    door.job(id);
    door.call("Status", &[]).ok();
    door.call("Ping", &[]).ok();
    assert_eq!(entries(&door.daemon), Vec::<Value>::new());
}

#[test]
fn sql_that_writes_has_an_entry_without_the_sql() {
    let door = Door::embedded();
    let id = door.named("t");
    let query = |sql: &str| door.call("Query", &[("query", sql)]);
    query("SELECT jobID FROM jobs;").ok();
    query(&format!("UPDATE jobs SET data = '{{\"hush\":1}}' WHERE jobID = {id};")).ok();
    door.call_raw(b"Query: DELETE FROM jobs WHERE 1 = 2;\r\n\r\n").ok();
    let entries = entries(&door.daemon);
    let actions: Vec<&Value> = entries.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["Query", "Query"]);
    assert!(!format!("{entries:?}").contains("hush"), "{entries:?}");
}

#[test]
fn a_command_without_a_waiting_client_has_an_entry_too() {
    let door = Door::start();
    let id = door.named("t").to_string();
    let reply = door.open().call("DeleteJob", &[("jobID", &id), ("Connection", "forget")]);
    assert_eq!(reply.line, "202 Successfully queued");
    let ended =
        |entries: &Vec<Value>| entries.first().is_some_and(|entry| !entry["status"].is_null());
    let entries = until("the entry is complete", || entries(&door.daemon), ended);
    assert_eq!((&entries[0]["action"], &entries[0]["status"]), (&json!("DeleteJob"), &json!(200)));
}

#[test]
fn while_the_store_is_away_changes_are_refused_and_do_not_begin() {
    let door = Door::start();
    let id = door.named("t");
    door.job(id);
    let lock = StoreLock::take(&door.daemon.config);
    let calls = [("DeleteJob", "jobID", id.to_string()), ("CrashBedrockJob", "names", "t".into())];
    let asked = calls.map(|(verb, name, value)| {
        let mut link = door.open();
        thread::spawn(move || link.call(verb, &[(name, &value)]))
    });
    for asked in asked {
        let reply = asked.join().unwrap();
        assert!(reply.line.starts_with("503 "), "{reply:?}");
    }
    drop(lock);
    assert_eq!(entries(&door.daemon), Vec::<Value>::new());
    // The pattern would have failed it.
    door.take(id, "t");
}

/// An address of this machine that is not a loopback address, if it has one.
fn outer_address() -> Option<Ipv4Addr> {
    // Nothing is sent: the system only chooses the address that it would send from.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_loopback() => Some(*address.ip()),
        _ => None,
    }
}

#[test]
fn strangers_who_are_disconnected_have_an_entry() {
    let Some(outer) = outer_address() else { return };
    if TcpListener::bind((outer, 0)).is_err() {
        return;
    }
    let config = Config::new().set("bedrock.allow", r#"["203.0.113.0/24"]"#);
    let door = Door::start_at(config, "0.0.0.0:0");
    let stranger = TcpStream::connect((outer, door.address.port())).and_then(Link::over);
    stranger.unwrap().assert_closed();
    let entries = until("it is stored", || entries(&door.daemon), |entries| !entries.is_empty());
    let entry = &entries[0];
    assert_eq!(entry["action"], "bedrock_connect");
    assert_eq!((&entry["reason"], &entry["status"]), (&json!("address"), &Value::Null));
    assert_eq!(entry["address"], outer.to_string());
    assert_eq!((entries.len(), &entry["count"]), (1, &json!(1)));
}
