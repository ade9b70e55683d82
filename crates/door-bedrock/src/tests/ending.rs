//! Too many connections, and how a door closes.

use super::fake::{Event, FakeDoor, began, options};
use crate::Options;

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let mut door = FakeDoor::open_with(Options { connections_max: 1, ..options() }).await;
    let mut first = door.client().await;
    first.send("Hold\ntext: a\n\n").await;
    door.expect(began("Hold a")).await;
    let mut second = door.client().await;
    second.send("Echo\ntext: b\n\n").await;
    let full = "503 Too many connections\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(second.rest().await, full);
    door.let_one_pass();
    assert_eq!(first.body().await, "a");
}

#[tokio::test]
async fn a_door_that_closes_finishes_what_is_under_way_and_takes_nothing_more() {
    let mut door = FakeDoor::open().await;
    let mut idle = door.client().await;
    idle.send("Echo\ntext: i\n\n").await;
    assert_eq!(idle.body().await, "i");
    let mut half = door.client().await;
    half.send("Echo\ntext: ha").await;
    let mut waiting = door.client().await;
    waiting.send("GetJob\nConnection: wait\n\n").await;
    let mut busy = door.client().await;
    door.expect(began("Echo i")).await;
    door.expect(began("GetJob")).await;
    busy.send("Hold\ntext: a\n\nEcho\ntext: b\n\n").await;
    door.expect(began("Hold a")).await;

    door.close();
    door.expect(Event::Gone).await;
    assert_eq!(idle.rest().await, "");
    assert_eq!(half.rest().await, "");
    assert_eq!(waiting.rest().await, "404 No job found\r\nContent-Length: 0\r\n\r\n");
    door.let_one_pass();
    assert_eq!(busy.rest().await, "200 OK\r\nContent-Length: 1\r\n\r\na");
    drop((idle, half, waiting, busy));
    door.no_event();
    door.closed().await;
}

#[tokio::test]
async fn a_command_whose_time_has_not_come_is_dropped_when_the_door_closes() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send(&format!("Echo\ncommandExecuteTime: {}\n\n", i64::MAX)).await;
    assert!(client.rest().await.starts_with("202 "));
    drop(client);
    door.close();
    door.no_event();
    door.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_door_that_does_not_close_in_time_is_cut_off() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Hold\ntimeout: 3600000\n\n").await;
    door.expect(began("Hold")).await;
    door.close();
    assert_eq!(client.rest().await, "");
    door.closed().await;
}
