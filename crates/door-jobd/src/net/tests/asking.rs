//! Our own requests, on connections opened by either side.

use super::*;
use crate::password::Password;

/// A peer that we connected to, and the raw other side.
async fn pair(password: Option<&str>) -> (Peer, Client, Arc<Fake>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, fake) = (listener.local_addr().unwrap().port(), Fake::new());
    let password = password.map(Password::new);
    let peer = connect("127.0.0.1", port, password, fake.clone(), &Log::quiet()).await.unwrap();
    (peer, Client::accept(&listener).await, fake)
}

/// The number of a request, and the rest of it.
async fn requested(client: &mut Client) -> (u32, String) {
    let text = client.receive().await;
    let rest = text.strip_prefix(r#"[0,{"no":"#).expect("a request");
    let (no, rest) = rest.split_once(',').unwrap();
    (no.parse().unwrap(), rest.to_owned())
}

#[tokio::test]
async fn the_first_request_carries_the_password() {
    let (peer, mut client, _) = pair(Some("pw")).await;
    let first = peer.ask("register-worker", Some([("name", "w1".into())].into()));
    let second = peer.ask("status", None);
    let (one, text) = requested(&mut client).await;
    assert_eq!(text, r#""type":"register-worker","data":{"name":"w1"},"password":"pw"}]"#);
    let (two, text) = requested(&mut client).await;
    assert_eq!(text, r#""type":"status"}]"#);
    assert!(two == one + 1 || two == 1);
    // Answers may arrive in any order.
    client.send(&format!(r#"[1,{{"no":{two},"data":{{"b":1,"a":2}}}}]"#)).await;
    client.send(&format!(r#"[1,{{"no":{one},"data":"ok"}}]"#)).await;
    assert_eq!(within(first).await, Ok("ok".into()));
    assert_eq!(within(second).await, Ok([("b", 1.into()), ("a", 2.into())].into()));
}

#[tokio::test]
async fn an_error_is_told_in_the_words_of_the_peer() {
    let (peer, mut client, _) = pair(None).await;
    let answer = peer.ask("poll", None);
    let (no, _) = requested(&mut client).await;
    // Unknown numbers are dropped.
    client.send(&format!(r#"[1,{{"no":{},"data":"other"}}]"#, no + 10)).await;
    client.send(&format!(r#"[1,{{"no":{no},"error":"invalid target 'x'"}}]"#)).await;
    let error = within(answer).await.unwrap_err();
    assert_eq!(error, AskError::Refused("invalid target 'x'".to_owned()));
    assert_eq!(error.to_string(), "invalid target 'x'");
}

#[tokio::test]
async fn when_the_connection_ends_there_is_no_answer() {
    let (peer, mut client, fake) = pair(None).await;
    let (one, other) = (peer.ask("poll", None), peer.ask("status", None));
    requested(&mut client).await;
    drop(client);
    assert_eq!(within(one).await, Err(AskError::Closed));
    assert_eq!(within(other).await.unwrap_err().to_string(), "Socket is closed");
    fake.closed(1).await;
    within(peer.closed()).await;
    assert_eq!(within(peer.ask("poll", None)).await, Err(AskError::Closed));
}

#[tokio::test]
async fn a_connection_counts_as_closed_although_answers_are_due() {
    let (peer, mut client, fake) = pair(None).await;
    client.send(r#"[0,{"no":1,"type":"wait"}]"#).await;
    fake.waiting(1).await;
    client.half_close().await;
    within(peer.closed()).await;
    fake.gate.add_permits(1);
    assert_eq!(client.receive().await, r#"[1,{"no":1,"data":"waited"}]"#);
}

#[tokio::test]
async fn closing_ends_a_connection_at_once() {
    let (peer, mut client, fake) = pair(None).await;
    let answer = peer.ask("poll", None);
    requested(&mut client).await;
    peer.close();
    assert_eq!(within(answer).await, Err(AskError::Closed));
    client.is_at_end().await;
    fake.closed(1).await;
}

#[tokio::test]
async fn waiting_for_an_answer_may_have_a_limit() {
    let (peer, mut client, _) = pair(None).await;
    let late = peer.ask("status", None).within(Duration::from_millis(10)).await.unwrap_err();
    assert_eq!(late.to_string(), "no answer within 0.01 seconds");
    assert!(!peer.is_asked());
    let (no, _) = requested(&mut client).await;
    // It comes too late and has no effect.
    client.send(&format!(r#"[1,{{"no":{no},"data":"late"}}]"#)).await;
    let next = peer.ask("status", None);
    let (no, _) = requested(&mut client).await;
    client.send(&format!(r#"[1,{{"no":{no},"data":"next"}}]"#)).await;
    assert_eq!(within(next.within(LONG)).await, Ok("next".into()));
}

#[tokio::test]
async fn both_sides_ask_on_one_connection() {
    let (peer, mut client, _) = pair(Some("pw")).await;
    let answer = peer.ask("register-worker", None);
    let (no, _) = requested(&mut client).await;
    // The peer asks before it has answered, and needs no password.
    client.check(r#"[0,{"no":1,"type":"echo"}]"#, r#"[1,{"no":1,"data":{}}]"#).await;
    client.send(&format!(r#"[1,{{"no":{no},"data":"ok"}}]"#)).await;
    assert_eq!(within(answer).await, Ok("ok".into()));

    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":1,"type":"ask back"}]"#).await;
    let (no, text) = requested(&mut client).await;
    assert_eq!(text, r#""type":"name"}]"#);
    client.check(&format!(r#"[1,{{"no":{no},"data":"me"}}]"#), r#"[1,{"no":1,"data":"me"}]"#).await;
}

#[tokio::test]
async fn answers_of_many_megabytes_are_taken() {
    let (peer, mut client, _) = pair(None).await;
    let answer = peer.ask("run-manual", None);
    let (no, _) = requested(&mut client).await;
    let text = "z".repeat(crate::wire::MESSAGE_BYTES_MAX);
    client.send(&format!(r#"[1,{{"no":{no},"data":"{text}"}}]"#)).await;
    assert_eq!(within(answer).await, Ok(text.into()));
}

#[tokio::test]
async fn only_so_many_requests_wait_for_an_answer() {
    let (peer, _client, _) = pair(None).await;
    let mut answers: Vec<peer::PendingAnswer> =
        (0..peer::ASKS_MAX).map(|_| peer.ask("status", None)).collect();
    assert_eq!(within(peer.ask("status", None)).await, Err(AskError::TooMany));
    answers.pop();
    let _one_more = peer.ask("status", None);
    assert_eq!(within(peer.ask("status", None)).await, Err(AskError::TooMany));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_stays_and_a_mute_one_goes() {
    let (peer, mut client, fake) = pair(None).await;
    let pinged = peer.clone();
    let pings = tokio::spawn(async move { pinged.ping_every(Duration::from_secs(1)).await });
    for _ in 0..5 {
        assert_eq!(client.receive().await, "[2]");
        client.send("[3]").await;
    }
    assert_eq!(client.receive().await, "[2]");
    assert_eq!(client.receive().await, "[2]");
    client.is_at_end().await;
    fake.closed(1).await;
    within(pings).await.unwrap();
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert!(connect("127.0.0.1", port, None, Fake::new(), &Log::quiet()).await.is_err());
}
