//! Operations as HTTP requests. The same add with an idempotency key always gives the same request,
//! because it must not differ when it is sent again.

use serde_json::{Map, Value, json};
use windlass_proof::history::{Add, Operation};
use windlass_proof::workload::payload;

use super::{flaw, time};

const MS_NS: u64 = 1_000_000;
/// Requests that are built quickly enough to name a time of the wall clock.
const ABSOLUTE_BYTES_MAX: u64 = 64 * 1024;
/// Jobs that a daemon claims for a context at once.
const HANDLER_BATCH: u32 = 5;
/// A claim that finds nothing waits for so long.
const CLAIM_WAIT: &str = "400ms";

pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// The source of the handlers.
pub(crate) struct Handlers {
    pub(crate) source: String,
}

impl Handlers {
    /// A version of the handler; they differ only in their number.
    fn version(&self, version: u32) -> Value {
        let body = format!("# version {version}\n{}", self.source);
        let options = json!({"batch": HANDLER_BATCH, "contexts": 2});
        json!({"lang": "python", "body": body, "options": options})
    }
}

impl Request {
    pub(super) fn new(method: &'static str, path: String) -> Request {
        Request { method, path, headers: Vec::new(), body: Vec::new() }
    }

    pub(super) fn json(method: &'static str, path: String, body: &Value) -> Request {
        Request::new(method, path).with_body("application/json", body.to_string().into_bytes())
    }

    fn with_body(mut self, kind: &str, body: Vec<u8>) -> Request {
        self.headers.push(("Content-Type", kind.to_owned()));
        self.body = body;
        self
    }
}

/// The request of an operation that goes through this door.
pub(super) fn of(operation: &Operation, handlers: &Handlers) -> Option<Request> {
    let of_job = |tenant: &str, job, verb: &str| format!("/v1/{tenant}/jobs/{job}/{verb}");
    let of_type =
        |tenant: &str, name: &str, verb: &str| format!("/v1/{tenant}/types/{name}/{verb}");
    Some(match operation {
        Operation::Add(add) => of_add(add),
        Operation::Cancel { tenant, job } => Request::new("POST", of_job(tenant, job, "cancel")),
        Operation::Retry { tenant, job } => Request::new("POST", of_job(tenant, job, "retry")),
        Operation::Delete { tenant, job } => {
            Request::new("DELETE", format!("/v1/{tenant}/jobs/{job}"))
        }
        Operation::Suspend { tenant, type_name } => {
            Request::new("POST", of_type(tenant, type_name, "suspend"))
        }
        Operation::Resume { tenant, type_name } => {
            Request::new("POST", of_type(tenant, type_name, "resume"))
        }
        Operation::SetHandler { tenant, type_name, version } => {
            let path = format!("/v1/{tenant}/handlers/{type_name}");
            Request::json("PUT", path, &handlers.version(*version))
        }
        Operation::RemoveHandler { tenant, type_name } => {
            Request::new("DELETE", format!("/v1/{tenant}/handlers/{type_name}"))
        }
        Operation::SetLimits { tenant, type_name, concurrency, rate } => {
            let mut limits = Map::new();
            limits.extend(concurrency.map(|most| ("concurrency".into(), most.into())));
            limits.extend(rate.map(|rate| ("rate".into(), rate.into())));
            Request::json("PUT", of_type(tenant, type_name, "settings"), &limits.into())
        }
        Operation::Claim { tenant, types, limit, lease_ns } => {
            let lease = milliseconds(*lease_ns);
            let wish = json!({"types": types, "limit": limit, "lease": lease, "wait": CLAIM_WAIT});
            Request::json("POST", format!("/v1/{tenant}/claim"), &wish)
        }
        Operation::Renew { tenant, job, token, lease_ns } => {
            let wish = json!({"token": token.0, "lease": milliseconds(*lease_ns)});
            Request::json("POST", of_job(tenant, job, "renew"), &wish)
        }
        Operation::Finish { tenant, job, token, status, data } => {
            let mut report = json!({"token": token.0, "status": status});
            if let Some(data) = data {
                report["data"] = data.as_str().into();
            }
            Request::json("POST", of_job(tenant, job, "finish"), &report)
        }
        Operation::Progress { tenant, job, token, percent } => {
            let report = json!({"token": token.0, "percent": percent, "message": "at work"});
            Request::json("POST", of_job(tenant, job, "progress"), &report)
        }
        Operation::Release { tenant, job, token } => {
            Request::json("POST", of_job(tenant, job, "release"), &json!({"token": token.0}))
        }
        Operation::Invalid { tenant, type_name, flaw } => flaw::of(tenant, type_name, *flaw),
        // These go through the other door, or are written down without a request of their own.
        Operation::Look { .. }
        | Operation::GetJob { .. }
        | Operation::GetJobs { .. }
        | Operation::UpdateJob { .. }
        | Operation::FinishJob { .. }
        | Operation::RetryJob { .. }
        | Operation::FailJob { .. }
        | Operation::CancelJob { .. }
        | Operation::DeleteJob { .. }
        | Operation::RequeueJobs { .. } => return None,
    })
}

/// How the jobs of an add are written.
enum Shape {
    Lines,
    Binary,
    Json,
}

/// All shapes that an add can have take turns, by its mark.
fn shape(add: &Add) -> Shape {
    match (add.form.payload_bytes, add.count, add.mark % 3) {
        (0, ..) | (.., 2) => Shape::Json,
        (_, 1, 1) => Shape::Binary,
        _ => Shape::Lines,
    }
}

fn of_add(add: &Add) -> Request {
    let payloads = (0..add.count).map(|index| payload::of_add(add, index));
    let path = format!("/v1/{}/jobs/{}", add.tenant, add.type_name);
    let options = options(add);
    let mut request = match shape(add) {
        Shape::Json => {
            let job = |payload: Vec<u8>| {
                let mut job = options.clone();
                job.insert("payload".into(), String::from_utf8_lossy(&payload).into());
                Value::Object(job)
            };
            let jobs: Vec<Value> = payloads.map(job).collect();
            Request::json("POST", path, &json!({"jobs": jobs}))
        }
        Shape::Binary => Request::new("POST", path + &query(&options))
            .with_body("application/octet-stream", payloads.flatten().collect()),
        Shape::Lines => {
            let lines = payloads.flat_map(|payload| payload.into_iter().chain([b'\n']));
            Request::new("POST", path + &query(&options)).with_body("text/plain", lines.collect())
        }
    };
    if let Some(key) = &add.idempotency_key {
        request.headers.push(("Idempotency-Key", key.clone()));
    }
    request
}

fn options(add: &Add) -> Map<String, Value> {
    let form = &add.form;
    let mut options = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        options.extend(value.map(|value| (name.to_owned(), value)));
    };
    set("priority", form.priority.map(Value::from));
    // A request with a key must not differ when it is sent again.
    let free = add.idempotency_key.is_none() && form.payload_bytes <= ABSOLUTE_BYTES_MAX;
    let absolute = free && add.mark.is_multiple_of(2);
    match form.delay_ns {
        Some(delay) if absolute => set("run_at", Some(run_at(delay).into())),
        delay => set("delay", delay.map(|delay| milliseconds(delay).into())),
    }
    set("expires", form.expires_ns.map(|expires| milliseconds(expires).into()));
    set("unique", form.unique.clone().map(Value::from));
    set("parent", form.parent.map(|parent| parent.to_string().into()));
    set("then", form.then.clone().map(Value::from));
    set("repeat", form.repeat.clone().map(Value::from));
    options
}

pub(super) fn query(options: &Map<String, Value>) -> String {
    let pair = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", encoded(&value))
    };
    let pairs: Vec<String> = options.iter().map(pair).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn run_at(delay_ns: u64) -> String {
    let (date, time) = time::parts(time::due_ms(delay_ns));
    format!("{date}T{time}Z")
}

fn milliseconds(ns: u64) -> String {
    format!("{}ms", ns / MS_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_proof::workload::{Mix, Workload};

    #[test]
    fn an_add_with_a_key_always_gives_the_same_request() {
        let handlers = Handlers { source: "return 200".into() };
        let mut client = Workload::new(1, 0, Mix::everything());
        for _ in 0..5000 {
            let operation = client.next_operation();
            if !matches!(&operation, Operation::Add(add) if add.idempotency_key.is_some()) {
                continue;
            }
            let [one, two] = [(); 2].map(|()| of(&operation, &handlers).unwrap());
            assert_eq!((one.path, one.body), (two.path, two.body), "{operation:?}");
        }
    }

    #[test]
    fn values_in_queries_are_encoded() {
        let options = json!({"repeat": "FINISHED, +1 SECONDS", "priority": 3});
        let Value::Object(options) = options else { unreachable!() };
        assert_eq!(query(&options), "?priority=3&repeat=FINISHED%2C%20%2B1%20SECONDS");
    }
}
