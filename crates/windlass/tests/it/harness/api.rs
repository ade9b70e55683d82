//! The HTTP contract as short methods: a daemon's client, and one tenant of it.
//!
//! Each call opens its own connection, so a client may be used by many threads and outlives the
//! daemons that it talked to.

use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};

use windlass_test_kit::http::{Connection, Response};
use windlass_test_kit::wait::until_seen as until;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The admin key of its daemon, unless that needs none. It lives as long as the test process,
    /// so that a client can be copied.
    pub(crate) key: Option<&'static str>,
}

impl Client {
    pub(crate) fn connection(&self) -> Connection {
        self.try_connection().expect("the daemon takes connections")
    }

    fn try_connection(&self) -> io::Result<Connection> {
        Ok(Connection::open(self.address)?.with_key(self.key))
    }

    /// The header line with the key, for raw requests.
    pub(crate) fn authorization(&self) -> String {
        self.key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default()
    }

    /// The same daemon, with another key.
    pub(crate) fn with_key(&self, key: &str) -> Client {
        Client { key: Some(key.to_owned().leak()), ..*self }
    }

    /// The same daemon, without a key.
    pub(crate) fn without_key(&self) -> Client {
        Client { key: None, ..*self }
    }

    pub(crate) fn tenant(&self, name: &str) -> Tenant {
        Tenant { client: *self, name: name.to_owned() }
    }

    pub(crate) fn try_call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        self.try_connection()?.call(method, path, headers, body)
    }

    #[track_caller]
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.try_call(method, path, headers, body)
            .unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.call("GET", path, &[], b"")
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str) -> Response {
        self.call("POST", path, &[], b"")
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Response {
        self.call("DELETE", path, &[], b"")
    }

    #[track_caller]
    pub(crate) fn send_json(&self, method: &str, path: &str, body: &Value) -> Response {
        let headers = [("Content-Type", "application/json")];
        self.call(method, path, &headers, body.to_string().as_bytes())
    }

    #[track_caller]
    pub(crate) fn send_text(&self, path: &str, body: &str) -> Response {
        self.call("POST", path, &[("Content-Type", "text/plain")], body.as_bytes())
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        self.get("/v1/status").expect(200).json()
    }

    #[track_caller]
    pub(crate) fn sysid(&self) -> u64 {
        let status = self.status();
        status["sysid"].as_u64().unwrap_or_else(|| panic!("no sysid in {status}"))
    }

    /// Stops picking jobs on this daemon.
    #[track_caller]
    pub(crate) fn stop_picking(&self) {
        self.expect_2xx("/v1/control/stop");
    }

    #[track_caller]
    pub(crate) fn start_picking(&self) {
        self.expect_2xx("/v1/control/start");
    }

    #[track_caller]
    fn expect_2xx(&self, path: &str) {
        let answer = self.post(path);
        assert_eq!(answer.status / 100, 2, "POST {path}: {}", answer.text());
    }

    /// The sum of a metric over all lines whose labels contain every given `name="value"`.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let text = self.get("/metrics").expect(200).text();
        let mut sum = 0.0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((head, value)) = line.rsplit_once(' ') else { continue };
            let own = head.split('{').next() == Some(name);
            let labelled = labels.iter().all(|(k, v)| head.contains(&format!("{k}=\"{v}\"")));
            if own && labelled {
                sum += value.parse::<f64>().unwrap_or_else(|e| panic!("{e} in {line:?}"));
            }
        }
        sum
    }
}

/// One tenant, through one daemon.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl Tenant {
    /// `/v1/{tenant}/…`
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/{}/{rest}", self.name)
    }

    #[track_caller]
    pub(crate) fn get(&self, rest: &str) -> Response {
        self.client.get(&self.path(rest))
    }

    #[track_caller]
    pub(crate) fn post(&self, rest: &str) -> Response {
        self.client.post(&self.path(rest))
    }

    #[track_caller]
    pub(crate) fn post_json(&self, rest: &str, body: &Value) -> Response {
        self.client.send_json("POST", &self.path(rest), body)
    }

    /// Adds one job for each payload, as lines of text.
    #[track_caller]
    pub(crate) fn add<S: AsRef<str>>(&self, kind: &str, payloads: &[S]) -> Vec<String> {
        self.add_with(kind, "", payloads)
    }

    /// `add` with options such as `delay=5s&priority=1`.
    #[track_caller]
    pub(crate) fn add_with<S: AsRef<str>>(
        &self,
        kind: &str,
        options: &str,
        payloads: &[S],
    ) -> Vec<String> {
        let lines: Vec<&str> = payloads.iter().map(AsRef::as_ref).collect();
        let path = self.path(&format!("jobs/{kind}?{options}"));
        let answer = self.client.send_text(path.trim_end_matches('?'), &lines.join("\n"));
        let ids = ids_of(&answer.expect(201));
        assert_eq!(ids.len(), payloads.len(), "one id for each payload");
        ids
    }

    #[track_caller]
    pub(crate) fn add_one(&self, kind: &str, payload: &str) -> String {
        self.add(kind, &[payload]).remove(0)
    }

    /// Sets a handler in its JSON form; returns its id.
    #[track_caller]
    pub(crate) fn handler(&self, kind: &str, handler: &Value) -> String {
        let path = self.path(&format!("handlers/{kind}"));
        text(&self.client.send_json("PUT", &path, handler).expect(200).json()["id"])
    }

    /// Sets a secret; returns its version.
    #[track_caller]
    pub(crate) fn secret(&self, name: &str, value: &str) -> String {
        let path = self.path(&format!("secrets/{name}"));
        let headers = [("Content-Type", "text/plain")];
        let set = self.client.call("PUT", &path, &headers, value.as_bytes()).expect(200);
        text(&set.json()["version"])
    }

    /// Sets a shell script as the handler.
    #[track_caller]
    pub(crate) fn sh(&self, kind: &str, body: &str) -> String {
        self.handler(kind, &json!({"lang": "sh", "body": body}))
    }

    #[track_caller]
    pub(crate) fn settings(&self, kind: &str, settings: &Value) {
        let path = self.path(&format!("types/{kind}/settings"));
        self.client.send_json("PUT", &path, settings).expect(200);
    }

    #[track_caller]
    pub(crate) fn job(&self, id: &str) -> Value {
        self.get(&format!("jobs/{id}")).expect(200).json()
    }

    #[track_caller]
    pub(crate) fn log(&self, id: &str) -> String {
        self.get(&format!("jobs/{id}/log")).expect(200).text()
    }

    #[track_caller]
    pub(crate) fn until_state(&self, id: &str, state: &str) -> Value {
        until(&format!("{id} is {state}"), || self.job(id), |job| job["state"] == state)
    }

    /// The job once it has ended, in whatever way.
    #[track_caller]
    pub(crate) fn until_end(&self, id: &str) -> Value {
        let path = format!("jobs/{id}?wait=20s");
        let ended = ["finished", "failed", "cancelled"];
        let look = || self.get(&path).expect(200).json();
        let enough = |job: &Value| ended.iter().any(|state| job["state"] == *state);
        until(&format!("{id} has ended"), look, enough)
    }

    #[track_caller]
    pub(crate) fn until_all<S: AsRef<str>>(&self, ids: &[S], state: &str) {
        for id in ids {
            self.until_state(id.as_ref(), state);
        }
    }

    /// Waits until jobs accepted by a killed daemon are visible here: until its journal has been
    /// taken over, they exist only there.
    #[track_caller]
    pub(crate) fn until_known<S: AsRef<str>>(&self, ids: &[S]) {
        for id in ids {
            let id = id.as_ref();
            let look = || self.get(&format!("jobs/{id}")).status;
            until(&format!("{id} is known"), look, |status| *status == 200);
        }
    }

    /// Waits until `count` jobs of a type are in a state, then lists them all.
    #[track_caller]
    pub(crate) fn until_count(&self, kind: &str, state: &str, count: usize) -> Vec<Value> {
        let query = format!("type={kind}&state={state}");
        until(
            &format!("{count} jobs of {kind} are {state}"),
            || self.list(&query),
            |jobs| jobs.len() == count,
        )
    }

    /// All jobs that match, over all pages, newest first.
    #[track_caller]
    pub(crate) fn list(&self, query: &str) -> Vec<Value> {
        let mut jobs = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("jobs?limit=1000&{query}{after}")).expect(200).json();
            jobs.extend(page["jobs"].as_array().expect("a list of jobs").iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return jobs,
            }
        }
    }

    /// Claims up to `limit` jobs as a pull worker; does not wait for work.
    #[track_caller]
    pub(crate) fn claim(&self, kind: &str, limit: usize, lease: &str) -> Vec<Value> {
        let wish = json!({"types": [kind], "limit": limit, "lease": lease, "wait": "0s"});
        let answer = self.post_json("claim", &wish).expect(200).json();
        answer["jobs"].as_array().expect("a list of jobs").clone()
    }

    #[track_caller]
    pub(crate) fn until_claimed(&self, kind: &str, lease: &str) -> Value {
        let what = format!("a job of {kind} can be claimed");
        until(&what, || self.claim(kind, 1, lease), |jobs| jobs.len() == 1).remove(0)
    }

    /// Reports the end of a claimed job.
    #[track_caller]
    pub(crate) fn finish(&self, job: &Value, status: u16) -> Response {
        let body = json!({"token": job["token"], "status": status});
        self.post_json(&format!("jobs/{}/finish", text(&job["id"])), &body)
    }

    /// Claims and finishes `count` jobs or a few more, on one connection; returns the jobs in the
    /// order of their claims.
    #[track_caller]
    pub(crate) fn drain(&self, kind: &str, count: usize) -> Vec<Value> {
        let mut connection = self.client.connection();
        let mut call = |rest: &str, body: Value| {
            let headers = [("Content-Type", "application/json")];
            let answer =
                connection.call("POST", &self.path(rest), &headers, body.to_string().as_bytes());
            answer.expect("the daemon answers").expect(200)
        };
        let wish = json!({"types": [kind], "limit": 500, "lease": "60s", "wait": "0s"});
        let mut done = Vec::new();
        until(
            &format!("{count} jobs of {kind} are pulled"),
            || {
                let answer = call("claim", wish.clone()).json();
                for job in answer["jobs"].as_array().expect("a list of jobs") {
                    let end = json!({"token": job["token"], "status": 200});
                    call(&format!("jobs/{}/finish", text(&job["id"])), end);
                    done.push(job.clone());
                }
                done.len()
            },
            |pulled| *pulled >= count,
        );
        done
    }

    /// The counts of one type, `null` if it is not listed.
    #[track_caller]
    pub(crate) fn type_row(&self, kind: &str) -> Value {
        let types = self.get("types").expect(200).json();
        let rows = types.as_array().unwrap_or_else(|| panic!("not a list: {types}"));
        rows.iter().find(|row| row["type"] == kind).cloned().unwrap_or(Value::Null)
    }
}

/// The ids of the answer to an add.
#[track_caller]
pub(crate) fn ids_of(answer: &Response) -> Vec<String> {
    let json = answer.json();
    let ids = json["ids"].as_array().unwrap_or_else(|| panic!("no ids in {json}"));
    ids.iter().map(text).collect()
}

/// The text of a JSON string.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned()
}
