//! A small HTTP server of the test, for handlers of the language `http`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as the peer saw it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Answers every request by `answer`: status, content type, body. Lives until the test ends.
pub(crate) struct Peer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

type Answer = (u16, &'static str, String);

impl Peer {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, book) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, book) = (Arc::clone(&answer), Arc::clone(&book));
                thread::spawn(move || serve(stream, &book, answer.as_ref()));
            }
        });
        Peer { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no server thread panics").clone()
    }
}

fn serve(stream: TcpStream, book: &Mutex<Vec<Asked>>, answer: &(dyn Fn(&Asked) -> Answer + Sync)) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read_request(&mut stream) {
        book.lock().expect("no server thread panics").push(asked.clone());
        let (status, kind, body) = answer(&asked);
        let head = format!(
            "HTTP/1.1 {status} Answer\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_err() {
            return;
        }
    }
}

fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let first = read_line(stream)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut asked = Asked { method, path, headers: Vec::new(), body: Vec::new() };
    loop {
        let line = read_line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        asked.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    match asked.header("content-length").and_then(|length| length.parse().ok()) {
        Some(length) => {
            asked.body = vec![0; length];
            stream.read_exact(&mut asked.body).ok()?;
        }
        None if asked.header("transfer-encoding").is_some() => read_chunks(stream, &mut asked)?,
        None => {}
    }
    Some(asked)
}

fn read_chunks(stream: &mut BufReader<TcpStream>, asked: &mut Asked) -> Option<()> {
    loop {
        let size = usize::from_str_radix(read_line(stream)?.trim(), 16).ok()?;
        let mut piece = vec![0; size];
        stream.read_exact(&mut piece).ok()?;
        asked.body.extend(piece);
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
