//! A client of the door.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(super) const SOME_BYTES: usize = 1024 * 1024;

pub(super) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Client {
        Client { stream: TcpStream::connect(address).await.unwrap(), received: Vec::new() }
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.send_bytes(text.as_bytes()).await;
    }

    pub(super) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next complete reply.
    pub(super) async fn reply(&mut self) -> String {
        loop {
            if let Some(length) = reply_length(&self.received) {
                let rest = self.received.split_off(length);
                let reply = std::mem::replace(&mut self.received, rest);
                return String::from_utf8(reply).unwrap();
            }
            let read = self.stream.read_buf(&mut self.received).await.unwrap();
            assert!(read > 0, "the connection ended in {:?}", text(&self.received));
        }
    }

    /// The body of the next reply, which must be a success.
    pub(super) async fn body(&mut self) -> String {
        let reply = self.reply().await;
        assert!(reply.starts_with("200 OK\r\n"), "{reply:?}");
        reply.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Reads a part of a large reply.
    pub(super) async fn some(&mut self) {
        self.stream.read_exact(&mut vec![0; SOME_BYTES]).await.unwrap();
    }

    /// Everything up to the end of the connection.
    pub(super) async fn rest(&mut self) -> String {
        self.stream.read_to_end(&mut self.received).await.unwrap();
        text(&std::mem::take(&mut self.received))
    }

    /// Returns when the door has ended the connection, in whatever way.
    pub(super) async fn ended(&mut self) {
        let _ = self.stream.read_to_end(&mut self.received).await;
    }

    /// Closes the sending side.
    pub(super) async fn half_close(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Disconnects without closing properly.
    pub(super) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn reply_length(bytes: &[u8]) -> Option<usize> {
    let head = text(bytes);
    let (head, _) = head.split_once("\r\n\r\n")?;
    let (_, length) = head.rsplit_once("Content-Length: ").unwrap();
    let whole = head.len() + 4 + length.parse::<usize>().unwrap();
    (bytes.len() >= whole).then_some(whole)
}
