//! Clients that disconnect, and what happens to the jobs that they were given.

use super::fake::{Event, FakeDoor, began};

#[tokio::test]
async fn a_job_that_reached_its_client_is_delivered() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("GetJob\n\n").await;
    assert_eq!(client.body().await, "{}");
    door.expect(began("GetJob")).await;
    door.expect(Event::Delivered).await;
}

#[tokio::test]
async fn a_job_whose_client_was_reset_is_not_delivered() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("GetJob\nhold: 1\n\n").await;
    door.expect(began("GetJob")).await;
    client.reset();
    door.let_one_pass();
    door.expect(Event::Undelivered).await;
}

#[tokio::test]
async fn a_job_whose_client_has_hung_up_is_not_delivered() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("GetJob\nhold: 1\n\n").await;
    door.expect(began("GetJob")).await;
    drop(client);
    door.let_one_pass();
    door.expect(Event::Undelivered).await;
}

#[tokio::test]
async fn a_job_whose_client_has_hung_up_at_once_is_not_delivered() {
    let mut door = FakeDoor::open().await;
    for _ in 0..20 {
        let mut client = door.client().await;
        client.send("GetJob\nhold: 1\n\n").await;
        drop(client);
        door.let_one_pass();
        door.expect(began("GetJob")).await;
        door.expect(Event::Undelivered).await;
    }
}

#[tokio::test]
async fn a_client_that_has_said_everything_still_gets_its_answers() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Hold\ntext: a\n\nGetJob\n\nEcho\ntext: b\n\nEcho\ntext: unfinished\n").await;
    client.half_close().await;
    door.expect(began("Hold a")).await;
    door.let_one_pass();
    assert_eq!(client.body().await, "a");
    assert_eq!(client.body().await, "{}");
    assert_eq!(client.body().await, "b");
    assert_eq!(client.rest().await, "");
    door.expect(began("GetJob")).await;
    door.expect(Event::Delivered).await;
    door.expect(began("Echo b")).await;
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_waiting() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("GetJob\nConnection: wait\ntimeout: 3600000\n\n").await;
    door.expect(began("GetJob")).await;
    drop(client);
    door.expect(Event::Gone).await;

    let mut client = door.client().await;
    client.send("GetJob\nConnection: wait\ntimeout: 3600000\n\n").await;
    door.expect(began("GetJob")).await;
    client.half_close().await;
    door.expect(Event::Gone).await;
    assert_eq!(client.rest().await, "404 No job found\r\nContent-Length: 0\r\n\r\n");
}
