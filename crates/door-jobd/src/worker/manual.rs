//! Jobs that a client waits for.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use windlass_core::launch::Output;

use super::retry::Failures;
use super::state::ManualResult;
use super::{STOPS, Worker};
use crate::table::{End, Manual, TableError};
use crate::wire::{Json, Object};

/// Bytes of output in one answer; beyond that output is omitted. Escapes make it longer.
const ANSWER_OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long accepting is retried while the database is unavailable.
const ACCEPT_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a waiting client checks whether the database still answers.
const SILENCE_CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Runs the jobs with these ids and answers when all have ended. They continue if the client
/// leaves.
pub(super) async fn run(worker: &Worker, data: &Json) -> Result<Json, String> {
    let requested = RequestedIds::new(worker, read_ids(data)?)?;
    let mut errors: Vec<(String, String)> = requested
        .other
        .iter()
        .map(|id| (id.js_string(), format!("job {} not found", id.js_string())))
        .collect();
    let mut waiting = Vec::new();
    let mut rows = Vec::new();
    for answer in accept(worker, &requested.ids).await.map_err(|error| error.to_string())? {
        let (id, error) = match answer {
            Manual::Accepted(row) => {
                let (waiter, result) = oneshot::channel();
                waiting.push((row.id, result));
                rows.push((row, waiter));
                continue;
            }
            Manual::Missing(id) => (id, format!("job {id} not found")),
            Manual::WrongStatus { id, status } => (id, format!("status = {status} != manual")),
            Manual::UnknownTarget { id, target } => {
                (id, format!("target '{target}' not found (job id={id})"))
            }
        };
        errors.push((id.to_string(), error));
    }
    let back = worker.state().accepted(rows);
    worker.start.notify_one();
    worker.hand_back(&back).await;
    drop(requested);
    let mut results = Vec::new();
    for (id, result) in waiting {
        results.push((id, wait(worker, id, result).await));
    }
    Ok(answer(results, errors))
}

/// Waits for the end of a job, but not for a database that does not answer.
async fn wait(
    worker: &Worker,
    id: u64,
    mut result: oneshot::Receiver<ManualResult>,
) -> ManualResult {
    loop {
        let given_up = worker.state().give_up_wait(id, Instant::now());
        if let Some(reason) = given_up {
            return Err(reason);
        }
        if let Ok(result) = timeout(SILENCE_CHECK_PAUSE, &mut result).await {
            return result.unwrap_or_else(|_| Err(STOPS.to_owned()));
        }
    }
}

/// Requested ids, until the client waits for their jobs or has been refused.
struct RequestedIds<'a> {
    worker: &'a Worker,
    ids: Vec<u64>,
    /// Numbers that no job can have.
    other: Vec<Json>,
}

impl RequestedIds<'_> {
    fn new(worker: &Worker, given: Vec<Json>) -> Result<RequestedIds<'_>, String> {
        let mut requested = RequestedIds { worker, ids: Vec::new(), other: Vec::new() };
        let mut state = worker.state();
        for id in given {
            match (&id, id.as_u64()) {
                (Json::Number(_), Some(id)) => {
                    state.refuse_awaited(id)?;
                    requested.ids.push(id);
                }
                (Json::Number(_), None) => requested.other.push(id),
                (other, _) => {
                    return Err(format!("all ids must be numbers, got {}", other.type_name()));
                }
            }
        }
        state.reserve_ids(&requested.ids);
        Ok(requested)
    }
}

impl Drop for RequestedIds<'_> {
    fn drop(&mut self) {
        self.worker.state().release_ids(&self.ids);
        self.worker.changed();
    }
}

/// The ids without duplicates. A value that is not a list counts as an empty list.
fn read_ids(data: &Json) -> Result<Vec<Json>, String> {
    let ids = match data.get("ids") {
        Some(Json::Array(ids)) => ids.clone(),
        Some(Json::String(text)) if !text.is_empty() => vec![Json::from(text)],
        _ => Vec::new(),
    };
    if ids.is_empty() {
        return Err("rows is not iterable".to_owned());
    }
    let mut seen = std::collections::HashSet::new();
    Ok(ids.into_iter().filter(|id| seen.insert(id.to_string())).collect())
}

/// Retries for a while if the database is unavailable.
async fn accept(worker: &Worker, ids: &[u64]) -> Result<Vec<Manual>, TableError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let targets = worker.state().queue.names();
    let mut failures = Failures::new(&worker.log, "accepting jobs that a client asks for");
    let give_up_at = Instant::now() + ACCEPT_TIME_MAX;
    loop {
        match worker.table.accept_manual(ids, &targets, worker.rules.lease).await {
            Err(TableError::Away(reason)) if Instant::now() < give_up_at => {
                failures.pause(TableError::Away(reason)).await;
            }
            other => return other,
        }
    }
}

/// How a job ended, for its client, with the values of the row.
pub(super) fn result(end: &End) -> Json {
    let mut stderr = text(&end.stderr);
    if let Some(note) = &end.note {
        if !stderr.is_empty() && !stderr.ends_with('\n') {
            stderr.push('\n');
        }
        stderr.push_str(note);
    }
    Json::from([
        ("result", if end.ok { "ok" } else { "fail" }.into()),
        ("code", end.code.into()),
        ("signal", end.signal.clone().into()),
        ("stdout", text(&end.stdout).into()),
        ("stderr", stderr.into()),
    ])
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.bytes).into_owned();
    if output.dropped > 0 {
        text.push_str(&format!("\n[cut: {} bytes]", output.dropped));
    }
    text
}

fn answer(results: Vec<(u64, ManualResult)>, mut errors: Vec<(String, String)>) -> Json {
    let (mut jobs, mut bytes) = (Vec::new(), 0);
    for (id, result) in results {
        match result {
            Ok(job) => {
                let streams = ["stdout", "stderr"].map(|name| job.get(name).and_then(Json::as_str));
                bytes += streams.into_iter().flatten().map(str::len).sum::<usize>();
                let fits = bytes <= ANSWER_OUTPUT_BYTES_MAX;
                jobs.push((id.to_string(), if fits { job } else { without_output(job) }));
            }
            Err(reason) => errors.push((id.to_string(), reason)),
        }
    }
    let mut answer = Object::new();
    if !jobs.is_empty() {
        answer.insert("jobs", jobs.into_iter().collect::<Object>());
    }
    if !errors.is_empty() {
        answer.insert("errors", errors.into_iter().collect::<Object>());
    }
    answer.into()
}

fn without_output(job: Json) -> Json {
    let Json::Object(mut job) = job else { return job };
    job.insert("stdout", "");
    job.insert("stderr", "[the output of all jobs together is too long for one answer]\n");
    job.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    fn end(stderr: &[u8], note: Option<&str>) -> End {
        End {
            id: 3,
            ok: false,
            code: None,
            signal: Some("SIGKILL".into()),
            stdout: Output { bytes: b"out".to_vec(), dropped: 2 },
            stderr: Output { bytes: stderr.to_vec(), dropped: 0 },
            note: note.map(str::to_owned),
            finished_at: 0,
        }
    }

    #[test]
    fn ids_are_a_list_without_repetitions() {
        for (data, ids) in [
            (r#"{"ids":[3,1,3,1.0,"x"]}"#, Ok(r#"[3,1,"x"]"#)),
            (r#"{"ids":"12"}"#, Ok(r#"["12"]"#)),
            (r#"{"ids":[]}"#, Err("rows is not iterable")),
            (r#"{"ids":5}"#, Err("rows is not iterable")),
            (r#"{"ids":null}"#, Err("rows is not iterable")),
            ("{}", Err("rows is not iterable")),
        ] {
            let read = read_ids(&read(data)).map(|ids| Json::from(ids).to_string());
            assert_eq!(read, ids.map(str::to_owned).map_err(str::to_owned), "{data}");
        }
    }

    #[test]
    fn a_client_is_told_the_output_with_what_we_have_to_say() {
        let told = result(&end(b"e\xff", Some("why")));
        let expected = "{\"result\":\"fail\",\"code\":null,\"signal\":\"SIGKILL\",\
             \"stdout\":\"out\\n[cut: 2 bytes]\",\"stderr\":\"e\u{fffd}\\nwhy\"}";
        assert_eq!(told.to_string(), expected);
    }

    #[test]
    fn an_answer_has_jobs_and_errors_when_there_are_any() {
        let text = |told, errors: &[(&str, &str)]| {
            let errors = errors.iter().map(|(id, why)| ((*id).to_owned(), (*why).to_owned()));
            answer(told, errors.collect()).to_string()
        };
        let job = || Ok(Json::from([("result", "ok".into())]));
        assert_eq!(text(vec![(7, job())], &[]), r#"{"jobs":{"7":{"result":"ok"}}}"#);
        let both = r#"{"jobs":{"7":{"result":"ok"}},"errors":{"8":"why","1.5":"none"}}"#;
        assert_eq!(text(vec![(7, job()), (8, Err("why".into()))], &[("1.5", "none")]), both);
        assert_eq!(text(Vec::new(), &[("1", "none")]), r#"{"errors":{"1":"none"}}"#);
    }

    #[test]
    fn more_output_than_an_answer_takes_is_left_out() {
        let long = "x".repeat(ANSWER_OUTPUT_BYTES_MAX / 2);
        let job = || Json::from([("stdout", Json::from(&long)), ("stderr", "e".into())]);
        let told = (1..=3).map(|id| (id, Ok(job()))).collect();
        let answer = answer(told, Vec::new());
        let length = |id| {
            let job = answer.get("jobs").and_then(|jobs| jobs.get(id));
            job.and_then(|job| job.get("stdout")).and_then(Json::as_str).map(str::len)
        };
        assert_eq!(length("1"), Some(long.len()));
        assert_eq!((length("2"), length("3")), (Some(0), Some(0)));
    }
}
