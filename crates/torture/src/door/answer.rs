//! HTTP answers as outcomes: done, certainly not done, or unknown.

use serde_json::Value;
use windlass_proof::history::{Answer, Claimed, JobId, Operation, Outcome, Token};
use windlass_proof::workload::payload;
use windlass_test_kit::http::Response;

use super::Reply;

/// What daemons answer when they cannot say whether something was done: they are not available, or
/// a Bedrock command took longer than its client waits.
const OPEN: [u16; 2] = [503, 555];

pub(super) fn of(operation: &Operation, response: &Response) -> Reply {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let outcome = outcome(operation, &body).filter(|_| response.status / 100 == 2);
    let (answer, flaw) = match (outcome, response.status) {
        (Some(outcome), _) => (Answer::Done(outcome), None),
        (None, status @ 400..=499) => (Answer::Refused { status }, None),
        (None, status) => unknown(status, &response.text()),
    };
    Reply { answer, body, flaw }
}

/// An answer that leaves open what was done. Some statuses are there for that; any other, and a
/// success that cannot be read, is a flaw of the daemon.
pub(super) fn unknown(status: u16, text: &str) -> (Answer, Option<String>) {
    let why = format!("{status}: {text}");
    let flaw = (!OPEN.contains(&status)).then(|| why.clone());
    (Answer::Unknown { why }, flaw)
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
        resumed: job["children"] == true,
        origin: text.and_then(|text| payload::read(text.as_bytes()).0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_error_or_a_success_that_cannot_be_read_is_a_flaw() {
        let cancel = Operation::Cancel { tenant: "a".into(), job: JobId(1) };
        let claim = Operation::Claim { tenant: "a".into(), types: vec![], limit: 1, lease_ns: 1 };
        let flaw = |operation: &Operation, status, body: &str| {
            let body = body.as_bytes().to_vec();
            of(operation, &Response { status, headers: Vec::new(), body }).flaw
        };
        assert_eq!(flaw(&cancel, 500, "no"), Some("500: no".into()));
        assert_eq!(flaw(&claim, 200, "{"), Some("200: {".into()));
        assert_eq!(flaw(&claim, 200, r#"{"jobs":[]}"#), None);
        assert_eq!(flaw(&cancel, 503, "later"), None);
        assert_eq!(flaw(&cancel, 409, "no"), None);
    }
}
