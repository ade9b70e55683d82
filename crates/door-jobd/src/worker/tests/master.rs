//! A worker and its master.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::harness::{CONFIG, Fixture, LONG, json, until};
use crate::wire::Json;

/// A worker with a master at this address.
async fn worker_of(listener: &TcpListener) -> Fixture {
    let port = listener.local_addr().unwrap().port();
    Fixture::with(&format!(
        "{CONFIG}password=pw\nalways_allow_localhost=true\nmaster_host=127.0.0.1\n\
         master_port={port}\nmaster_reconnect_timeout=1\n[targets]\nlow=1\n1/high=2\n"
    ))
    .await
}

/// The master's side of one connection.
struct Master {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Master {
    async fn accept(listener: &TcpListener) -> Master {
        let (stream, _) = tokio::time::timeout(LONG, listener.accept()).await.unwrap().unwrap();
        Master { stream, read: Vec::new() }
    }

    /// The next message; `None` when the worker has closed the connection.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == 4) {
                let rest = self.read.split_off(end + 1);
                let mut message = std::mem::replace(&mut self.read, rest);
                message.pop();
                let message = String::from_utf8(message).unwrap();
                if message != "[2]" {
                    return Some(message);
                }
                continue;
            }
            let read = self.stream.read_buf(&mut self.read);
            let count = tokio::time::timeout(LONG, read).await.unwrap().unwrap_or(0);
            if count == 0 {
                return None;
            }
        }
    }

    async fn send(&mut self, message: &str) {
        self.stream.write_all(message.as_bytes()).await.unwrap();
        self.stream.write_all(&[4]).await.unwrap();
    }

    /// Expects a request and returns its number.
    async fn asked(&mut self, rest: &str) -> i64 {
        let message = json(&self.next().await.unwrap());
        let request = &message.as_array().unwrap()[1];
        let no = request.get("no").and_then(Json::as_i64).unwrap();
        assert_eq!(message.to_string(), format!("[0,{{\"no\":{no},{rest}}}]"));
        no
    }

    async fn registered(&mut self, targets: &str) {
        let rest = format!(
            "\"type\":\"register-worker\",\"data\":{{\"name\":\"w1\",\"targets\":{targets}}},\
             \"password\":\"pw\""
        );
        let no = self.asked(&rest).await;
        self.send(&format!("[1,{{\"no\":{no},\"data\":\"ok\"}}]")).await;
    }
}

const TARGETS: &str = r#"["low","1/high"]"#;

#[tokio::test]
async fn a_poll_before_the_answer_to_the_registration_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = worker_of(&listener).await;
    worker.table.add(1..=1, "low", "waiting");
    let mut master = Master::accept(&listener).await;
    // A target that was removed is skipped, because the master may not know yet.
    master.send(r#"[0,{"no":5,"type":"poll","data":{"targets":["gone","low"]}}]"#).await;
    master.registered(TARGETS).await;
    assert_eq!(master.next().await.unwrap(), r#"[1,{"no":5,"data":"ok"}]"#);
    until("it runs", || worker.launcher.launched() == [1]).await;
    master.send("[2]").await;
    assert_eq!(master.next().await.unwrap(), "[3]");
    master.send(r#"[0,{"no":6,"type":"status"}]"#).await;
    assert!(master.next().await.unwrap().starts_with(r#"[1,{"no":6,"data":{"targets":{"low""#));
}

#[tokio::test]
async fn a_connection_that_ends_in_any_phase_is_made_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _worker = worker_of(&listener).await;
    drop(Master::accept(&listener).await);
    let mut asked = Master::accept(&listener).await;
    asked.next().await.unwrap();
    drop(asked);
    let mut refusing = Master::accept(&listener).await;
    let request = json(&refusing.next().await.unwrap());
    let no = request.as_array().unwrap()[1].get("no").cloned().unwrap();
    refusing.send(&format!("[1,{{\"no\":{no},\"error\":\"invalid password\"}}]")).await;
    assert_eq!(refusing.next().await, None);
    let mut lost = Master::accept(&listener).await;
    lost.registered(TARGETS).await;
    drop(lost);
    Master::accept(&listener).await.registered(TARGETS).await;
}

#[tokio::test]
async fn other_targets_are_registered_before_the_old_connection_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = worker_of(&listener).await;
    worker.table.add(1..=1, "low", "manual");
    let mut old = Master::accept(&listener).await;
    old.registered(TARGETS).await;
    old.send(r#"[0,{"no":5,"type":"run-manual","data":{"ids":[1]}}]"#).await;
    until("it runs", || worker.launcher.launched() == [1]).await;
    worker.ask("add-target", r#"{"target":"new","concurrency":1}"#).await.unwrap();
    let mut new = Master::accept(&listener).await;
    new.registered(r#"["low","1/high","new"]"#).await;
    new.send(r#"[0,{"no":6,"type":"poll","data":{"targets":["new"]}}]"#).await;
    assert_eq!(new.next().await.unwrap(), r#"[1,{"no":6,"data":"ok"}]"#);
    worker.launcher.end(1, 0).await;
    assert!(old.next().await.unwrap().starts_with(r#"[1,{"no":5,"data":{"jobs":{"1":"#));
    let no = old.asked(r#""type":"status""#).await;
    old.send(&format!("[1,{{\"no\":{no},\"data\":{{}}}}]")).await;
    assert_eq!(old.next().await, None);
    worker.ask("remove-target", r#"{"target":"new"}"#).await.unwrap();
    Master::accept(&listener).await.registered(TARGETS).await;
}

#[tokio::test]
async fn a_worker_that_stops_tells_the_master_of_what_it_hands_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = worker_of(&listener).await;
    worker.table.add(1..=2, "low", "waiting");
    let mut master = Master::accept(&listener).await;
    master.registered(TARGETS).await;
    worker.ask("poll", "{}").await.unwrap();
    until("one runs", || worker.launcher.launched() == [1]).await;
    worker.stop.asked.cancel();
    worker.launcher.end(1, 0).await;
    assert_eq!(master.next().await, None);
    let mut last = Master::accept(&listener).await;
    let poke = r#""type":"poke","data":{"targets":["low"]},"password":"pw""#;
    let no = last.asked(poke).await;
    last.send(&format!("[1,{{\"no\":{no},\"data\":\"ok\"}}]")).await;
    let table = Arc::clone(&worker.table);
    worker.stopped().await;
    assert_eq!(table.status(2), "waiting");
}
