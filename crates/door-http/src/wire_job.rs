//! A job as clients see it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use windlass_core::job::Job;
use windlass_core::limit::PULL_PAYLOAD_BYTES_MAX;
use windlass_core::store::Claimed;
use windlass_core::{JobId, Json, Payload, TypeName};
use windlass_engine::api::JobView;

use crate::time::WireTime;

/// A job. Absent values are null.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct WireJob<'a> {
    /// Decimal digits.
    id: String,
    tenant: &'a str,
    r#type: &'a str,
    /// One of queued, running, paused, finished, failed, cancelled.
    state: &'static str,
    /// 0 to 1000, higher first.
    priority: u16,
    /// 0 before the first start, 1 during it.
    attempt: u32,
    run_at: WireTime,
    created_at: WireTime,
    started_at: Option<WireTime>,
    finished_at: Option<WireTime>,
    expires_at: Option<WireTime>,
    /// The number of the daemon that holds the job while it runs.
    lock: Option<u16>,
    /// How the last attempt ended: ok, failed, retry, error.
    code: Option<&'static str>,
    /// Status of the last attempt, 100 to 599; not the exit code of a process.
    exitcode: Option<u16>,
    /// Any JSON; null in lists.
    #[schema(value_type = serde_json::Value)]
    result: Option<&'a RawValue>,
    /// ID of the job that waits for this one.
    parent: Option<String>,
    /// Whether other jobs have, or had, this one as their parent.
    children: bool,
    /// When it repeats.
    repeat: Option<&'a str>,
    /// Type of the job that is added with the result as its payload when this one ends with 2xx.
    then: Option<&'a str>,
    payload_bytes: u64,
    /// The last progress report of the attempt; null in lists.
    progress: Option<WireProgress<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Progress)]
struct WireProgress<'a> {
    percent: f64,
    message: &'a str,
    at: WireTime,
}

/// One page of a list, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = JobPage)]
pub(crate) struct WirePage<'a> {
    pub(crate) jobs: Vec<WireJob<'a>>,
    /// Value for `after` in the next request; null at the end.
    pub(crate) next: Option<String>,
}

/// A job for a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedJob)]
pub(crate) struct WireClaimed<'a> {
    #[serde(flatten)]
    job: WireJob<'a>,
    /// Null if the bytes are not UTF-8 or not part of this answer.
    payload: Option<&'a str>,
    /// The bytes, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// Where to fetch a payload that is too large for this answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_url: Option<String>,
    /// Proves that the worker holds the job.
    token: i64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Claimed)]
pub(crate) struct WireClaim<'a> {
    jobs: Vec<WireClaimed<'a>>,
}

pub(crate) fn from_view(view: &JobView) -> WireJob<'_> {
    let result = view.result.as_ref().map(Json::as_str);
    let result = result.and_then(|text| serde_json::from_str(text).ok());
    WireJob { result, ..from_job(&view.job) }
}

pub(crate) fn from_job(job: &Job) -> WireJob<'_> {
    WireJob {
        id: job.id.to_string(),
        tenant: job.key.tenant.as_str(),
        r#type: job.key.name.as_str(),
        state: job.state.as_str(),
        priority: job.priority.get(),
        attempt: job.attempt,
        run_at: WireTime(job.run_at),
        created_at: WireTime(job.created_at),
        started_at: job.started_at.map(WireTime),
        finished_at: job.finished_at.map(WireTime),
        expires_at: job.expires_at.map(WireTime),
        lock: job.lease.map(|lease| lease.owner.get()),
        code: job.last.map(|ended| ended.code.as_str()),
        exitcode: job.last.map(|ended| ended.status.get()),
        result: None,
        parent: job.parent.map(|id| id.to_string()),
        children: job.children,
        repeat: job.extra.repeat.as_deref(),
        then: job.then.as_ref().map(TypeName::as_str),
        payload_bytes: job.payload_bytes,
        progress: job.progress.as_ref().map(|progress| WireProgress {
            percent: progress.percent,
            message: &progress.message,
            at: WireTime(progress.at),
        }),
    }
}

/// A job whose payload does not fit into the answer gets a URL instead.
pub(crate) fn from_claim(claimed: &[Claimed]) -> WireClaim<'_> {
    let mut left = PULL_PAYLOAD_BYTES_MAX;
    let jobs = claimed.iter().map(|claimed| {
        let inline = match &claimed.payload {
            Payload::Inline(bytes) if bytes.len() as u64 <= left => Some(&bytes[..]),
            _ => None,
        };
        left -= inline.map_or(0, |bytes| bytes.len() as u64);
        from_claimed(claimed, inline)
    });
    WireClaim { jobs: jobs.collect() }
}

fn from_claimed<'a>(claimed: &'a Claimed, inline: Option<&'a [u8]>) -> WireClaimed<'a> {
    let text = inline.map(std::str::from_utf8);
    WireClaimed {
        job: from_job(&claimed.job),
        payload: text.and_then(Result::ok),
        payload_base64: match (inline, text) {
            (Some(bytes), Some(Err(_))) => Some(BASE64.encode(bytes)),
            _ => None,
        },
        payload_url: match inline {
            Some(_) => None,
            None => Some(format!("/v1/{}/jobs/{}/payload", claimed.job.key.tenant, claimed.job.id)),
        },
        token: claimed.job.lease.map_or(0, |lease| lease.token.0),
    }
}

/// The answer to an add, `{"ids":["…",…]}`, formatted directly.
pub(crate) fn ids_text(ids: &[JobId]) -> String {
    use std::fmt::Write;
    const ID_TEXT_BYTES: usize = 22;
    let mut text = String::with_capacity(10 + ids.len() * ID_TEXT_BYTES);
    text.push_str("{\"ids\":[");
    for (index, id) in ids.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\"{}\"", id.get()).expect("writing to a String does not fail");
    }
    text.push_str("]}");
    text
}

/// The schema of `ids_text`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ids {
    /// One per job, in order.
    ids: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde_json::{Value, json};
    use windlass_core::job::{Ended, Extra, Lease, Token};
    use windlass_core::{NewJob, Status, Sysid, Timestamp, TypeKey};

    fn job() -> Job {
        let (owner, token) = (Sysid::new(3).unwrap(), Token(99));
        let key = TypeKey::new("acme", "www/Foo").unwrap();
        let payload = Payload::Inline(Bytes::from_static(b"abc"));
        let new = NewJob {
            then: Some(TypeName::new("next").unwrap()),
            parent: JobId::new(6),
            extra: Extra { repeat: Some("DAILY".into()), ..Extra::default() },
            ..NewJob::new(JobId::new(7).unwrap(), key, payload, Timestamp(0))
        };
        Job {
            lease: Some(Lease { owner, token, expires_at: Timestamp(5), on_beat: false }),
            last: Some(Ended::from(Status::ERROR)),
            ..Job::running(new, 2, Timestamp(1))
        }
    }

    fn claimed(payload: Payload) -> Value {
        serde_json::to_value(from_claim(&[claim(payload)])).unwrap()["jobs"][0].clone()
    }

    fn claim(payload: Payload) -> Claimed {
        Claimed { job: job(), payload, handler: None, left: 0 }
    }

    #[test]
    fn a_job_has_every_field_of_the_contract_and_null_for_what_is_absent() {
        let view = JobView { job: job(), result: Some(Json::parse("{\"a\": 1}".into()).unwrap()) };
        let text = serde_json::to_string(&from_view(&view)).unwrap();
        let expected = json!({
            "id": "7", "tenant": "acme", "type": "www/Foo", "state": "running", "priority": 500,
            "attempt": 2, "run_at": "1970-01-01T00:00:00.000Z",
            "created_at": "1970-01-01T00:00:00.000Z", "started_at": "1970-01-01T00:00:00.001Z",
            "finished_at": null, "expires_at": null, "lock": 3, "code": "error", "exitcode": 500,
            "result": {"a": 1}, "parent": "6", "children": false, "repeat": "DAILY",
            "then": "next", "payload_bytes": 3,
            "progress": null,
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn a_claimed_payload_is_text_or_base64_or_a_url() {
        let text = claimed(Payload::Inline(Bytes::from("ä\n")));
        assert_eq!((&text["payload"], &text["token"]), (&json!("ä\n"), &json!(99)));
        assert_eq!(text.get("payload_base64").or(text.get("payload_url")), None);
        let bytes = claimed(Payload::Inline(Bytes::from_static(b"\xff\0")));
        assert_eq!((&bytes["payload"], &bytes["payload_base64"]), (&Value::Null, &json!("/wA=")));
        let large = claimed(Payload::Pieces { bytes: 5_000_000 });
        assert_eq!(large["payload"], Value::Null);
        assert_eq!(large["payload_url"], "/v1/acme/jobs/7/payload");
    }

    #[test]
    fn a_claim_carries_a_bounded_number_of_payload_bytes() {
        let payload = Payload::Inline(Bytes::from(vec![b'x'; 1024 * 1024]));
        let claimed: Vec<_> = (0..20).map(|_| claim(payload.clone())).collect();
        let claim = from_claim(&claimed);
        let inline = claim.jobs.iter().filter(|job| job.payload.is_some()).count();
        assert_eq!(inline, 16);
        assert!(claim.jobs[16..].iter().all(|job| job.payload_url.is_some()));
    }

    #[test]
    fn ids_are_written_as_strings_of_digits() {
        let ids = |numbers: &[i64]| {
            let ids: Vec<_> = numbers.iter().map(|n| JobId::new(*n).unwrap()).collect();
            ids_text(&ids)
        };
        assert_eq!(ids(&[]), r#"{"ids":[]}"#);
        assert_eq!(ids(&[1, i64::MAX]), r#"{"ids":["1","9223372036854775807"]}"#);
    }
}
