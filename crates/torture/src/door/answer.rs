//! HTTP answers as outcomes: done, certainly not done, or unknown.

use serde_json::Value;
use windlass_proof::history::{Answer, Claimed, JobId, Operation, Outcome, Token};
use windlass_proof::workload::payload;
use windlass_test_kit::http::Response;

use super::Reply;

pub(super) fn of(operation: &Operation, response: &Response) -> Reply {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let answer = match response.status {
        200..=299 => match outcome(operation, &body) {
            Some(outcome) => Answer::Done(outcome),
            None => Answer::Unknown { why: format!("cannot be read: {}", response.text()) },
        },
        status @ 400..=499 => Answer::Refused { status },
        status => Answer::Unknown { why: format!("{status}: {}", response.text()) },
    };
    Reply { answer, body }
}

fn outcome(operation: &Operation, body: &Value) -> Option<Outcome> {
    Some(match operation {
        Operation::Add(_) => {
            let ids = body["ids"].as_array()?.iter().map(id);
            Outcome::Ids(ids.collect::<Option<_>>()?)
        }
        Operation::Claim { .. } => {
            let jobs = body["jobs"].as_array()?.iter().map(claimed);
            Outcome::Jobs(jobs.collect::<Option<_>>()?)
        }
        _ => Outcome::Nothing,
    })
}

pub(crate) fn id(value: &Value) -> Option<JobId> {
    value.as_str()?.parse().ok().map(JobId)
}

fn claimed(job: &Value) -> Option<Claimed> {
    let text = job["payload"].as_str();
    Some(Claimed {
        job: id(&job["id"])?,
        type_name: job["type"].as_str()?.to_owned(),
        attempt: u32::try_from(job["attempt"].as_u64()?).ok()?,
        token: Some(Token(job["token"].as_u64()?)),
        lease_ns: None,
        origin: text.and_then(|text| payload::read(text.as_bytes()).0),
    })
}
