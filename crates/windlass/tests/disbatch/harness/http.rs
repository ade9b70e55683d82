//! Requests as they go over the wire: a small blocking client that sends exactly the given bytes.

use std::net::{SocketAddr, TcpStream};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use windlass_test_kit::http::Connection;

use super::{Answer, PATIENCE};

/// A client of one server; each request has its own connection.
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

    /// Sends these bytes and reads the single answer until the server closes. It may refuse before
    /// everything is sent.
    #[track_caller]
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut connection = Connection::over(self.connect()).unwrap();
        let _ = connection.send_raw(bytes);
        answer(connection)
    }

    #[track_caller]
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let host = format!("127.0.0.1:{}", self.port);
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut headers: Vec<(&str, &str)> = own.chain(headers.iter().copied()).collect();
        headers.push(("Connection", "close"));
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            headers.push(("Host", &host));
        }
        let mut connection = Connection::over(self.connect()).unwrap();
        let _ = connection.send(method, path, &headers, body);
        answer(connection)
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

#[track_caller]
fn answer(mut connection: Connection) -> Answer {
    let answer = connection.receive().unwrap_or_else(|error| panic!("no answer: {error}"));
    let rest = connection.rest();
    assert!(rest.is_empty(), "behind the answer: {:?}", String::from_utf8_lossy(&rest));
    answer
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
