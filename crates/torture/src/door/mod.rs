//! The HTTP door, as clients and workers use it: each request is written down before it is sent,
//! and its answer when it has arrived.
//!
//! | module | owns |
//! |---|---|
//! | `request` | operations as HTTP requests |
//! | `flaw` | requests that must be refused |
//! | `answer` | answers as outcomes |

mod answer;
mod flaw;
mod request;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use windlass_proof::history::{Answer, Event, Operation};
use windlass_test_kit::http::{Connection, Response};

use crate::site::{Site, Witness};

pub(crate) use request::Handlers;
use request::Request;

/// A listening daemon accepts at once, even one that is stopped.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// A request that takes longer has an unknown outcome.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A client or worker with its connections.
pub(crate) struct Caller<'a> {
    site: &'a Site,
    handlers: &'a Handlers,
    who: String,
    witness: Witness<'a>,
    /// To each daemon, with the number of its boot.
    connections: Vec<Option<(u64, Connection)>>,
    rng: fastrand::Rng,
}

/// An answer and its body.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) body: Value,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(site: &'a Site, handlers: &'a Handlers, who: &str) -> Result<Caller<'a>> {
        let connections = (0..site.daemon_count()).map(|_| None).collect();
        let rng =
            fastrand::Rng::with_seed(who.bytes().fold(site.seed, |mixed, byte| {
                mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
            }));
        let witness = site.witness(who)?;
        Ok(Caller { site, handlers, who: who.to_owned(), witness, connections, rng })
    }

    pub(crate) fn witness(&mut self) -> &mut Witness<'a> {
        &mut self.witness
    }

    /// Sends a request to one of the daemons. `None` if that does not accept connections: then
    /// nothing was sent or written down.
    pub(crate) fn perform(&mut self, operation: &Operation) -> Result<Option<Reply>> {
        let daemon = self.rng.usize(..self.connections.len());
        let Some((boot, mut connection)) = self.connection(daemon) else { return Ok(None) };
        // Large ones take time to build, and what is written down as sent should be under way.
        let request = request::of(operation, self.handlers);
        let op = self.site.next_op();
        let via = Some(self.site.daemon_name(daemon).to_owned());
        let (who, what) = (self.who.clone(), operation.clone());
        self.witness.record(&Event::Sent { op, who, via, what })?;
        let reply = match call(&mut connection, &request) {
            Ok(response) => {
                self.keep(daemon, boot, connection, &response);
                answer::of(operation, &response)
            }
            Err(error) => {
                let answer = Answer::Unknown { why: error.to_string() };
                Reply { answer, body: Value::Null }
            }
        };
        if matches!(reply.answer, Answer::Unknown { .. }) {
            self.site.tally.unknown.fetch_add(1, Ordering::Relaxed);
        }
        self.witness.record(&Event::Answered { op, answer: reply.answer.clone() })?;
        Ok(Some(reply))
    }

    /// Asks one of the daemons something that changes nothing, which is not written down.
    pub(crate) fn ask(&mut self, path: &str) -> Option<Response> {
        let daemon = self.rng.usize(..self.connections.len());
        let (boot, mut connection) = self.connection(daemon)?;
        let response = connection.call("GET", path, &[], &[]).ok()?;
        self.keep(daemon, boot, connection, &response);
        (response.status == 200).then_some(response)
    }

    pub(crate) fn ask_json(&mut self, path: &str) -> Option<Value> {
        serde_json::from_slice(&self.ask(path)?.body).ok()
    }

    /// Keeps a connection for the next request, unless the daemon says that it closes it.
    fn keep(&mut self, daemon: usize, boot: u64, connection: Connection, last: &Response) {
        let closes = last.header("connection").is_some_and(|value| value == "close");
        self.connections[daemon] = (!closes).then_some((boot, connection));
    }

    /// The connection to a daemon, to be kept after its use.
    fn connection(&mut self, daemon: usize) -> Option<(u64, Connection)> {
        let boot = self.site.boots(daemon);
        let known = self.connections[daemon].take().filter(|(known, _)| *known == boot);
        known.or_else(|| Some((boot, connect(self.site.address(daemon))?)))
    }
}

/// An open connection whose answers are waited for in bounded time.
pub(crate) fn connect(address: SocketAddr) -> Option<Connection> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX).ok()?;
    let same = stream.try_clone().ok()?;
    let connection = Connection::over(stream).ok()?;
    same.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
    same.set_write_timeout(Some(ANSWER_TIME_MAX)).ok()?;
    Some(connection)
}

fn call(connection: &mut Connection, request: &Request) -> std::io::Result<Response> {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    connection.call(request.method, &request.path, &headers, &request.body)
}
