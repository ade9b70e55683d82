//! A proxy to the database that shifts the server's clock in its answers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use super::free_port;

/// How the server's time is encoded in an answer: a date of that name.
const FIELD: &[u8] = b"\x09localTime\0";

/// Starts the proxy; returns `mongohost` of a config for it.
pub(crate) fn skewed(mongohost: &str, ahead_ms: i64) -> String {
    let target = mongohost.trim_start_matches("mongodb://").rsplit('@').next().unwrap();
    let target = target.split(['/', ',', '?']).next().unwrap().to_owned();
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let _ = pass(client, &target, ahead_ms);
        }
    });
    format!("mongodb://127.0.0.1:{port}/?directConnection=true")
}

fn pass(client: TcpStream, target: &str, ahead_ms: i64) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    let (mut asks, mut asked) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut asks, &mut asked);
        let _ = asked.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let _ = answers(&server, &client, ahead_ms);
        let _ = client.shutdown(Shutdown::Both);
    });
    Ok(())
}

/// Each message starts with its length.
fn answers(mut server: &TcpStream, mut client: &TcpStream, ahead_ms: i64) -> io::Result<()> {
    loop {
        let mut head = [0; 4];
        server.read_exact(&mut head)?;
        let mut message = vec![0; usize::try_from(u32::from_le_bytes(head)).unwrap()];
        message[..4].copy_from_slice(&head);
        server.read_exact(&mut message[4..])?;
        if let Some(at) = message.windows(FIELD.len()).position(|part| part == FIELD) {
            let at = at + FIELD.len();
            let time = i64::from_le_bytes(message[at..at + 8].try_into().unwrap()) + ahead_ms;
            message[at..at + 8].copy_from_slice(&time.to_le_bytes());
        }
        client.write_all(&message)?;
    }
}
