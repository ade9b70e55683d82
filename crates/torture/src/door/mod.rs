//! The doors, as clients and workers use them: each request is written down before it is sent, and
//! its answer when it has arrived.
//!
//! | module | owns |
//! |---|---|
//! | `request` | operations as HTTP requests |
//! | `flaw` | requests that must be refused |
//! | `answer` | answers as outcomes |
//! | `bedrock` | all of this for the Bedrock door |
//! | `time` | times of the wall clock |

mod answer;
mod bedrock;
mod flaw;
mod request;
pub(crate) mod time;

use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use windlass_proof::history::{Answer, Event, JobId, Operation, Outcome, State};
use windlass_test_kit::http::{Connection, Response};

use crate::site::{Site, Witness};

use bedrock::Wire;
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
    wires: Vec<Option<(u64, Wire)>>,
    rng: fastrand::Rng,
}

/// An answer and its body.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) body: Value,
    /// What is wrong with an answer that no healthy daemon gives.
    pub(crate) flaw: Option<String>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(site: &'a Site, handlers: &'a Handlers, who: &str) -> Result<Caller<'a>> {
        let connections = (0..site.daemon_count()).map(|_| None).collect();
        let wires = (0..site.daemon_count()).map(|_| None).collect();
        let rng =
            fastrand::Rng::with_seed(who.bytes().fold(site.seed, |mixed, byte| {
                mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
            }));
        let witness = site.witness(who)?;
        Ok(Caller { site, handlers, who: who.to_owned(), witness, connections, wires, rng })
    }

    pub(crate) fn witness(&mut self) -> &mut Witness<'a> {
        &mut self.witness
    }

    /// Sends a request to one of the daemons. `None` if that does not accept connections: then
    /// nothing was sent or written down.
    pub(crate) fn perform(&mut self, operation: &Operation) -> Result<Option<Reply>> {
        let daemon = self.rng.usize(..self.connections.len());
        self.perform_at(daemon, operation)
    }

    pub(crate) fn perform_at(
        &mut self,
        daemon: usize,
        operation: &Operation,
    ) -> Result<Option<Reply>> {
        if let Some(request) = bedrock::of(operation) {
            return self.perform_over_bedrock(daemon, operation, &request);
        }
        let Some((boot, mut connection)) = self.connection(daemon) else { return Ok(None) };
        // Large ones take time to build, and what is written down as sent should be under way.
        let request = request::of(operation, self.handlers);
        let request = request.with_context(|| format!("no door takes {operation:?}"))?;
        let (op, sent_at) = self.sent(daemon, operation)?;
        let reply = match call(&mut connection, &request) {
            Ok(response) => {
                self.keep(daemon, boot, connection, &response);
                answer::of(operation, &response)
            }
            Err(error) => unknown(&error),
        };
        self.answered(op, sent_at, reply)
    }

    fn perform_over_bedrock(
        &mut self,
        daemon: usize,
        operation: &Operation,
        request: &str,
    ) -> Result<Option<Reply>> {
        let boot = self.site.boots(daemon);
        let known = self.wires[daemon].take().filter(|(known, _)| *known == boot);
        let known = known.map(|(_, wire)| wire);
        let Some(mut wire) = known.or_else(|| Wire::connect(self.site.bedrock(daemon))) else {
            return Ok(None);
        };
        let (op, sent_at) = self.sent(daemon, operation)?;
        let reply = match wire.call(request) {
            Ok((code, body)) => {
                // After other errors, it closes the connection.
                self.wires[daemon] = (code != 400).then_some((boot, wire));
                bedrock::answer(operation, code, &body)
            }
            Err(error) => unknown(&error),
        };
        self.answered(op, sent_at, reply)
    }

    /// Writes a request down. Returns its number, and when that was.
    fn sent(&mut self, daemon: usize, operation: &Operation) -> Result<(u64, u64)> {
        let (op, at_ns) = (self.site.next_op(), self.site.now_ns());
        let via = Some(self.site.daemon_name(daemon).to_owned());
        let (who, what) = (self.who.clone(), operation.clone());
        self.witness.record(&Event::Sent { op, who, via, what })?;
        Ok((op, at_ns))
    }

    fn answered(&mut self, op: u64, sent_at: u64, reply: Reply) -> Result<Option<Reply>> {
        if let Some(flaw) = reply.flaw.as_ref().filter(|_| !self.site.had_fault_since(sent_at)) {
            self.site.problem(format!("{}, request {op}: {flaw}", self.who));
        }
        if matches!(reply.answer, Answer::Unknown { .. }) {
            self.site.tally.unknown.fetch_add(1, Ordering::Relaxed);
        }
        self.witness.record(&Event::Answered { op, answer: reply.answer.clone() })?;
        Ok(Some(reply))
    }

    /// Writes down that jobs of a tenant were seen in a state in which they have ended, by a
    /// question that was sent at this time.
    pub(crate) fn looked(&mut self, at_ns: u64, job: (&str, JobId), state: State) -> Result<()> {
        let (op, who, via) = (self.site.next_op(), self.who.clone(), None);
        let what = Operation::Look { tenant: job.0.to_owned(), job: job.1, state };
        self.witness.record_at(at_ns, &Event::Sent { op, who, via, what })?;
        let answer = Answer::Done(Outcome::Nothing);
        self.witness.record(&Event::Answered { op, answer })
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
        known.or_else(|| Some((boot, connect(self.site, daemon)?)))
    }
}

/// An open connection whose answers are waited for in bounded time.
pub(crate) fn connect(site: &Site, daemon: usize) -> Option<Connection> {
    let stream = TcpStream::connect_timeout(&site.address(daemon), CONNECT_TIME_MAX).ok()?;
    let same = stream.try_clone().ok()?;
    let connection = Connection::over(stream).ok()?.with_key(site.key(daemon).as_deref());
    same.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
    same.set_write_timeout(Some(ANSWER_TIME_MAX)).ok()?;
    Some(connection)
}

fn unknown(error: &std::io::Error) -> Reply {
    Reply { answer: Answer::Unknown { why: error.to_string() }, body: Value::Null, flaw: None }
}

fn call(connection: &mut Connection, request: &Request) -> std::io::Result<Response> {
    let headers: Vec<(&str, &str)> =
        request.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    connection.call(request.method, &request.path, &headers, &request.body)
}
