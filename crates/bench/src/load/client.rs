//! The client of every server here: HTTP/1.1 over keep-alive connections, without an allocation per
//! request, so that it uses as little of the machine as possible. Bedrock's replies have the same
//! form except for their first line.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Initial size; grows with the answers.
const BUFFER_BYTES: usize = 4 * 1024;
/// A server that does not answer for this long has failed.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// One thread for the client, so that the servers have the rest of the machine.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the client's runtime cannot be started")
}

/// A complete request with lines, head and body in one buffer.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    post_as("text/plain", path, body)
}

pub(crate) fn post_json(path: &str, body: &str) -> Vec<u8> {
    post_as("application/json", path, body.as_bytes())
}

fn post_as(kind: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(address).await.context("the server does not listen")?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Sends a request and reads the whole answer; returns the body. Anything but 2xx is an error.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.send(request).await?;
        self.receive().await
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(request).await?)
    }

    /// The body of the answer to the request sent last.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<&[u8]> {
        let mut filled = 0;
        let mut whole = None;
        while whole.is_none_or(|(_, end)| filled < end) {
            if filled == self.buffer.len() {
                ensure!(filled < ANSWER_BYTES_MAX, "the answer is too long");
                self.buffer.resize(filled * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[filled..]).await?;
            ensure!(read > 0, "the server hung up in the middle of an answer");
            filled += read;
            if whole.is_none() {
                whole = extent(&self.buffer[..filled])?;
            }
        }
        let (body, end) = whole.expect("the loop ends when the extent is known");
        ensure!(filled == end, "the server sent more than one answer");
        if !is_success(&self.buffer[..end]) {
            bail!("the server refused: {}", String::from_utf8_lossy(&self.buffer[..end]));
        }
        Ok(&self.buffer[body..end])
    }
}

/// Whether the code in the first line is 2xx.
fn is_success(answer: &[u8]) -> bool {
    answer.strip_prefix(b"HTTP/1.1 ").unwrap_or(answer).starts_with(b"2")
}

/// Where the body of an answer starts and ends, once its head is complete.
fn extent(answer: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    const NAME: &[u8] = b"content-length:";
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut lines = answer[..head].split(|byte| *byte == b'\n');
    let length = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then_some(value)
    });
    let length = length.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    let length: usize = length.context("the answer does not say how long it is")?;
    Ok(Some((head + 4, head + 4 + length)))
}

/// Requests per second from `connections` that each send the next one after the answer.
pub(crate) async fn load(
    address: SocketAddr,
    connections: usize,
    request: &[u8],
    time: Duration,
) -> anyhow::Result<f64> {
    let request: Arc<[u8]> = request.into();
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in open {
        let request = request.clone();
        tasks.spawn(async move {
            let mut answered = 0u64;
            while began.elapsed() < time {
                connection.exchange(&request).await?;
                answered += 1;
            }
            anyhow::Ok(answered)
        });
    }
    let answered = tokio::time::timeout(time + ANSWER_PATIENCE, tasks.join_all()).await;
    let answered = answered.context("the server no longer answers")?;
    let elapsed = began.elapsed().as_secs_f64();
    let total: u64 = answered.into_iter().sum::<anyhow::Result<u64>>()?;
    Ok(total as f64 / elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A server that answers everything with these pieces, each sent separately.
    async fn answered(pieces: &'static [&'static str]) -> anyhow::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut connection = Connection::open(address).await?;
        Ok(connection.exchange(&get("/")).await?.to_vec())
    }

    #[tokio::test]
    async fn an_answer_is_put_together_from_its_pieces() {
        let pieces = &["HTTP/1.1 201 Created\r\nContent-", "Length: 5\r\n\r\n12", "345"];
        assert_eq!(answered(pieces).await.unwrap(), b"12345");
        let empty = &["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"];
        assert_eq!(answered(empty).await.unwrap(), b"");
        let bedrock = &["200 OK\r\nContent-Length: 2\r\n\r\n", "{}"];
        assert_eq!(answered(bedrock).await.unwrap(), b"{}");
    }

    #[tokio::test]
    async fn refusals_and_broken_answers_are_errors() {
        let refusal = &["HTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\nbusy"];
        assert!(answered(refusal).await.unwrap_err().to_string().contains("busy"));
        let refusal = &["404 No job found\r\nContent-Length: 0\r\n\r\n"];
        assert!(answered(refusal).await.unwrap_err().to_string().contains("No job found"));
        assert!(answered(&["HTTP/1.1 200 OK\r\n\r\n"]).await.is_err());
        assert!(answered(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"]).await.is_err());
    }
}
