//! The log of a job: text for people, JSON for programs.

use std::fmt::Write;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::store::AttemptLog;

use crate::answer;
use crate::door::Door;
use crate::error::Failure;
use crate::path::JobPath;
use crate::query::{Parameter, Query};
use crate::route::Route;
use crate::time::WireTime;

const FORMAT: &[Parameter] = &[Parameter { name: "format", what: "text (if not given) or json." }];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/{tenant}/jobs/{id}/log", log)
            .about("jobs", "job_log", "The output of a job, attempt by attempt.")
            .query(FORMAT)
            .answers_text_or::<WireLog<'static>>("200", "The log."),
    ]
}

/// The kept attempts, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = JobLog)]
struct WireLog<'a> {
    attempts: Vec<WireAttempt<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AttemptLog)]
struct WireAttempt<'a> {
    attempt: u32,
    ended_at: WireTime,
    lines: Vec<WireLine<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LogLine)]
struct WireLine<'a> {
    /// stdout, stderr, or windlass for a remark of its own.
    stream: &'static str,
    text: &'a str,
}

async fn log(State(door): State<Door>, job: JobPath, uri: Uri) -> Result<Response, Failure> {
    let query = Query::read(&uri, FORMAT)?;
    let json = match query.get("format") {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Failure::invalid("format", format!("'{other}' is none of text, json")));
        }
    };
    let attempts = door.engine.job_log(&job.tenant, job.id).await?;
    Ok(match json {
        true => answer::json(StatusCode::OK, &wire(&attempts)),
        false => answer::text(text(&attempts)),
    })
}

fn wire(attempts: &[AttemptLog]) -> WireLog<'_> {
    WireLog { attempts: attempts.iter().map(wire_attempt).collect() }
}

fn wire_attempt(kept: &AttemptLog) -> WireAttempt<'_> {
    let lines = kept.log.lines().map(|(stream, text)| WireLine { stream: stream.as_str(), text });
    WireAttempt { attempt: kept.attempt, ended_at: WireTime(kept.ended_at), lines: lines.collect() }
}

/// Each attempt under a line of its own that says which it was and when it ended.
fn text(attempts: &[AttemptLog]) -> String {
    let mut text = String::new();
    for AttemptLog { attempt, ended_at, log } in attempts {
        let ended_at = WireTime(*ended_at);
        write!(text, "--- attempt {attempt}, ended {ended_at} ---\n{log}")
            .expect("writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_core::{Log, Timestamp};

    fn attempts() -> Vec<AttemptLog> {
        let attempt = |attempt, stored: &str| AttemptLog {
            attempt,
            ended_at: Timestamp(1),
            log: Log::from_stored(stored.to_owned()),
        };
        vec![attempt(1, "o [stderr] a\ne b\n"), attempt(2, ""), attempt(3, "w c\n")]
    }

    #[test]
    fn the_text_goes_attempt_by_attempt() {
        let at = "1970-01-01T00:00:00.001Z";
        let expected = format!(
            "--- attempt 1, ended {at} ---\n[stderr] a\n[stderr] b\n\
             --- attempt 2, ended {at} ---\n--- attempt 3, ended {at} ---\n[windlass] c\n"
        );
        assert_eq!(text(&attempts()), expected);
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn the_json_tells_the_streams_apart_whatever_the_lines_say() {
        let at = "1970-01-01T00:00:00.001Z";
        let expected = json!({ "attempts": [
            { "attempt": 1, "ended_at": at, "lines": [
                { "stream": "stdout", "text": "[stderr] a" },
                { "stream": "stderr", "text": "b" },
            ] },
            { "attempt": 2, "ended_at": at, "lines": [] },
            { "attempt": 3, "ended_at": at, "lines": [{ "stream": "windlass", "text": "c" }] },
        ] });
        assert_eq!(serde_json::to_value(wire(&attempts())).unwrap(), expected);
    }
}
