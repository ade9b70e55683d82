//! Clients that are silent, slow, or do not read. Time is simulated: it passes when all tasks wait.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_net::Memory;
use windlass_test_kit::wait::in_time;

use super::client::SOME_BYTES;
use super::fake::{Event, FakeDoor, LARGE_BYTES, began, options};
use crate::Options;
use crate::execute::HOLD_INTERVAL;
use crate::inbound::{Inbound, Next, Patience};
use crate::wire::{Limits, Response};

const SILENCE_MAX: Duration = Duration::from_secs(30);

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
    client.send("x").await;
    while tokio::time::timeout(SILENCE_MAX / 2, client.ended()).await.is_err() {
        client.send("x").await;
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
    let nearly = idle_max - Duration::from_secs(1);
    assert!(tokio::time::timeout(nearly, client.rest()).await.is_err(), "it may rest");
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

/// Otherwise its lease would end, and another worker would get the job too.
#[tokio::test(start_paused = true)]
async fn a_job_is_held_for_a_client_that_reads_slowly() {
    let mut door = FakeDoor::open().await;
    let mut client = door.client().await;
    client.send("Large\n\n").await;
    door.expect(began("Large")).await;
    let mut pace = tokio::time::interval(SILENCE_MAX / 10);
    let slowly = async {
        loop {
            pace.tick().await;
            client.some().await;
        }
    };
    let delivered = async {
        let since = Instant::now();
        let mut held = 0;
        loop {
            match door.event().await {
                Event::Held => held += 1,
                Event::Delivered => break (held, since.elapsed()),
                event => panic!("{event:?}"),
            }
        }
    };
    let (held, took) = tokio::select! {
        () = slowly => unreachable!("it reads for ever"),
        delivered = delivered => delivered,
    };
    assert!(held > 0 && held == took.as_secs() / HOLD_INTERVAL.as_secs(), "{held} in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_hangs_does_not_keep_the_reply_back() {
    let mut door = FakeDoor::open().await;
    door.set_holds_hang(true);
    let mut client = door.client().await;
    client.send("Large\n\n").await;
    door.expect(began("Large")).await;
    door.expect(Event::Held).await;
    tokio::time::resume();
    for _ in 0..LARGE_BYTES / SOME_BYTES {
        in_time("more of the reply arrives", client.some()).await;
    }
    door.set_holds_hang(false);
    in_time("the reply is delivered", door.expect(Event::Delivered)).await;
}

#[tokio::test]
async fn large_requests_share_memory_and_small_ones_need_none() {
    let patience =
        Patience { idle_max: SILENCE_MAX, silence_max: SILENCE_MAX, request_max: SILENCE_MAX };
    let memory = Memory::new(2048 * 1024);
    let large = format!("Echo\ntext: {}\n\n", "x".repeat(200 * 1024));
    let never = CancellationToken::new();
    let next = async |request: &str, memory: &Memory| {
        let mut inbound = Inbound::new(Limits::default(), patience.clone(), memory);
        let (ours, mut theirs) = pair().await;
        let send = async {
            theirs.write_all(request.as_bytes()).await.unwrap();
            theirs
        };
        let (next, _theirs) = tokio::join!(inbound.next(&ours, &never), send);
        next
    };
    assert!(matches!(next(&large, &memory).await, Next::Request(_)));
    let taken = memory.take(1900 * 1024).unwrap();
    let Next::Refused(refused) = next(&large, &memory).await else { panic!("there is no memory") };
    let expected = Response::error(503, "Too many large requests at once");
    assert_eq!(refused, expected.with_header("Connection", "close"));
    assert!(matches!(next("Echo\n\n", &memory).await, Next::Request(_)));
    drop(taken);
    assert!(matches!(next(&large, &memory).await, Next::Request(_)), "it was given back");
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, theirs)
}
