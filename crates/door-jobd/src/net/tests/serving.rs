//! What clients see of a server.

use super::*;

const OK: &str = r#"[0,{"no":1,"type":"echo","data":"ok"}]"#;

#[tokio::test]
async fn requests_in_any_pieces_are_answered() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    let two = b"[0,{\"no\":1,\"type\":\"echo\",\"data\":{\"b\":1,\"a\":2}}]\x04 [ 2 ] \x04";
    client.send_bytes(two).await;
    assert_eq!(client.receive().await, r#"[1,{"no":1,"data":{"b":1,"a":2}}]"#);
    assert_eq!(client.receive().await, "[3]");
    for piece in two.chunks(3) {
        client.send_bytes(piece).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.receive().await, r#"[1,{"no":1,"data":{"b":1,"a":2}}]"#);
    assert_eq!(client.receive().await, "[3]");
}

#[tokio::test]
async fn a_request_of_two_megabytes_is_answered() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    let text = "y".repeat(2 * 1024 * 1024);
    let request = format!(r#"[0,{{"no":5,"type":"echo","data":"{text}"}}]"#);
    client.check(&request, &format!(r#"[1,{{"no":5,"data":"{text}"}}]"#)).await;
}

#[tokio::test]
async fn errors_of_the_handler_are_told_with_the_number() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.check(r#"[0,{"no":-3,"type":"fail"}]"#, r#"[1,{"no":-3,"error":"it failed"}]"#).await;
    let unknown = r#"[1,{"no":0,"error":"unknown request type: 'Echo'"}]"#;
    client.check(r#"[0,{"no":0.0,"type":"Echo"}]"#, unknown).await;
}

#[tokio::test]
async fn bad_messages_leave_the_connection_open() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.check("5", r#"[1,{"no":0,"error":"JSON array expected, got: 5"}]"#).await;
    client.check("[9]", r#"[1,{"no":0,"error":"unexpected type 9"}]"#).await;
    let missing = "malformed REQUEST message: missing required field type";
    client.check("[0,[]]", &format!(r#"[1,{{"no":0,"error":"{missing}"}}]"#)).await;
    let missing = "malformed RESPONSE message: missing required field no";
    client.check("[1,{}]", &format!(r#"[1,{{"no":0,"error":"{missing}"}}]"#)).await;
    // These get no answer.
    for silent in ["", "{", "[3]", r#"[1,{"no":77,"data":"ok"}]"#, r#"[1,{"no":-1}]"#] {
        client.send(silent).await;
    }
    client.check(OK, r#"[1,{"no":1,"data":"ok"}]"#).await;
}

#[tokio::test]
async fn answers_come_when_they_are_ready() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":1,"type":"wait"}]"#).await;
    client.send(r#"[0,{"no":2,"type":"wait"}]"#).await;
    client.check(r#"[0,{"no":3,"type":"echo"}]"#, r#"[1,{"no":3,"data":{}}]"#).await;
    served.fake.gate.add_permits(2);
    let mut answers = [client.receive().await, client.receive().await];
    answers.sort();
    assert_eq!(answers, [1, 2].map(|no| format!(r#"[1,{{"no":{no},"data":"waited"}}]"#)));
}

#[tokio::test]
async fn a_client_that_sends_no_more_gets_its_answers_and_is_closed() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":1,"type":"wait"}]"#).await;
    client.send(r#"[0,{"no":2,"type":"echo"}]"#).await;
    client.half_close().await;
    assert_eq!(client.receive().await, r#"[1,{"no":2,"data":{}}]"#);
    // It takes no more requests, although an answer is still due.
    served.fake.closed(1).await;
    served.fake.gate.add_permits(1);
    assert_eq!(client.receive().await, r#"[1,{"no":1,"data":"waited"}]"#);
    client.is_at_end().await;
}

#[tokio::test]
async fn what_a_client_asked_for_goes_on_when_it_leaves() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":1,"type":"wait"}]"#).await;
    served.fake.waiting(1).await;
    drop(client);
    served.fake.closed(1).await;
    served.fake.gate.add_permits(1);
    let mut other = served.client().await;
    other.check(OK, r#"[1,{"no":1,"data":"ok"}]"#).await;
    served.stop.cancel();
    let fake = served.fake.clone();
    served.ended().await;
    assert_eq!(fake.gate.available_permits(), 0, "the request has ended");
    // The other client is reported once as well, and none twice.
    assert_eq!(fake.closed.available_permits(), 1);
}

#[tokio::test]
async fn a_server_that_stops_answers_what_is_under_way() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":1,"type":"wait"}]"#).await;
    served.fake.waiting(1).await;
    served.stop.cancel();
    served.fake.closed(1).await;
    served.fake.gate.add_permits(1);
    assert_eq!(client.receive().await, r#"[1,{"no":1,"data":"waited"}]"#);
    client.is_at_end().await;
    drop(client);
    let addr = served.addr;
    served.ended().await;
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_ever() {
    let log = Log::quiet();
    let served = Served::start_with(Access::default(), &log, Duration::ZERO, 10).await;
    let mut client = served.client().await;
    client.send(r#"[0,{"no":1,"type":"wait"}]"#).await;
    served.fake.waiting(1).await;
    served.stop.cancel();
    served.ended().await;
    client.is_at_end().await;
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let log = Log::quiet();
    let server = Server::bind("127.0.0.1", 0, Access::default(), &log).await.unwrap();
    let port = server.addr().unwrap().port();
    let error = Server::bind("127.0.0.1", port, Access::default(), &log).await.err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_those_who_ask_nothing() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.check("[2]", "[3]").await;
    served.stop.cancel();
    // The client is still there.
    served.ended().await;
    client.is_at_end().await;
}
