//! A small blocking HTTP/1.1 client: keep-alive, pipelining, raw bytes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use serde_json::Value;

use crate::wait::PATIENCE;

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    /// The same answer, if it has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/json"), "{} {kind} {}", self.status, self.text());
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// The JSON of a 200.
    #[track_caller]
    pub fn ok(self) -> Value {
        self.expect(200).json()
    }

    /// The JSON of a 400.
    #[track_caller]
    pub fn bad(self) -> Value {
        self.expect(400).json()
    }

    /// The stable word of an error answer.
    #[track_caller]
    pub fn error_code(&self) -> String {
        let json = self.json();
        assert!(json["error"]["message"].is_string(), "an error has a message: {json}");
        json["error"]["code"].as_str().unwrap_or_else(|| panic!("no code in {json}")).to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

pub struct Connection {
    stream: BufReader<TcpStream>,
    /// The API key of all requests but raw ones.
    key: Option<String>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        Connection::over(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// Uses an open connection.
    pub fn over(stream: TcpStream) -> io::Result<Connection> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), key: None })
    }

    /// Sends a key with each request, unless that has an `Authorization` of its own.
    pub fn with_key(mut self, key: Option<&str>) -> Connection {
        self.key = key.map(str::to_owned);
        self
    }

    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        self.send(method, path, headers, body)?;
        self.receive()
    }

    /// Sends a request without waiting for its answer.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut request = self.head(method, path, headers, body.len() as u64);
        request.extend_from_slice(body);
        self.send_raw(&request)
    }

    fn head(&self, method: &str, path: &str, headers: &[(&str, &str)], length: u64) -> Vec<u8> {
        let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        match self.key.as_ref().filter(|_| !has_own) {
            None => request_head(method, path, headers, length),
            Some(key) => {
                let bearer = format!("Bearer {key}");
                let headers = [headers, &[("Authorization", bearer.as_str())]].concat();
                request_head(method, path, &headers, length)
            }
        }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a request whose body is read piece by piece.
    pub fn send_stream(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: (u64, &mut dyn Read),
    ) -> io::Result<()> {
        self.send_raw(&self.head(method, path, headers, body.0))?;
        let copied = io::copy(body.1, self.stream.get_mut())?;
        assert_eq!(copied, body.0, "the body has the announced length");
        Ok(())
    }

    /// Closes the sending side; answers can still be received.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.stream.get_mut().shutdown(Shutdown::Write)
    }

    pub fn receive(&mut self) -> io::Result<Response> {
        let (status, headers) = self.receive_head()?;
        let mut response = Response { status, headers, body: Vec::new() };
        let mut body = Vec::new();
        self.receive_body(&response, &mut body)?;
        response.body = body;
        Ok(response)
    }

    /// Receives an answer whose body goes to `sink`.
    pub fn receive_into(&mut self, sink: &mut dyn Write) -> io::Result<Response> {
        let (status, headers) = self.receive_head()?;
        let response = Response { status, headers, body: Vec::new() };
        self.receive_body(&response, sink)?;
        Ok(response)
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        until_closed(&mut self.stream)
    }

    /// Status and headers only; `line` then reads an endless body such as events.
    pub fn receive_head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| malformed(format!("status line {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status, headers));
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| malformed(format!("header {line:?}")))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn receive_body(&mut self, response: &Response, sink: &mut dyn Write) -> io::Result<()> {
        if matches!(response.status, 100..=199 | 204 | 304) {
            return Ok(());
        }
        if response.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            return self.receive_chunks(sink);
        }
        let length = response.header("content-length").and_then(|value| value.parse().ok());
        match length {
            Some(length) => copy_exactly(&mut self.stream, length, sink),
            None => io::copy(&mut self.stream, sink).map(drop),
        }
    }

    fn receive_chunks(&mut self, sink: &mut dyn Write) -> io::Result<()> {
        loop {
            let size = self.line()?;
            let size = size.split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size.trim(), 16)
                .map_err(|_| malformed(format!("chunk size {size:?}")))?;
            copy_exactly(&mut self.stream, size, sink)?;
            let after = self.line()?;
            if !after.is_empty() {
                return Err(malformed(format!("{after:?} behind a chunk")));
            }
            if size == 0 {
                return Ok(());
            }
        }
    }
}

/// Everything until the other side closes or resets the connection.
///
/// # Panics
///
/// If it neither sends nor closes.
#[track_caller]
pub fn until_closed(stream: &mut impl Read) -> Vec<u8> {
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert!(!is_silence(&error), "it is still open after {} bytes", rest.len());
    }
    rest
}

/// Whether this is a timeout.
pub fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn request_head(method: &str, path: &str, headers: &[(&str, &str)], length: u64) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: localhost\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if length > 0 || method != "GET" {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

fn copy_exactly(from: &mut impl Read, length: u64, sink: &mut dyn Write) -> io::Result<()> {
    let copied = io::copy(&mut from.take(length), sink)?;
    if copied == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
