//! A plain HTTP/1.1 client that can also misbehave.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use windlass_test_kit::wait::in_time;

pub struct Client(BufReader<TcpStream>);

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lead = format!("\n{name}: ");
        let start = self.head.find(&lead)? + lead.len();
        self.head[start..].split("\r\n").next()
    }

    /// Status, code and field of a refusal.
    pub fn refusal(&self) -> (u16, String, Option<String>) {
        let json = self.json();
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let error = json["error"].as_object().unwrap_or_else(|| panic!("no error in {json}"));
        assert!(error["message"].as_str().unwrap().len() > 10, "{json}");
        let text = |name| error.get(name).and_then(Value::as_str).map(str::to_owned);
        (self.status, text("code").unwrap(), text("field"))
    }

    pub fn ids(&self) -> Vec<String> {
        let json = self.json();
        let ids = json["ids"].as_array().unwrap_or_else(|| panic!("{self:?}"));
        ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    }
}

/// A request with a length; `headers` are complete lines such as `content-type: text/plain`.
pub fn request(line: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut request = format!("{line} HTTP/1.1\r\nhost: localhost\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    request
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    pub async fn call(&mut self, request: &[u8]) -> Response {
        self.send(request).await;
        self.receive().await.expect("an answer")
    }

    /// The next answer; `None` if the server has closed the connection instead.
    pub async fn receive(&mut self) -> Option<Response> {
        in_time("an answer or the end comes", self.read()).await
    }

    async fn read(&mut self) -> Option<Response> {
        let mut head = String::new();
        loop {
            let read = self.0.read_line(&mut head).await.ok()?;
            if read == 0 {
                return None;
            }
            if head.ends_with("\r\n\r\n") {
                break;
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Response { status, head: head.to_lowercase(), body: Vec::new() };
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            answer.body.resize(length, 0);
            self.0.read_exact(&mut answer.body).await.ok()?;
        }
        Some(answer)
    }

    /// Reads until the server closes the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = in_time("the connection is closed", self.0.read_to_end(&mut rest)).await;
        rest
    }
}
