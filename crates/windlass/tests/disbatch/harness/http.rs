//! Requests as they go over the wire: a small blocking client that sends exactly what it is told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::PATIENCE;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(':').unwrap());
        let headers: Vec<(String, String)> =
            headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
        let mut answer = Self { status, headers, body: Vec::new() };
        let rest = &bytes[end + 4..];
        answer.body = match answer.header("transfer-encoding") {
            Some("chunked") => dechunked(rest),
            _ => rest.to_vec(),
        };
        if let Some(length) = answer.header("content-length") {
            assert_eq!(length, answer.body.len().to_string(), "the body has its length");
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The same answer, if it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let kind = self.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/json"), "{} {kind} {}", self.status, self.text());
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// The JSON of a 200.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        self.expect(200).json()
    }

    /// The JSON of a 400.
    #[track_caller]
    pub(crate) fn bad(self) -> Value {
        self.expect(400).json()
    }
}

fn dechunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(str::from_utf8(&rest[..line]).unwrap().trim(), 16);
        let size = size.unwrap();
        rest = &rest[line + 2..];
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

/// Asks one server; each request has a connection of its own.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    port: u16,
    headers: Vec<(String, String)>,
}

impl Http {
    pub(crate) fn new(port: u16) -> Self {
        Self { port, headers: Vec::new() }
    }

    /// The same, with a header in every request.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name.to_owned(), value.to_owned()));
        other
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes and reads until the server closes. It may refuse before all is sent.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::parse(&answer)
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<(&str, &str)> = own.chain(headers.iter().copied()).collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.port));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || method == "POST" {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        self.raw(&[request.as_bytes(), body].concat())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    /// A GET with a JSON body, as the original's client sends its searches.
    pub(crate) fn get_json(&self, path: &str, body: &Value) -> Answer {
        self.ask("GET", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, "application/json", &body.to_string())
    }

    pub(crate) fn post_form(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.post_text(path, "application/x-www-form-urlencoded", &form(fields))
    }

    pub(crate) fn post_text(&self, path: &str, kind: &str, body: &str) -> Answer {
        self.ask("POST", path, &[("Content-Type", kind)], body.as_bytes())
    }
}

/// `a=1&b=2` with everything encoded that could be misread.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = fields.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The hex digits of an id in an answer, as text or as `{"$oid": ..}`.
#[track_caller]
pub(crate) fn oid(value: &Value) -> String {
    let text = value.as_str().or_else(|| value["$oid"].as_str());
    text.unwrap_or_else(|| panic!("no id: {value}")).to_owned()
}
