//! The Bedrock door: operations as requests in its format, and replies as outcomes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Map, Value, json};
use windlass_proof::history::{Add, Answer, Claimed, JobId, Operation, Outcome};
use windlass_proof::workload::payload;

use super::answer::unknown;
use super::{ANSWER_TIME_MAX, CONNECT_TIME_MAX, Reply, time};

const SECOND_NS: u64 = 1_000_000_000;
/// A `GetJob` that finds nothing waits for so long.
const WAIT_MS: &str = "400";
/// Longest line of a reply.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// An open connection.
pub(super) struct Wire {
    input: BufReader<TcpStream>,
}

impl Wire {
    pub(super) fn connect(address: SocketAddr) -> Option<Wire> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX)).ok()?;
        Some(Wire { input: BufReader::new(stream) })
    }

    /// The code and the body of the reply.
    pub(super) fn call(&mut self, request: &str) -> io::Result<(u16, Vec<u8>)> {
        self.input.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let code = status.split(' ').next().and_then(|code| code.parse().ok());
        let code = code.ok_or_else(|| io::Error::other(format!("not a reply: {status}")))?;
        let mut bytes = 0;
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    bytes = value.trim().parse().map_err(io::Error::other)?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; bytes];
        self.input.read_exact(&mut body)?;
        Ok((code, body))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.input.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// The request of an operation that goes through this door.
pub(super) fn of(operation: &Operation) -> Option<String> {
    let id = |job: &JobId| ("jobID", job.to_string());
    Some(match operation {
        Operation::Add(add) if !add.bedrock => return None,
        Operation::Add(add) if add.count == 1 => {
            let job = job_of(add, 0);
            let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let headers = job.iter().map(|(name, value)| (name.as_str(), text(value)));
            request("CreateJob", headers)
        }
        Operation::Add(add) => {
            let jobs: Vec<Value> = (0..add.count).map(|n| job_of(add, n).into()).collect();
            request("CreateJobs", [("jobs", Value::from(jobs).to_string())])
        }
        Operation::GetJob { types, .. } => request("GetJob", patient(types)),
        Operation::GetJobs { types, limit, .. } => {
            request("GetJobs", patient(types).chain([("numResults", limit.to_string())]))
        }
        Operation::UpdateJob { job, data, .. } => {
            request("UpdateJob", [id(job), ("data", data.clone())])
        }
        Operation::FinishJob { job, data, .. } => report("FinishJob", job, data.as_ref()),
        Operation::RetryJob { job, data, .. } => report("RetryJob", job, data.as_ref()),
        Operation::FailJob { job, .. } => report("FailJob", job, None),
        Operation::CancelJob { job, .. } => request("CancelJob", [id(job)]),
        Operation::DeleteJob { job, .. } => request("DeleteJob", [id(job)]),
        Operation::RequeueJobs { jobs, .. } => {
            let ids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            request("RequeueJobs", [("jobIDs", ids.join(","))])
        }
        _ => return None,
    })
}

fn report(verb: &str, job: &JobId, data: Option<&String>) -> String {
    let data = data.map(|data| ("data", data.clone()));
    request(verb, [("jobID", job.to_string())].into_iter().chain(data))
}

fn patient(types: &[String]) -> impl Iterator<Item = (&'static str, String)> {
    let wait = [("Connection", "wait".to_owned()), ("timeout", WAIT_MS.to_owned())];
    [("name", types.join(","))].into_iter().chain(wait)
}

fn request<'a>(verb: &str, headers: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = format!("{verb}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {}\r\n", value.replace('\\', "\\\\")));
    }
    text + "\r\n"
}

/// One job of an add, by the names that `CreateJob` and `CreateJobs` share.
fn job_of(add: &Add, index: u32) -> Map<String, Value> {
    let form = &add.form;
    let mut job = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        job.extend(value.map(|value| (name.to_owned(), value)));
    };
    let payload = payload::of_add(add, index);
    let data: Option<Value> = serde_json::from_slice(&payload).ok();
    set("name", Some(add.type_name.clone().into()));
    set("data", data);
    set("firstRun", form.delay_ns.map(|delay| first_run(delay).into()));
    set("repeat", form.repeat.clone().map(Value::from));
    set("jobPriority", form.priority.map(Value::from));
    set("parentJobID", form.parent.map(|parent| parent.0.into()));
    let seconds = form.retry_after_ns.map(|after| format!("+{} SECONDS", after / SECOND_NS));
    set("retryAfter", seconds.map(Value::from));
    job
}

fn first_run(delay_ns: u64) -> String {
    let (date, time) = time::parts(time::due_ms(delay_ns));
    format!("{date} {time}")
}

pub(super) fn answer(operation: &Operation, code: u16, body: &[u8]) -> Reply {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let gets = matches!(operation, Operation::GetJob { .. } | Operation::GetJobs { .. });
    let jobs = match operation {
        Operation::GetJob { .. } if !body["jobID"].is_null() => vec![body.clone()],
        _ => body["jobs"].as_array().cloned().unwrap_or_default(),
    };
    let outcome = match operation {
        _ if gets => jobs.iter().map(claimed).collect::<Option<_>>().map(Outcome::Jobs),
        Operation::Add(add) if add.count == 1 => ids(&json!([body["jobID"]])),
        Operation::Add(_) => ids(&body["jobIDs"]),
        _ => Some(Outcome::Nothing),
    };
    let (answer, flaw) = match (code, outcome) {
        (404, _) if gets => (Answer::Done(Outcome::Jobs(Vec::new())), None),
        (200, Some(outcome)) => (Answer::Done(outcome), None),
        (400..=499, _) => (Answer::Refused { status: code }, None),
        _ => unknown(code, &body.to_string()),
    };
    let payloads = jobs.iter().map(|job| json!({"payload": job["data"].to_string()}));
    Reply { answer, body: json!({"jobs": payloads.collect::<Vec<Value>>()}), flaw }
}

fn ids(list: &Value) -> Option<Outcome> {
    let ids = list.as_array()?.iter().map(|id| id.as_u64().map(JobId));
    Some(Outcome::Ids(ids.collect::<Option<_>>()?))
}

fn claimed(job: &Value) -> Option<Claimed> {
    let data = job["data"].to_string();
    let after = job["retryAfter"].as_str().unwrap_or_default();
    let digits = after.trim_start_matches('+').split(' ').next().unwrap_or_default();
    // Its end is a whole second.
    let seconds = digits.parse::<u64>().ok().map(|seconds| seconds.saturating_sub(1));
    Some(Claimed {
        job: JobId(job["jobID"].as_u64()?),
        type_name: job["name"].as_str()?.to_owned(),
        attempt: payload::tries(data.as_bytes()) + 1,
        token: None,
        lease_ns: seconds.map(|seconds| seconds * SECOND_NS),
        resumed: !job["finishedChildJobs"].is_null(),
        origin: payload::read(data.as_bytes()).0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_proof::history::Form;

    #[test]
    fn a_create_has_its_options_as_headers_and_backslashes_doubled() {
        let form = Form { retry_after_ns: Some(2 * SECOND_NS), ..Form::default() };
        let (tenant, type_name, idempotency_key) = ("a".into(), "t\\u".into(), None);
        let add =
            Add { tenant, type_name, count: 1, mark: 1, idempotency_key, bedrock: true, form };
        let text = of(&Operation::Add(Box::new(add))).unwrap();
        assert_eq!(text, "CreateJob\r\nname: t\\\\u\r\nretryAfter: +2 SECONDS\r\n\r\n");
    }

    #[test]
    fn a_job_with_retry_after_is_lent_for_a_second_less() {
        let get = Operation::GetJob { tenant: "a".into(), types: vec!["t".into()] };
        let body = br#"{"data":{"tries":2},"jobID":7,"name":"t","retryAfter":"+3 SECONDS"}"#;
        let reply = answer(&get, 200, body);
        let Answer::Done(Outcome::Jobs(jobs)) = reply.answer else { panic!("{:?}", reply.answer) };
        assert_eq!((jobs[0].job, jobs[0].attempt), (JobId(7), 3));
        assert_eq!(jobs[0].lease_ns, Some(2 * SECOND_NS));
        let none = answer(&get, 404, b"");
        assert_eq!(none.answer, Answer::Done(Outcome::Jobs(Vec::new())));
        assert_eq!(
            answer(&Operation::FailJob { tenant: "a".into(), job: JobId(1) }, 405, b"").answer,
            Answer::Refused { status: 405 }
        );
        assert!(answer(&get, 500, b"").flaw.is_some() && answer(&get, 503, b"").flaw.is_none());
    }
}
