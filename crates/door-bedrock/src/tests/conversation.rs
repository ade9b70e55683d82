//! One request after the other, and the headers that every request may have.

use std::sync::Arc;

use windlass_core::Timestamp;
use windlass_core::time::ManualClock;

use super::fake::{Event, FakeDoor, began, options};
use crate::Options;

#[tokio::test]
async fn requests_that_come_together_are_answered_one_after_the_other() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    let length = "Content-Length: 4";
    client.send(&format!("Hold\ntext: a\n\nEcho\ntext: b\n{length}\n\nBodyNone\n\n")).await;
    door.expect(began("Hold a")).await;
    door.no_event();
    door.let_one_pass();
    assert_eq!(client.body().await, "a");
    assert_eq!(client.body().await, "b");
    let unknown = "430 Unrecognized command\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.reply().await, unknown);
    client.send("Echo\r\ntext: later\r\n\r\n").await;
    assert_eq!(client.body().await, "later");
}

#[tokio::test]
async fn a_request_may_come_byte_by_byte() {
    let door = FakeDoor::open().await;
    let mut client = door.client().await;
    for byte in b"\r\nEcho\r\ntext: slow\r\n\r\n" {
        client.send_bytes(&[*byte]).await;
    }
    assert_eq!(client.body().await, "slow");
}

#[tokio::test]
async fn requests_of_several_megabytes_are_taken() {
    let door = FakeDoor::open().await;
    let mut client = door.client().await;
    let text = "y".repeat(3 * 1024 * 1024);
    client.send(&format!("Echo\ntext: {text}\n\n")).await;
    assert!(client.body().await == text);
    let body = "z".repeat(3 * 1024 * 1024);
    client.send(&format!("Echo\ntext: t\nContent-Length: {}\n\n{body}", body.len())).await;
    assert_eq!(client.body().await, "t");
}

#[tokio::test]
async fn a_large_request_waits_its_turn() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    let text = "y".repeat(8 * 1024 * 1024);
    let requests = format!("Hold\ntext: first\n\nEcho\ntext: {text}\n\nEcho\ntext: last\n\n");
    let pass = async {
        door.expect(began("Hold first")).await;
        door.let_one_pass();
    };
    tokio::join!(client.send(&requests), pass);
    assert_eq!(client.body().await, "first");
    assert!(client.body().await == text);
    assert_eq!(client.body().await, "last");
}

#[tokio::test]
async fn a_connection_ends_with_the_reply_if_the_client_wants_it_so() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Echo\ntext: a\nConnection: close\n\nEcho\ntext: never\n\n").await;
    let expected = "200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na";
    assert_eq!(client.rest().await, expected);

    let mut client = door.client().await;
    client.send("Echo\ntext: a\nConnection: Close\n\n").await;
    assert_eq!(client.rest().await, "200 OK\r\nContent-Length: 1\r\n\r\na");
    door.expect(began("Echo a")).await;
    door.expect(began("Echo a")).await;
    door.no_event();
}

#[tokio::test]
async fn a_forgotten_command_runs_without_its_client() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Echo\ntext: a\nConnection: forget\n\n").await;
    let queued = "202 Successfully queued\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.rest().await, queued);
    door.expect(began("Echo a")).await;

    let mut client = door.client().await;
    client.send("GetJob\nConnection: forget\n\n").await;
    assert_eq!(client.rest().await, queued);
    door.expect(began("GetJob")).await;
    door.expect(Event::Undelivered).await;
}

#[tokio::test]
async fn a_command_can_be_put_off() {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000)));
    let mut door = FakeDoor::open_with(Options { clock, ..options() }).await;
    let mut client = door.client().await;
    client.send("GetJob\ncommandExecuteTime: 1050000\n\n").await;
    let queued = "202 Successfully queued\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.rest().await, queued);
    door.expect(began("GetJob")).await;
    door.expect(Event::Undelivered).await;

    let mut client = door.client().await;
    client.send("Echo\ntext: past\ncommandExecuteTime: 999999\n\n").await;
    assert_eq!(client.body().await, "past");
}

#[tokio::test]
async fn no_more_commands_are_queued_than_there_is_room_for() {
    let mut door = FakeDoor::open().await;
    let text = "x".repeat(15 * 1024 * 1024);
    let request = format!("Hold\nConnection: forget\nother: {text}\n\n");
    for _ in 0..4 {
        let mut client = door.client().await;
        client.send(&request).await;
        assert!(client.rest().await.starts_with("202 "));
        door.expect(began("Hold")).await;
    }
    let mut client = door.client().await;
    client.send(&request).await;
    let full = "503 Too many queued commands\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.rest().await, full);
}

#[tokio::test]
async fn a_command_without_any_time_is_not_begun() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Echo\ntimeout: 0\n\nEcho\ntimeout: 0\nConnection: close\n\n").await;
    assert_eq!(client.reply().await, "555 Timeout\r\nContent-Length: 0\r\n\r\n");
    let last = "555 Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.rest().await, last);
    door.no_event();
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_answered_and_ends_before_the_next_begins() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("GetJob\nhold: 1\ntimeout: 20\n\nEcho\ntext: next\n\n").await;
    assert_eq!(client.reply().await, "555 Timeout\r\nContent-Length: 0\r\n\r\n");
    door.expect(began("GetJob")).await;
    door.no_event();
    door.let_one_pass();
    door.expect(Event::Undelivered).await;
    assert_eq!(client.body().await, "next");
}

#[tokio::test]
async fn the_end_of_waiting_is_no_timeout() {
    let door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("GetJob\nname: x\nConnection: wait\ntimeout: 20\n\n").await;
    assert_eq!(client.reply().await, "404 No job found\r\nContent-Length: 0\r\n\r\n");
}

#[tokio::test]
async fn a_command_that_panics_costs_nobody_else_anything() {
    let door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Panic\n\nEcho\ntext: still here\n\n").await;
    assert_eq!(client.reply().await, "500 Unhandled Exception\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.body().await, "still here");
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_ends_the_connection() {
    let mut door = FakeDoor::open().await;
    let cases: [(Vec<u8>, &str); 5] = [
        (vec![b'x'; 3 * 1024 * 1024], "Method line is too long"),
        ("Echo\n".to_owned().into_bytes().repeat(300), "Too many headers"),
        (b"Echo\ntext: \xff\n\n".to_vec(), "Request is not valid UTF-8"),
        (b"Echo\nContent-Length: -1\n\n".to_vec(), "Malformed Content-Length"),
        (b"Echo\nTransfer-Encoding: chunked\n\nnone\n".to_vec(), "Malformed chunk"),
    ];
    for (bytes, reason) in cases {
        let mut client = door.client().await;
        client.send_bytes(&bytes).await;
        let expected = format!("400 {reason}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.rest().await, expected);
    }
    door.no_event();
}
