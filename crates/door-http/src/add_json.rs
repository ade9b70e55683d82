//! Adds of jobs in JSON, each with its own options.

use axum::body::Body;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use windlass_core::add::RawOptions;
use windlass_core::{AddOptions, Timestamp, TypeKey};
use windlass_engine::api::{AddJob, Added};

use crate::add::{self, ADD_JOBS_MAX};
use crate::door::Door;
use crate::error::Failure;
use crate::json;
use crate::time::{WireDuration, WireTime};

const TOO_LARGE: &str = "; send the jobs in several adds, or one large payload as \
                         application/octet-stream";

/// The body of a JSON add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Jobs)]
pub(crate) struct JobsBody<'a> {
    /// At least one.
    #[serde(borrow)]
    jobs: Vec<JobBody<'a>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
struct JobBody<'a> {
    /// A string is stored as its text, any other value as its JSON text.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value)]
    payload: &'a RawValue,
    run_at: Option<WireTime>,
    delay: Option<WireDuration>,
    priority: Option<i64>,
    timeout: Option<WireDuration>,
    expires: Option<WireDuration>,
    unique: Option<String>,
    /// When the job repeats, such as `FINISHED, +1 HOUR` or `cron: 0 9 * * MON-FRI`.
    repeat: Option<String>,
    /// ID of the parent, which must be running or waiting for children.
    parent: Option<String>,
    /// Type of the follow-up job, whose payload is this job's result.
    then: Option<String>,
    /// Answer when the jobs are in: journal or store. One job of an add decides for all of them.
    durable: Option<String>,
}

pub(crate) async fn add(
    door: &Door,
    key: &TypeKey,
    parts: &Parts,
    body: Body,
) -> Result<Added, Failure> {
    let mut keyed = add::key_of_json(key, parts)?;
    let whole = add::read_body(door, parts, body, TOO_LARGE, &mut keyed).await?;
    let mut jobs = Vec::new();
    for (bytes, options) in read(&whole, door.clock.now())? {
        jobs.push(AddJob { payload: add::payload(door, bytes).await?, options });
    }
    add::accept(door, key, jobs, keyed).await
}

/// All jobs of the body, or the first error.
pub(crate) fn read(body: &Bytes, now: Timestamp) -> Result<Vec<(Bytes, AddOptions)>, Failure> {
    let JobsBody { jobs } = json::parse(body).map_err(name_option)?;
    if jobs.is_empty() {
        return Err(Failure::invalid("jobs", "an add needs at least one job"));
    }
    if jobs.len() > ADD_JOBS_MAX {
        let message = format!("an add has at most {ADD_JOBS_MAX} jobs; send several adds");
        return Err(Failure::too_large("jobs", message));
    }
    let read = |(index, job)| {
        read_job(body, job, now).map_err(|mut failure: Failure| {
            failure.message.insert_str(0, &format!("jobs[{index}]: "));
            failure
        })
    };
    jobs.into_iter().enumerate().map(read).collect()
}

fn read_job(
    body: &Bytes,
    job: JobBody<'_>,
    now: Timestamp,
) -> Result<(Bytes, AddOptions), Failure> {
    let raw = RawOptions {
        run_at: job.run_at.map(|time| time.0),
        delay: job.delay.map(|delay| delay.0),
        priority: job.priority,
        timeout: job.timeout.map(|timeout| timeout.0),
        expires: job.expires.map(|expires| expires.0),
        unique: job.unique,
        repeat: job.repeat,
        parent: job.parent,
        then: job.then,
        durable: job.durable,
    };
    Ok((payload(body, job.payload)?, raw.check(now)?))
}

/// The text of a string, or any other value exactly as sent; copied only if it has escapes.
fn payload(body: &Bytes, raw: &RawValue) -> Result<Bytes, Failure> {
    let text = raw.get();
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return Ok(body.slice_ref(text.as_bytes()));
    };
    if !inner.contains('\\') {
        return Ok(body.slice_ref(inner.as_bytes()));
    }
    let decoded: String = serde_json::from_str(text)
        .map_err(|error| Failure::invalid("payload", format!("not a text: {error}")))?;
    Ok(decoded.into())
}

/// Moves the job's index from the field into the message, so that `field` is the option's name.
fn name_option(mut failure: Failure) -> Failure {
    let inner = |field: &str| {
        let (job, option) = field.strip_prefix("jobs")?.split_once("].")?;
        Some((format!("jobs{job}]: "), option.to_owned()))
    };
    if let Some((job, option)) = failure.field.as_deref().and_then(inner) {
        failure.message.insert_str(0, &job);
        failure.field = Some(option);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass_core::add::Expiry;

    fn parse(text: &str) -> Result<Vec<(Bytes, AddOptions)>, Failure> {
        read(&Bytes::from(text.to_owned()), Timestamp(1000))
    }

    fn payloads(list: &str) -> Vec<Bytes> {
        let jobs = parse(&format!(r#"{{"jobs":[{list}]}}"#)).unwrap();
        jobs.into_iter().map(|(payload, _)| payload).collect()
    }

    #[test]
    fn a_string_is_its_text_and_anything_else_its_json_as_sent() {
        assert_eq!(payloads(r#"{"payload":"plain ä"}"#), ["plain ä"]);
        assert_eq!(payloads(r#"{"payload":"a\n\"b\" \u00e4"}"#), ["a\n\"b\" ä"]);
        assert_eq!(payloads(r#"{"payload":""}"#), [""]);
        assert_eq!(payloads(r#"{"payload":null},{"payload":1.50}"#), ["null", "1.50"]);
        assert_eq!(payloads(r#"{"payload":{"b":1,  "a":[ ]}}"#), [r#"{"b":1,  "a":[ ]}"#]);
    }

    #[test]
    fn each_job_has_its_own_options() {
        let jobs = parse(
            r#"{"jobs":[{"payload":1,"delay":"2s","priority":7,"timeout":"1m","expires":"1h",
                "unique":"k","repeat":"hourly","parent":"5"},
                {"payload":2,"run_at":"1970-01-01T00:00:09Z","then":null}]}"#,
        );
        let options: Vec<_> = jobs.unwrap().into_iter().map(|(_, options)| options).collect();
        assert_eq!(options[0].run_at, Some(Timestamp(3000)));
        assert_eq!(options[0].priority.get(), 7);
        assert_eq!(options[0].timeout, Some(Duration::from_secs(60)));
        assert_eq!(options[0].expires, Some(Expiry::After(Duration::from_secs(3600))));
        assert_eq!(options[0].unique.as_deref(), Some("k"));
        assert_eq!(options[0].extra.repeat.as_deref(), Some("HOURLY"));
        assert_eq!(options[0].parent, windlass_core::JobId::new(5));
        let plain = AddOptions { run_at: Some(Timestamp(9000)), ..AddOptions::default() };
        assert_eq!(options[1], plain);
    }

    #[test]
    fn what_is_wrong_is_named_by_option_and_by_job() {
        let cases = [
            (r#"{"payload":1},{"payload":1,"priority":1001}"#, "priority", "jobs[1]: "),
            (r#"{"payload":1},{"payload":1,"priority":"x"}"#, "priority", "jobs[1]: "),
            (r#"{"payload":1,"delay":"5"}"#, "delay", "jobs[0]: "),
            (
                r#"{"payload":1,"delay":"5s","run_at":"2027-01-01T00:00:00Z"}"#,
                "run_at",
                "jobs[0]: ",
            ),
            (r#"{"payload":1,"timeout":"0s"}"#, "timeout", "jobs[0]: "),
            (r#"{"payload":1,"expires":"0s"}"#, "expires", "jobs[0]: "),
            (r#"{"payload":1,"unique":""}"#, "unique", "jobs[0]: "),
            (r#"{"payload":1,"then":"a|b"}"#, "then", "jobs[0]: "),
            (r#"{"payload":1,"repeat":"x"}"#, "repeat", "jobs[0]: "),
            (r#"{"payload":1,"repeat":"cron: 0 99 * * *"}"#, "repeat", "jobs[0]: "),
            (r#"{"payload":1,"parent":5}"#, "parent", "jobs[0]: "),
            (r#"{"payload":1,"parent":"-5"}"#, "parent", "jobs[0]: "),
            (r#"{"payload":1,"type":"x"}"#, "type", "jobs[0]: "),
            (r#"{"payload":"\ud800"}"#, "payload", "jobs[0]: "),
            (r#"{"priority":1}"#, "payload", "jobs[0]: "),
            ("", "jobs", "at least one"),
        ];
        for (list, field, message) in cases {
            let failure = parse(&format!(r#"{{"jobs":[{list}]}}"#)).unwrap_err();
            let seen = (failure.code, failure.field.as_deref());
            assert_eq!(seen, ("invalid_value", Some(field)), "{list}");
            assert!(failure.message.starts_with(message) || failure.message.contains(message));
        }
        assert_eq!(parse("{}").unwrap_err().field.as_deref(), Some("jobs"));
        assert_eq!(parse(r#"{"jobs":[],"more":1}"#).unwrap_err().field.as_deref(), Some("more"));
        let many = vec![r#"{"payload":1}"#; ADD_JOBS_MAX + 1].join(",");
        let failure = parse(&format!(r#"{{"jobs":[{many}]}}"#)).unwrap_err();
        assert_eq!(failure.code, "too_large");
    }
}
