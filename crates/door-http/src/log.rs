//! The log of a job: text for people, JSON for programs.

use std::fmt::Write;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::Log;
use windlass_core::key::Right;
use windlass_core::store::AttemptLog;
use windlass_engine::api::LiveLog;

use crate::answer;
use crate::door::Door;
use crate::error::Failure;
use crate::path::JobPath;
use crate::query::{Parameter, Query};
use crate::route::Route;
use crate::time::WireTime;

const FORMAT: &[Parameter] = &[Parameter { name: "format", what: "text (default) or json." }];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/{tenant}/jobs/{id}/log", Right::ReadJob, log)
            .about("jobs", "job_log", "Get the output of a job, attempt by attempt.")
            .query(FORMAT)
            .answers_text_or::<WireLog<'static>>("200", "The log."),
    ]
}

/// The kept attempts, oldest first, then the running one.
#[derive(Serialize, ToSchema)]
#[schema(as = JobLog)]
struct WireLog<'a> {
    attempts: Vec<WireAttempt<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AttemptLog)]
struct WireAttempt<'a> {
    attempt: u32,
    /// Null while it runs.
    ended_at: Option<WireTime>,
    lines: Vec<WireLine<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LogLine)]
struct WireLine<'a> {
    /// stdout, stderr, or windlass for remarks of the daemon.
    stream: &'static str,
    text: &'a str,
}

async fn log(State(door): State<Door>, job: JobPath, uri: Uri) -> Result<Response, Failure> {
    let query = Query::read(&uri, FORMAT)?;
    let json = match query.get("format") {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Failure::invalid("format", format!("'{other}' is not one of text, json")));
        }
    };
    // Read first: an attempt that ends in between is then seen twice instead of not at all.
    let live = door.engine.job_live(&job.tenant, job.id);
    let attempts = all(door.engine.job_log(&job.tenant, job.id).await?, live);
    Ok(match json {
        true => answer::json(StatusCode::OK, &wire(&attempts)),
        false => answer::text(text(&attempts)),
    })
}

/// One attempt, ended or not.
struct Attempt {
    attempt: u32,
    ended_at: Option<WireTime>,
    log: Log,
}

/// The ended attempts, followed by the running one unless it has ended by now.
fn all(ended: Vec<AttemptLog>, live: Option<LiveLog>) -> Vec<Attempt> {
    let is_over = |live: &LiveLog| {
        ended.last().is_some_and(|last| {
            last.attempt == live.attempt && live.started_at.is_some_and(|at| at <= last.ended_at)
        })
    };
    let live = live.filter(|live| !is_over(live)).map(|live| Attempt {
        attempt: live.attempt,
        ended_at: None,
        log: live.newest.into_log(usize::MAX),
    });
    let ended = ended.into_iter().map(|AttemptLog { attempt, ended_at, log }| Attempt {
        attempt,
        ended_at: Some(WireTime(ended_at)),
        log,
    });
    ended.chain(live).collect()
}

fn wire(attempts: &[Attempt]) -> WireLog<'_> {
    WireLog { attempts: attempts.iter().map(wire_attempt).collect() }
}

fn wire_attempt(kept: &Attempt) -> WireAttempt<'_> {
    let lines = kept.log.lines().map(|(stream, text)| WireLine { stream: stream.as_str(), text });
    WireAttempt { attempt: kept.attempt, ended_at: kept.ended_at, lines: lines.collect() }
}

/// Each attempt below a header line with its number and end time.
fn text(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for Attempt { attempt, ended_at, log } in attempts {
        let state = ended_at.map_or("running".into(), |at| format!("ended {at}"));
        write!(text, "--- attempt {attempt}, {state} ---\n{log}")
            .expect("writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_core::Timestamp;
    use windlass_core::log::{Newest, Stream};

    fn ended() -> Vec<AttemptLog> {
        let attempt = |attempt, stored: &str| AttemptLog {
            attempt,
            ended_at: Timestamp(1),
            log: Log::from_stored(stored.to_owned()),
        };
        vec![attempt(1, "o [stderr] a\ne b\n"), attempt(2, ""), attempt(3, "w c\n")]
    }

    fn attempts() -> Vec<Attempt> {
        all(ended(), None)
    }

    fn live(attempt: u32, started_at: i64) -> Option<LiveLog> {
        let mut newest = Newest::default();
        newest.push(Stream::Out, "so far");
        Some(LiveLog { attempt, started_at: Some(Timestamp(started_at)), newest })
    }

    #[test]
    fn the_attempt_that_runs_stands_behind_the_others() {
        let with = |live| text(&all(ended(), live));
        let running = "--- attempt 4, running ---\nso far\n";
        assert_eq!(with(live(4, 2)), format!("{}{running}", text(&attempts())));
        assert_eq!(with(live(3, 1)), text(&attempts()), "it has ended meanwhile");
        assert!(with(live(3, 2)).ends_with("so far\n"), "the third attempt of another run");
        let json = serde_json::to_value(wire(&all(Vec::new(), live(1, 1)))).unwrap();
        let lines = json!([{ "stream": "stdout", "text": "so far" }]);
        let expected = json!({ "attempt": 1, "ended_at": null, "lines": lines });
        assert_eq!(json["attempts"], json!([expected]));
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
