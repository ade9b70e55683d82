//! Silent clients, slow ones, and such as take nothing. Time is pretended: it passes when everybody
//! waits.

use std::time::Duration;

use tokio::time::Instant;

use super::fake::{Event, FakeDoor, began, options};
use crate::Options;

const SILENCE_MAX: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_client_that_is_silent_in_the_middle_of_a_request_is_given_up() {
    for start in ["E", "Echo\ntext: a", "Echo\nContent-Length: 5\n\nbod"] {
        let mut door = FakeDoor::open().await;
        let mut client = door.client().await;
        let before = Instant::now();
        client.send(start).await;
        assert_eq!(client.rest().await, "");
        let waited = before.elapsed();
        assert!(waited >= SILENCE_MAX && waited < 2 * SILENCE_MAX, "{waited:?} for {start:?}");
        door.no_event();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_endlessly_slow_is_given_up() {
    let request_max = Duration::from_secs(300);
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    let before = Instant::now();
    while client.try_send("x") {
        tokio::time::sleep(SILENCE_MAX / 2).await;
    }
    assert!(before.elapsed() >= request_max);
    door.no_event();
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_rest_for_long_between_two_requests() {
    let idle_max = options().idle_max;
    let door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Echo\ntext: a\n\n").await;
    assert_eq!(client.body().await, "a");
    tokio::time::sleep(idle_max - Duration::from_secs(1)).await;
    client.send("Echo\ntext: b\n\n").await;
    assert_eq!(client.body().await, "b");
    let before = Instant::now();
    assert_eq!(client.rest().await, "");
    assert!(before.elapsed() >= idle_max);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let silence_max = Duration::from_millis(100);
    let mut door = FakeDoor::open_with(Options { silence_max, ..options() }).await;
    let mut client = door.client().await;
    client.send("Large\n\n").await;
    door.expect(began("Large")).await;
    door.expect(Event::Undelivered).await;
}
