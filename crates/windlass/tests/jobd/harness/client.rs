//! A client that knows only the contract: JSON and the byte 0x04.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::{PATIENCE, until_some};

/// Ends each message.
const END: u8 = 4;

/// The bytes of an error that belongs to no request.
pub(crate) fn error_zero(text: &str) -> String {
    format!(r#"[1,{{"no":0,"error":{}}}]"#, json!(text))
}

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    no: i64,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        Self::of(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }

    /// The other end of a connection that a daemon opened to us.
    pub(crate) fn accept(listener: &TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let (stream, _) = until_some("a daemon connects", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        Self::of(stream)
    }

    fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new(), no: 0 }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Whether the other side accepted it.
    pub(crate) fn try_send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Gives up soon if the other side reads nothing.
    pub(crate) fn short_patience(&mut self) {
        self.stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    }

    pub(crate) fn send(&mut self, message: &str) {
        self.send_bytes(&[message.as_bytes(), &[END]].concat());
    }

    pub(crate) fn send_json(&mut self, message: &Value) {
        self.send(&message.to_string());
    }

    /// The next message, or nothing if the other side closed.
    pub(crate) fn try_receive(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.unread.iter().position(|byte| *byte == END) {
                let rest = self.unread.split_off(at + 1);
                let mut message = std::mem::replace(&mut self.unread, rest);
                message.pop();
                return Some(String::from_utf8(message).expect("messages are UTF-8"));
            }
            let mut piece = [0; 65536];
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    assert!(self.unread.is_empty(), "half a message: {:?}", self.unread);
                    return None;
                }
                Ok(length) => self.unread.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // A read with a time-out is not restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no message: {error}"),
            }
        }
    }

    pub(crate) fn receive(&mut self) -> String {
        self.try_receive().expect("a message, not a close")
    }

    /// The next message that is not a ping; pings are answered.
    pub(crate) fn receive_past_pings(&mut self) -> String {
        loop {
            let message = self.receive();
            if message != "[2]" {
                return message;
            }
            self.send("[3]");
        }
    }

    pub(crate) fn receive_json(&mut self) -> Value {
        let message = self.receive();
        serde_json::from_str(&message).unwrap_or_else(|error| panic!("{error}: {message}"))
    }

    /// Sends one message and returns the next one unchanged.
    pub(crate) fn exchange(&mut self, message: &str) -> String {
        self.send(message);
        self.receive()
    }

    /// Sends a request without waiting; returns its number.
    pub(crate) fn begin(&mut self, kind: &str, data: Value) -> i64 {
        self.no += 1;
        let mut request = json!({"no": self.no, "type": kind});
        if !data.is_null() {
            request["data"] = data;
        }
        self.send_json(&json!([0, request]));
        self.no
    }

    /// The answer to the request of this number: the object with `no`, and `data` or `error`.
    pub(crate) fn answer(&mut self, no: i64) -> Value {
        let message = self.receive_json();
        assert_eq!(message[0], 1, "{message}");
        assert_eq!(message[1]["no"], no, "{message}");
        message[1].clone()
    }

    fn ask_whole(&mut self, kind: &str, data: Value) -> Value {
        let no = self.begin(kind, data);
        self.answer(no)
    }

    /// The data of the answer.
    pub(crate) fn ask(&mut self, kind: &str, data: Value) -> Value {
        let answer = self.ask_whole(kind, data);
        assert!(answer.get("error").is_none(), "{kind}: {answer}");
        answer["data"].clone()
    }

    /// The text of the refusal.
    pub(crate) fn refused(&mut self, kind: &str, data: Value) -> String {
        let answer = self.ask_whole(kind, data);
        assert!(answer.get("data").is_none(), "{kind}: {answer}");
        answer["error"].as_str().unwrap_or_else(|| panic!("{kind}: {answer}")).to_owned()
    }

    pub(crate) fn ok(&mut self, kind: &str, data: Value) {
        assert_eq!(self.ask(kind, data), "ok");
    }

    /// Nothing arrived unasked: the next message is the answer to a ping.
    pub(crate) fn nothing_came(&mut self) {
        assert_eq!(self.exchange("[2]"), "[3]");
    }

    pub(crate) fn end_writing(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Waits for the other side to close without sending anything more.
    pub(crate) fn closed(&mut self) {
        assert_eq!(self.try_receive(), None);
    }
}
