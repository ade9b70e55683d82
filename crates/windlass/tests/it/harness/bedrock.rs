//! A small client of the Bedrock door, and a daemon that has one.
//!
//! Every reply is checked against the rules that apply to all of them: lines end in CRLF, headers
//! are sorted by name, `Content-Length` is present and comes last.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::types::FromSql;
use serde_json::Value;

use super::daemon::{Config, Daemon};
use super::log::field;
use super::store::Store;
use windlass_test_kit::wait::{PATIENCE, until_some};

/// A job id as this door shows it.
pub(crate) type JobId = i64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The same reply, which must be a success.
    #[track_caller]
    pub(crate) fn ok(self) -> Reply {
        assert_eq!(self.line, "200 OK", "{}", self.text());
        self
    }

    /// A success with an empty body.
    #[track_caller]
    pub(crate) fn done(self) {
        assert_eq!((self.line.as_str(), self.text().as_str()), ("200 OK", ""));
    }

    /// An error of a jobs command: all of it is in the first line.
    #[track_caller]
    pub(crate) fn fails(self, line: &str) {
        assert_eq!((self.line.as_str(), self.text().as_str()), (line, ""));
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e} in {:?} {:?}", self.line, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// One connection to the door.
pub(crate) struct Link {
    stream: BufReader<TcpStream>,
}

impl Link {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Link> {
        Link::over(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    pub(crate) fn over(stream: TcpStream) -> io::Result<Link> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Link { stream: BufReader::new(stream) })
    }

    #[track_caller]
    pub(crate) fn call(&mut self, verb: &str, headers: &[(&str, &str)]) -> Reply {
        self.send(verb, headers);
        self.receive()
    }

    #[track_caller]
    pub(crate) fn send(&mut self, verb: &str, headers: &[(&str, &str)]) {
        self.raw(&request(verb, headers));
    }

    #[track_caller]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.try_raw(bytes).unwrap_or_else(|e| panic!("a request can be sent: {e}"));
    }

    pub(crate) fn try_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    #[track_caller]
    pub(crate) fn receive(&mut self) -> Reply {
        self.try_receive().unwrap_or_else(|e| panic!("a reply comes: {e}"))
    }

    pub(crate) fn try_receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let mut headers = Vec::new();
        loop {
            let header = self.line()?;
            if header.is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(": ") else {
                panic!("{header:?} is no header of {line:?}");
            };
            headers.push((name.to_owned(), value.to_owned()));
        }
        check_headers(&line, &headers);
        let length = headers.last().and_then(|(_, value)| value.parse().ok());
        let mut body = vec![0; length.unwrap_or_else(|| panic!("a length in {headers:?}"))];
        self.stream.read_exact(&mut body)?;
        Ok(Reply { line, headers, body })
    }

    /// Whether the door has closed the connection and sent nothing more.
    #[track_caller]
    pub(crate) fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), "", "nothing more is sent"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
        }
    }

    /// Everything until the door closes the connection, in whatever way. Waits longer than usual:
    /// the door has its own timeouts.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let long = Some(PATIENCE * 3);
        self.stream.get_ref().set_read_timeout(long).expect("a time-out can be set");
        let mut rest = Vec::new();
        if let Err(e) = self.stream.read_to_end(&mut rest) {
            assert_eq!(e.kind(), ErrorKind::ConnectionReset, "the door closes: {e}");
        }
        rest
    }

    /// Closes the sending side; replies can still be received.
    pub(crate) fn half_close(&mut self) {
        let _ = self.stream.get_mut().shutdown(Shutdown::Write);
    }

    /// The first line of a reply; the rest stays unread.
    #[track_caller]
    pub(crate) fn line_of_reply(&mut self) -> String {
        self.line().unwrap_or_else(|e| panic!("a reply begins: {e}"))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.stream.read_until(b'\n', &mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let Some(text) = line.strip_suffix(b"\r\n") else {
            panic!("{:?} does not end in CRLF", String::from_utf8_lossy(&line));
        };
        Ok(String::from_utf8(text.to_vec()).expect("a head is UTF-8"))
    }
}

fn check_headers(line: &str, headers: &[(String, String)]) {
    let status = line.split(' ').next().unwrap_or_default();
    assert!(status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()), "{line:?}");
    let names: Vec<String> = headers.iter().map(|(name, _)| name.to_lowercase()).collect();
    assert_eq!(names.last().map(String::as_str), Some("content-length"), "{line}: {names:?}");
    let others = &names[..names.len() - 1];
    assert!(others.is_sorted(), "{line}: headers are sorted by name: {names:?}");
}

/// A request as clients send it: values escaped, no `Content-Length`.
pub(crate) fn request(verb: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{verb}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {}\r\n", escaped(value)));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// A header value with the necessary characters escaped.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('\n', "\\n");
    value.replace('\r', "\\r").replace('\t', "\\t")
}

/// A daemon with a Bedrock door, and one persistent connection for all calls.
pub(crate) struct Door {
    pub(crate) daemon: Daemon,
    pub(crate) address: SocketAddr,
    link: Mutex<Option<Link>>,
}

impl Door {
    pub(crate) fn start() -> Door {
        Door::start_with(Config::new())
    }

    /// On the embedded store, for a test of its SQL, or that prepares or checks jobs by it.
    pub(crate) fn embedded() -> Door {
        Door::start_with(Config::embedded())
    }

    pub(crate) fn start_with(config: Config) -> Door {
        Door::start_at(config, "127.0.0.1:0")
    }

    pub(crate) fn start_at(config: Config, listen: &str) -> Door {
        let daemon = Daemon::start(config.flag("--bedrock").flag(listen));
        let address = address_of(&daemon);
        Door { daemon, address, link: Mutex::new(None) }
    }

    /// Kills the daemon, as a crash would, and starts it again.
    pub(crate) fn crash(&mut self) {
        self.daemon.kill9();
        self.again();
    }

    /// Starts the daemon again after its end.
    pub(crate) fn again(&mut self) {
        self.daemon.restart();
        self.address = address_of(&self.daemon);
        self.link = Mutex::new(None);
    }

    #[track_caller]
    pub(crate) fn open(&self) -> Link {
        Link::open(self.address).unwrap_or_else(|e| panic!("the door takes connections: {e}"))
    }

    /// Calls on the persistent connection.
    #[track_caller]
    pub(crate) fn call(&self, verb: &str, headers: &[(&str, &str)]) -> Reply {
        self.call_raw(&request(verb, headers))
    }

    #[track_caller]
    pub(crate) fn call_raw(&self, bytes: &[u8]) -> Reply {
        let mut kept = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let mut link = kept.take().unwrap_or_else(|| self.open());
        link.raw(bytes);
        let reply = link.receive();
        // A failed call leaves nothing behind that a later one could read.
        *kept = Some(link);
        reply
    }

    /// Creates a job; returns its id.
    #[track_caller]
    pub(crate) fn create(&self, headers: &[(&str, &str)]) -> JobId {
        let json = self.call("CreateJob", headers).ok().json();
        json["jobID"].as_i64().unwrap_or_else(|| panic!("no jobID in {json}"))
    }

    #[track_caller]
    pub(crate) fn named(&self, name: &str) -> JobId {
        self.create(&[("name", name)])
    }

    #[track_caller]
    pub(crate) fn child(&self, parent: JobId, name: &str) -> JobId {
        self.create(&[("name", name), ("parentJobID", &parent.to_string())])
    }

    /// Claims one job.
    #[track_caller]
    pub(crate) fn get(&self, name: &str) -> Value {
        self.call("GetJob", &[("name", name)]).ok().json()
    }

    /// Claims exactly this job.
    #[track_caller]
    pub(crate) fn take(&self, id: JobId, name: &str) -> Value {
        let job = self.get(name);
        assert_eq!(job["jobID"], id, "{job}");
        job
    }

    #[track_caller]
    pub(crate) fn get_jobs(&self, name: &str, count: usize) -> Vec<Value> {
        let wish = [("name", name), ("numResults", &count.to_string())];
        let json = self.call("GetJobs", &wish).ok().json();
        json["jobs"].as_array().unwrap_or_else(|| panic!("no jobs in {json}")).clone()
    }

    #[track_caller]
    pub(crate) fn no_job(&self, name: &str) {
        self.call("GetJob", &[("name", name)]).fails("404 No job found");
    }

    /// A command about one job.
    #[track_caller]
    pub(crate) fn about(&self, verb: &str, id: JobId) -> Reply {
        self.call(verb, &[("jobID", &id.to_string())])
    }

    #[track_caller]
    pub(crate) fn about_with(&self, verb: &str, id: JobId, more: &[(&str, &str)]) -> Reply {
        let id = id.to_string();
        let mut headers = vec![("jobID", id.as_str())];
        headers.extend_from_slice(more);
        self.call(verb, &headers)
    }

    /// The job as `QueryJob` shows it.
    #[track_caller]
    pub(crate) fn job(&self, id: JobId) -> Value {
        self.about("QueryJob", id).ok().json()
    }

    #[track_caller]
    pub(crate) fn state(&self, id: JobId) -> String {
        let job = self.job(id);
        job["state"].as_str().unwrap_or_else(|| panic!("no state in {job}")).to_owned()
    }

    #[track_caller]
    pub(crate) fn assert_states(&self, wanted: &[(JobId, &str)]) {
        let seen: Vec<String> = wanted.iter().map(|(id, _)| self.state(*id)).collect();
        let wanted: Vec<&str> = wanted.iter().map(|(_, state)| *state).collect();
        assert_eq!(seen, wanted);
    }

    #[track_caller]
    pub(crate) fn assert_gone(&self, id: JobId) {
        self.about("QueryJob", id).fails("404 No job with this jobID");
    }

    /// How many jobs there are.
    #[track_caller]
    pub(crate) fn count(&self) -> usize {
        self.count_where("")
    }

    #[track_caller]
    pub(crate) fn count_named(&self, name: &str) -> usize {
        self.count_where(&format!("type={name}"))
    }

    /// As the other door lists them; it also knows jobs that are gone for this one.
    fn count_where(&self, query: &str) -> usize {
        let jobs = self.tenant("default").list(query);
        let is_gone =
            |job: &&Value| matches!(job["state"].as_str(), Some("finished" | "cancelled"));
        jobs.len() - jobs.iter().filter(is_gone).count()
    }

    /// The rows of a statement as objects, with SQL's types. Needs the embedded store.
    #[track_caller]
    pub(crate) fn sql(&self, query: &str) -> Vec<Value> {
        let reply = self.call("Query", &[("query", query), ("ReadDBFlags", "-json")]).ok();
        if reply.body.is_empty() {
            return Vec::new();
        }
        let json = reply.json();
        json.as_array().unwrap_or_else(|| panic!("{json} is no list of rows")).clone()
    }

    /// The one value of a statement with one row and one column. Needs the embedded store.
    #[track_caller]
    pub(crate) fn value(&self, expression: &str) -> Value {
        let rows = self.sql(&format!("SELECT {expression} AS value;"));
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0]["value"].clone()
    }

    /// The row of a job, with SQL's types: the data is a text. On a server there is no SQL, and the
    /// row is what `QueryJob` shows, which is everything but the parent.
    #[track_caller]
    pub(crate) fn row(&self, id: JobId) -> Value {
        if let Store::Server(_) = self.config.store() {
            let mut row = self.job(id);
            row["data"] = Value::String(row["data"].to_string());
            return row;
        }
        let mut rows = self.sql(&format!("SELECT * FROM jobs WHERE jobID = {id};"));
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    /// Sets columns of a job, such as `lastRun = '2024-01-01 00:00:00'`. Needs the embedded store.
    #[track_caller]
    pub(crate) fn set(&self, id: JobId, columns: &str) {
        let query = format!("UPDATE jobs SET {columns} WHERE jobID = {id};");
        self.call("Query", &[("query", &query)]).done();
    }

    /// Sets when a job is due, whatever its state.
    #[track_caller]
    pub(crate) fn set_next_run(&self, id: JobId, next: &str) {
        let data = self.job(id)["data"].to_string();
        self.about_with("UpdateJob", id, &[("data", &data), ("nextRun", next)]).done();
    }
}

/// The value of an SQL expression without a table, by SQLite itself.
#[track_caller]
pub(crate) fn sqlite<T: FromSql>(expression: &str) -> T {
    let memory = Connection::open_in_memory().expect("memory can be had");
    let value = memory.query_row(&format!("SELECT {expression}"), [], |row| row.get(0));
    value.unwrap_or_else(|e| panic!("{expression}: {e}"))
}

/// The text of an SQL expression such as `DATETIME('now', '+1 HOUR')`.
#[track_caller]
pub(crate) fn sqlite_text(expression: &str) -> String {
    sqlite(expression)
}

/// The daemon of the door is also used over HTTP.
impl Deref for Door {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

fn address_of(daemon: &Daemon) -> SocketAddr {
    until_some("the Bedrock door listens", || {
        let entries = daemon.log.entries();
        entries.iter().find_map(|entry| field(entry, "bedrock").as_str()?.parse().ok())
    })
}

/// The job id in a reply.
#[track_caller]
pub(crate) fn id_of(job: &Value) -> JobId {
    job["jobID"].as_i64().unwrap_or_else(|| panic!("no jobID in {job}"))
}

/// The keys of an object in the order of the text.
#[track_caller]
pub(crate) fn keys_of(text: &str) -> Vec<String> {
    struct Keys;
    impl<'de> serde::de::Visitor<'de> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(
            self,
            mut map: A,
        ) -> Result<Vec<String>, A::Error> {
            let mut keys = Vec::new();
            while let Some(key) = map.next_key()? {
                keys.push(key);
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            Ok(keys)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    serde::de::Deserializer::deserialize_map(&mut reader, Keys)
        .unwrap_or_else(|e| panic!("{e} in {text:?}"))
}
