//! A proxy to the database that can be cut and restored, so that it fails for one test alone.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::free_port;

#[derive(Default)]
struct State {
    cut: bool,
    open: Vec<TcpStream>,
}

pub(crate) struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    /// Forwards everything to the first server of this address.
    pub(crate) fn to(mongohost: &str) -> Self {
        let target = mongohost.trim_start_matches("mongodb://").rsplit('@').next().unwrap();
        let target = target.split(['/', ',', '?']).next().unwrap().to_owned();
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = pass(stream, &target, &shared);
            }
        });
        Self { port, state }
    }

    /// `mongohost` of a config for this proxy.
    pub(crate) fn mongohost(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Closes every connection and refuses new ones.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.cut = true;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn mend(&self) {
        self.state.lock().unwrap().cut = false;
    }
}

fn pass(client: TcpStream, target: &str, state: &Mutex<State>) -> io::Result<()> {
    let mut state = state.lock().unwrap();
    if state.cut {
        return Ok(());
    }
    let server = TcpStream::connect(target)?;
    copy(client.try_clone()?, server.try_clone()?);
    copy(server.try_clone()?, client.try_clone()?);
    state.open.extend([client, server]);
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}
