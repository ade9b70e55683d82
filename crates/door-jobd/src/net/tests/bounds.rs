//! Clients that send too much, ask too much, or do not read.

use windlass_net::Memory;

use super::*;
use crate::net::connection::FREE_BYTES;
use crate::wire::MESSAGE_BYTES_MAX;

const TOO_LONG: &str = r#"[1,{"no":0,"error":"message is too long"}]"#;

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_connection() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send_bytes(&vec![b' '; MESSAGE_BYTES_MAX + 1]).await;
    assert_eq!(client.receive().await, TOO_LONG);
    client.is_at_end().await;
    // The maximum length.
    let mut client = served.client().await;
    let ping = format!("[2]{}", " ".repeat(MESSAGE_BYTES_MAX - 3));
    client.check(&ping, "[3]").await;
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_and_the_client_hears_it() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    client.send_bytes(&vec![b'['; 100_000_000]).await;
    assert_eq!(client.receive().await, TOO_LONG);
    client.is_at_end().await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    // Far more than may wait.
    let requests = 2 * outbound::WAITING_BYTES_MAX / BIG;
    for no in 0..requests {
        client.send(&format!(r#"[0,{{"no":{no},"type":"big"}}]"#)).await;
    }
    served.fake.closed(1).await;
    // The rest is not even read.
    assert!(served.fake.handled() < requests);
    let mut other = served.client().await;
    other.check("[2]", "[3]").await;
}

#[tokio::test]
async fn only_so_many_requests_are_under_way() {
    let served = Served::start(Access::default()).await;
    let mut client = served.client().await;
    for no in 0..connection::REQUESTS_MAX {
        client.send(&format!(r#"[0,{{"no":{no},"type":"wait"}}]"#)).await;
    }
    let refused = r#"[1,{"no":-1,"error":"too many requests at once"}]"#;
    client.check(r#"[0,{"no":-1,"type":"echo"}]"#, refused).await;
    served.fake.gate.add_permits(connection::REQUESTS_MAX);
    for _ in 0..connection::REQUESTS_MAX {
        assert!(client.receive().await.contains("waited"));
    }
}

#[tokio::test]
async fn only_so_many_connections_are_open() {
    let log = Log::quiet();
    let served = Served::start_with(Access::default(), &log, LONG, 1).await;
    let mut first = served.client().await;
    first.check("[2]", "[3]").await;
    served.client().await.is_at_end().await;
    first.check("[2]", "[3]").await;
    drop(first);
    served.fake.closed(1).await;
}

#[tokio::test]
async fn messages_that_are_not_whole_share_their_memory() {
    let log = Log::quiet();
    let server = Server::bind("127.0.0.1", 0, Access::default(), &log).await.unwrap();
    let memory = Memory::new(4 * FREE_BYTES);
    let served = Served::serve(server.with_memory(memory), LONG);
    let piece = vec![b' '; 3 * FREE_BYTES];
    let mut first = served.client().await;
    first.send_bytes(&piece).await;
    // The server has read all of it: it reads in order and answers what follows.
    first.check("[2]", "[3]").await;
    first.send_bytes(&piece).await;
    let mut second = served.client().await;
    second.send_bytes(&piece).await;
    second.send_bytes(&piece).await;
    let refused = r#"[1,{"no":0,"error":"too many long messages at once"}]"#;
    assert_eq!(second.receive().await, refused);
    second.is_at_end().await;
    // Short messages need none of it.
    served.client().await.check("[2]", "[3]").await;
    first.check("[2]", "[3]").await;
}
