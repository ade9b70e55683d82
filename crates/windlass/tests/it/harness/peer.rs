//! A small HTTP server of the test, for `http` handlers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as the peer received it.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Answers every request with `answer`: status, content type, body. Lives until the test ends.
pub(crate) struct Peer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

type ResponseParts = (u16, &'static str, String);

impl Peer {
    pub(crate) fn start(
        answer: impl Fn(&ReceivedRequest) -> ResponseParts + Send + Sync + 'static,
    ) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let (answer, book) = (Arc::new(answer), Arc::clone(&received));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, book) = (Arc::clone(&answer), Arc::clone(&book));
                thread::spawn(move || serve(stream, &book, answer.as_ref()));
            }
        });
        Peer { address, received }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().expect("no server thread panics").clone()
    }
}

fn serve(
    stream: TcpStream,
    book: &Mutex<Vec<ReceivedRequest>>,
    answer: &(dyn Fn(&ReceivedRequest) -> ResponseParts + Sync),
) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream) {
        book.lock().expect("no server thread panics").push(request.clone());
        let (status, kind, body) = answer(&request);
        let head = format!(
            "HTTP/1.1 {status} Answer\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let first = read_line(stream)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = ReceivedRequest { method, path, headers: Vec::new(), body: Vec::new() };
    loop {
        let line = read_line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        request.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    match request.header("content-length").and_then(|length| length.parse().ok()) {
        Some(length) => {
            request.body = vec![0; length];
            stream.read_exact(&mut request.body).ok()?;
        }
        None if request.header("transfer-encoding").is_some() => read_chunks(stream, &mut request)?,
        None => {}
    }
    Some(request)
}

fn read_chunks(stream: &mut BufReader<TcpStream>, request: &mut ReceivedRequest) -> Option<()> {
    loop {
        let size = usize::from_str_radix(read_line(stream)?.trim(), 16).ok()?;
        let mut piece = vec![0; size];
        stream.read_exact(&mut piece).ok()?;
        request.body.extend(piece);
        read_line(stream)?;
        if size == 0 {
            return Some(());
        }
    }
}

fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
}
