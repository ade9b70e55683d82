//! Jobs of an `http` handler, one or many per request.
//!
//! With `batch` above 1 in the handler's options, waiting jobs share one `POST`:
//!
//! ```text
//! POST /path                            HTTP/1.1 200 OK
//! Windlass-Batch: 3
//! Windlass-Job-Id: 11,12,13             200
//! Windlass-Attempt: 1,1,2               200 data of the second job
//!                                       400 no such user
//! payload of 11
//! payload of 12
//! payload of 13
//! ```
//! The answer has one line per job, in the same order: its status, and optionally a space and its
//! result as a string. A missing or invalid line is 500 for that job. An answer outside 2xx is the
//! status of all its jobs. A payload that contains a line feed, or that is stored in pieces, cannot
//! be one line: such a job gets its own request. An id takes up to 20 bytes of header, so a server
//! that accepts 8 KiB of headers allows a `batch` of at most 300.
//!
//! Each job has its own time limit and can be stopped alone: it is reported at once, its line of
//! the answer is ignored, and the request is dropped when no job waits for it any more.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use reqwest::Body;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::time::{Instant, sleep};
use windlass_core::runner::{Assignment, Batch, Report, Reports, Stop};
use windlass_core::{AttemptId, HandlerSpec, Json, Log, Payload, Status, TypeKey};

use crate::http::{self, BINARY, Cut, Http, HttpAnswer, TEXT, Target};
use crate::payload::PayloadReader;
use crate::process::is_wanted;
use crate::stop::Watch;

/// Maximum number of jobs in one request, whatever a handler sets.
const BATCH_MAX: u32 = 1000;

pub(crate) fn batch_max(spec: &HandlerSpec) -> u32 {
    spec.options.batch.unwrap_or(1).clamp(1, BATCH_MAX)
}

/// Runs the jobs in order, neighbours together if possible.
pub(crate) async fn run(http: &Http, batch: Batch, watch: &mut Watch, reports: &dyn Reports) {
    let target = Target::of(&batch.handler.spec);
    for plan in plan_requests(&batch.jobs, batch_max(&batch.handler.spec) as usize) {
        let jobs = wanted(plan.jobs(), watch, reports).await;
        match (&target, plan) {
            (_, _) if jobs.is_empty() => {}
            (Err(invalid), _) => refuse(&jobs, &invalid.to_string(), reports).await,
            (Ok(target), RequestPlan::Lines(_)) => {
                let request = Request { http, target, key: &batch.handler.key, reports };
                request.run(jobs, watch).await;
            }
            (Ok(target), RequestPlan::Single(job)) => {
                match PayloadReader::open(job.job.id, &job.payload, &batch.pieces).await {
                    Ok(payload) => http.run_one(target, job, payload, watch, reports).await,
                    Err(reason) => {
                        let id = job.job.id;
                        tracing::warn!(job = %id, %reason, "cannot start a job; it is returned");
                        reports.returned(job.id).await;
                    }
                }
            }
        }
    }
}

/// The content of one request.
enum RequestPlan<'a> {
    /// A request with the payload as it is.
    Single(&'a Assignment),
    /// A request with one payload per line; there is at least one.
    Lines(&'a [Assignment]),
}

impl<'a> RequestPlan<'a> {
    fn jobs(&self) -> &'a [Assignment] {
        match self {
            RequestPlan::Single(job) => std::slice::from_ref(job),
            RequestPlan::Lines(jobs) => jobs,
        }
    }
}

fn plan_requests(mut jobs: &[Assignment], jobs_max: usize) -> Vec<RequestPlan<'_>> {
    let mut plans = Vec::new();
    while let Some(first) = jobs.first() {
        let fits = |job: &&Assignment| jobs_max > 1 && line(job).is_some();
        let lines = jobs.iter().take(jobs_max).take_while(fits).count();
        let (plan, taken) = match lines {
            0 => (RequestPlan::Single(first), 1),
            _ => (RequestPlan::Lines(&jobs[..lines]), lines),
        };
        plans.push(plan);
        jobs = &jobs[taken..];
    }
    plans
}

/// The payload, if it can be a line.
fn line(assignment: &Assignment) -> Option<&Bytes> {
    match &assignment.payload {
        Payload::Inline(bytes) => memchr::memchr(b'\n', bytes).is_none().then_some(bytes),
        Payload::Pieces { .. } => None,
    }
}

/// The jobs that are not stopped yet; the others are reported.
async fn wanted<'a>(
    jobs: &'a [Assignment],
    watch: &mut Watch,
    reports: &dyn Reports,
) -> Vec<&'a Assignment> {
    let mut wanted = Vec::with_capacity(jobs.len());
    for assignment in jobs {
        if is_wanted(assignment.id, watch, reports).await {
            wanted.push(assignment);
        }
    }
    wanted
}

async fn refuse(jobs: &[&Assignment], reason: &str, reports: &dyn Reports) {
    for assignment in jobs {
        reports.started(assignment.id).await;
        let report = http::finished(Status::ERROR, None, Log::of_note(reason), Duration::ZERO);
        reports.ended(assignment.id, report).await;
    }
}

/// One request for many jobs.
struct Request<'a> {
    http: &'a Http,
    target: &'a Target,
    key: &'a TypeKey,
    reports: &'a dyn Reports,
}

impl Request<'_> {
    async fn run(&self, jobs: Vec<&Assignment>, watch: &mut Watch) {
        for assignment in &jobs {
            self.reports.started(assignment.id).await;
        }
        let started_at = Instant::now();
        let share = || started_at.elapsed() / jobs.len() as u32;
        let mut waiting: Vec<AttemptId> = jobs.iter().map(|assignment| assignment.id).collect();
        let mut exchange = Box::pin(self.send(&jobs));
        let answer = loop {
            let (next_limit, late) = next_limit(&jobs, &waiting);
            let (id, why) = tokio::select! {
                answer = &mut exchange => break answer,
                order = watch.stopped(&waiting) => order,
                () = sleep(next_limit.saturating_sub(started_at.elapsed())) => {
                    (late, Stop::TimedOut)
                }
            };
            waiting.retain(|other| *other != id);
            self.reports.ended(id, http::stopped(&self.target.url, why, share())).await;
            if waiting.is_empty() {
                return;
            }
        };
        let run_time = share();
        let lines = Lines::new(&answer);
        for (index, assignment) in jobs.iter().enumerate() {
            if waiting.contains(&assignment.id) {
                let report = self.report(&answer, &lines, index, run_time);
                self.reports.ended(assignment.id, report).await;
            }
        }
    }

    async fn send(&self, jobs: &[&Assignment]) -> Result<HttpAnswer, String> {
        let list = |part: &dyn Fn(&Assignment) -> String| {
            jobs.iter().map(|assignment| part(assignment)).collect::<Vec<_>>().join(",")
        };
        let ids = list(&|assignment| assignment.job.id.to_string());
        let attempts = list(&|assignment| assignment.job.attempt.to_string());
        let mut headers = http::identity(self.key, &ids, &attempts);
        headers.insert(HeaderName::from_static("windlass-batch"), HeaderValue::from(jobs.len()));

        let payloads: Vec<Bytes> = jobs.iter().filter_map(|job| line(job)).cloned().collect();
        let is_text = payloads.iter().all(|bytes| str::from_utf8(bytes).is_ok());
        headers.insert(CONTENT_TYPE, if is_text { TEXT } else { BINARY });
        let bytes = payloads.iter().map(|bytes| bytes.len() as u64 + 1).sum();
        let parts = payloads.into_iter().flat_map(|bytes| [bytes, Bytes::from_static(b"\n")]);
        let body = Body::wrap_stream(stream::iter(parts.map(Ok::<_, std::io::Error>)));
        self.http.post(self.target, headers, bytes, body).await
    }

    fn report(
        &self,
        answer: &Result<HttpAnswer, String>,
        lines: &Lines<'_>,
        index: usize,
        run_time: Duration,
    ) -> Report {
        let mut log = Log::new();
        let answer = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                http::note(&mut log, &self.target.url, &format!("no answer: {reason}"));
                return http::finished(Status::ERROR, None, log, run_time);
            }
        };
        http::note(&mut log, &self.target.url, &answer.status.to_string());
        if !(200..300).contains(&answer.status) {
            return http::finished(http::status_of(answer.status), None, log, run_time);
        }
        let (status, data) = match lines.get(index) {
            Ok(found) => found,
            Err(reason) => {
                http::note(&mut log, &self.target.url, &reason);
                (Status::ERROR, None)
            }
        };
        http::finished(status, data, log, run_time)
    }
}

/// The shortest time limit of the jobs that still wait, and whose it is.
fn next_limit(jobs: &[&Assignment], waiting: &[AttemptId]) -> (Duration, AttemptId) {
    jobs.iter()
        .filter(|assignment| waiting.contains(&assignment.id))
        .map(|assignment| (assignment.timeout, assignment.id))
        .min()
        .expect("at least one job waits for the answer")
}

/// The lines of an answer.
struct Lines<'a> {
    lines: Vec<&'a [u8]>,
    /// Why lines are missing, if the body was not read to its end.
    cut: Option<String>,
}

impl<'a> Lines<'a> {
    fn new(answer: &'a Result<HttpAnswer, String>) -> Lines<'a> {
        let Ok(answer) = answer else {
            return Lines { lines: Vec::new(), cut: None };
        };
        let mut lines: Vec<&[u8]> = answer.body.split(|byte| *byte == b'\n').collect();
        let cut = answer.cut.as_ref().map(Cut::to_string);
        // Text after the last line feed is a line only if the answer is complete.
        if cut.is_some() || lines.last().is_some_and(|last| last.is_empty()) {
            lines.pop();
        }
        Lines { lines, cut }
    }

    /// Status and data of one job; the error is the reason why there is none.
    fn get(&self, index: usize) -> Result<(Status, Option<Json>), String> {
        let Some(line) = self.lines.get(index) else {
            let why = self.cut.as_ref().map(|cut| format!(" ({cut})")).unwrap_or_default();
            return Err(format!("no line {} for this job in the answer{why}", index + 1));
        };
        read_line(line)
            .ok_or_else(|| format!("line {} of the answer does not begin with a status", index + 1))
    }
}

/// `200`, or `200 data`.
fn read_line(line: &[u8]) -> Option<(Status, Option<Json>)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (number, rest) = line.split_at_checked(3)?;
    if !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let status = Status::new(str::from_utf8(number).ok()?.parse().ok()?)?;
    let data = match rest {
        [] | [b' '] => None,
        [b' ', data @ ..] => Some(Json::string(&String::from_utf8_lossy(data))),
        _ => return None,
    };
    Some((status, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str, cut: Option<Cut>) -> Result<HttpAnswer, String> {
        Ok(HttpAnswer { status: 200, is_json: false, body: body.into(), cut })
    }

    #[test]
    fn a_line_begins_with_a_status_and_goes_on_with_data() {
        let check = |line: &str, status, data: Option<&str>| {
            let (got, got_data) = read_line(line.as_bytes()).unwrap();
            assert_eq!(got.get(), status);
            assert_eq!(got_data.as_ref().map(Json::as_str), data, "{line:?}");
        };
        check("200", 200, None);
        check("404 ", 404, None);
        check("100 later\r", 100, Some("\"later\""));
        check("200  two blanks", 200, Some("\" two blanks\""));
        for bad in ["", "2", "20", "2000", "200data", "ok", "099", "600", "-20", "+20 x", " 200"] {
            assert_eq!(read_line(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn of_a_broken_answer_the_whole_lines_count() {
        let whole = answer("200\n400 x", None);
        assert_eq!(Lines::new(&whole).get(1).unwrap().0.get(), 400);
        assert!(Lines::new(&whole).get(2).is_err());
        let broken = answer("200\n400 x", Some(Cut::Broken("reset".into())));
        assert!(Lines::new(&broken).get(0).is_ok());
        assert!(Lines::new(&broken).get(1).unwrap_err().contains("reset"));
    }
}
