//! Connections over loopback, with a handler made for the tests.

mod access;
mod asking;
mod bounds;
mod serving;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::log::Log;
use crate::wire::{END, Json};

/// Longer than anything takes here.
const LONG: Duration = windlass_test_kit::wait::PATIENCE;

/// Bytes of something big to read.
const BIG: usize = 8 * 1024 * 1024;

/// Answers a few requests, and counts.
struct Fake {
    handled: AtomicUsize,
    closed: Semaphore,
    /// What `wait` waits for.
    gate: Semaphore,
    /// `wait`s that have begun.
    waiting: Semaphore,
}

impl Fake {
    fn new() -> Arc<Fake> {
        Arc::new(Fake {
            handled: AtomicUsize::new(0),
            closed: Semaphore::new(0),
            gate: Semaphore::new(0),
            waiting: Semaphore::new(0),
        })
    }

    fn handled(&self) -> usize {
        self.handled.load(Ordering::SeqCst)
    }

    /// Waits until `count` peers have been reported as closed.
    async fn closed(&self, count: u32) {
        within(self.closed.acquire_many(count)).await.unwrap().forget();
    }

    /// Waits until `count` requests wait.
    async fn waiting(&self, count: u32) {
        within(self.waiting.acquire_many(count)).await.unwrap().forget();
    }
}

#[async_trait]
impl Handler for Fake {
    async fn handle(&self, peer: &Peer, kind: &str, data: Json) -> Result<Json, String> {
        self.handled.fetch_add(1, Ordering::SeqCst);
        match kind {
            "echo" => Ok(data),
            "fail" => Err("it failed".to_owned()),
            "wait" => {
                self.waiting.add_permits(1);
                self.gate.acquire().await.unwrap().forget();
                Ok("waited".into())
            }
            "ask back" => peer.ask("name", None).await.map_err(|error| error.to_string()),
            "big" => {
                // Built by hand for speed.
                peer.send(vec![b'x'; BIG]);
                Ok("sent".into())
            }
            other => Err(format!("unknown request type: '{other}'")),
        }
    }

    fn closed(&self, _peer: &Peer) {
        self.closed.add_permits(1);
    }
}

/// A server with the fake behind it.
struct Served {
    addr: SocketAddr,
    fake: Arc<Fake>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    async fn start(access: Access) -> Served {
        Served::start_with(access, &Log::quiet(), LONG, usize::MAX >> 4).await
    }

    async fn start_with(access: Access, log: &Log, grace: Duration, connections: usize) -> Served {
        let server = Server::bind("127.0.0.1", 0, access, log).await.unwrap();
        Served::serve(server.with_connections_max(connections), grace)
    }

    fn serve(server: Server, grace: Duration) -> Served {
        let (addr, fake) = (server.addr().unwrap(), Fake::new());
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.serve(fake.clone(), stop.clone(), grace));
        Served { addr, fake, stop, task }
    }

    async fn client(&self) -> Client {
        Client::new(TcpStream::connect(self.addr).await.unwrap())
    }

    async fn ended(self) {
        within(self.task).await.unwrap();
    }
}

/// The other side of the connection, as raw bytes.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(stream: TcpStream) -> Client {
        Client(BufReader::new(stream))
    }

    async fn accept(listener: &TcpListener) -> Client {
        Client::new(within(listener.accept()).await.unwrap().0)
    }

    async fn send(&mut self, message: &str) {
        self.send_bytes(&[message.as_bytes(), &[END]].concat()).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        within(self.0.get_mut().write_all(bytes)).await.unwrap();
    }

    /// The next message; empty when the connection has ended.
    async fn receive(&mut self) -> String {
        let mut bytes = Vec::new();
        within(self.0.read_until(END, &mut bytes)).await.unwrap();
        if let Some(end) = bytes.pop() {
            assert_eq!(end, END, "a message without its end");
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Sends, and expects the answer.
    async fn check(&mut self, message: &str, answer: &str) {
        self.send(message).await;
        assert_eq!(self.receive().await, answer, "{message}");
    }

    async fn is_at_end(&mut self) {
        assert_eq!(self.receive().await, "");
    }

    /// Closes the sending side.
    async fn half_close(&mut self) {
        self.0.get_mut().shutdown().await.unwrap();
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}
