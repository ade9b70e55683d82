//! A very small HTTP server on a local port, which passes every request to the test.

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use windlass_test_kit::wait::in_time;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Counts connections from 0; equal for requests on the same one.
    pub(crate) connection: usize,
}

pub(crate) enum Reply {
    /// Sent as it is.
    Raw(Vec<u8>),
    /// Nothing is sent until the client disconnects.
    Hang,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Request>,
    gone: mpsc::UnboundedReceiver<()>,
}

impl Server {
    pub(crate) async fn start(
        reply: impl Fn(&Request) -> Reply + Clone + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let (gone_sender, gone) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (reply, sender, gone) = (reply.clone(), sender.clone(), gone_sender.clone());
                tokio::spawn(async move {
                    serve(stream, connection, reply, sender).await;
                    let _ = gone.send(());
                });
            }
        });
        Server { address, requests, gone }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/jobs", self.address)
    }

    pub(crate) async fn request(&mut self) -> Request {
        in_time("a request comes", self.requests.recv()).await.unwrap()
    }

    /// Whether another request has come.
    pub(crate) fn was_asked(&mut self) -> bool {
        self.requests.try_recv().is_ok()
    }

    /// Waits until a client has closed its connection.
    pub(crate) async fn client_gone(&mut self) {
        in_time("the client goes away", self.gone.recv()).await.unwrap();
    }
}

pub(crate) fn answer(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Reply::Raw([head.as_bytes(), body].concat())
}

async fn serve(
    stream: TcpStream,
    connection: usize,
    reply: impl Fn(&Request) -> Reply,
    sender: mpsc::UnboundedSender<Request>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await {
        let reply = reply(&request);
        let _ = sender.send(request);
        match reply {
            Reply::Raw(bytes) => {
                if stream.get_mut().write_all(&bytes).await.is_err() {
                    return;
                }
                // A reply that announces more than it has ends the connection.
                if bytes.starts_with(b"HTTP/1.1 200 Broken") {
                    return;
                }
            }
            Reply::Hang => {
                let _ = stream.read(&mut [0; 1]).await;
                return;
            }
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>, connection: usize) -> Option<Request> {
    let line = read_line(stream).await?;
    let mut headers = HashMap::new();
    loop {
        let header = read_line(stream).await?;
        let Some((name, value)) = header.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let bytes = headers.get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { line, headers, body, connection })
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await.ok().filter(|bytes| *bytes > 0)?;
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}
