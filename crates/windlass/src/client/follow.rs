//! Follows jobs until they end: prints output, progress and outcome of each.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::task::JoinSet;

use windlass_core::log::Stream;

use super::http::Daemon;
use super::log::{self, Line, Read};
use super::{cell, is_ended, when};
use crate::output;

/// Jobs that are followed at the same time; the others wait, since the daemon keeps their logs.
const AT_ONCE_MAX: usize = 32;
/// How often an unfinished job is polled.
const LOOK: Duration = Duration::from_millis(500);
/// The log's note about a script or program that ended normally.
const EXIT_OK: &str = "exit code 0";
/// Before lines of Windlass.
const SIGN: &str = "windlass: ";
/// Longer results are cut.
const RESULT_CHARS_MAX: usize = 2000;

/// Follows all jobs; returns one sentence per job that did not succeed. With `json`, each job is
/// printed as one line of JSON when it ends, and nothing else goes to standard output.
pub(super) async fn all(
    daemon: &Arc<Daemon>,
    json: bool,
    ids: Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let is_one = ids.len() == 1;
    let mut waiting: VecDeque<_> = ids.into_iter().enumerate().collect();
    let mut followed: JoinSet<anyhow::Result<Option<String>>> = JoinSet::new();
    let mut failed = Vec::new();
    loop {
        while followed.len() < AT_ONCE_MAX {
            let Some((at, id)) = waiting.pop_front() else { break };
            // A single job's lines need no label.
            let label = if is_one { String::new() } else { format!("[{}] ", at + 1) };
            let job = Follow { daemon: Arc::clone(daemon), id, label, json };
            followed.spawn(job.run());
        }
        let Some(ended) = followed.join_next().await else { return Ok(failed) };
        if let Some(sentence) = ended.context("a job could not be followed")?? {
            if !is_one {
                output::print_error(&sentence);
            }
            failed.push(sentence);
        }
    }
}

/// One followed job.
struct Follow {
    daemon: Arc<Daemon>,
    id: String,
    /// Prefix of each line.
    label: String,
    json: bool,
}

impl Follow {
    /// Returns the reason if the job did not succeed.
    async fn run(self) -> anyhow::Result<Option<String>> {
        let mut read = Read::default();
        let mut over = 0;
        let mut progress = Value::Null;
        loop {
            // Fetching the state first guarantees that the log of an ended job is complete.
            let job = self.daemon.job_wait(&self.id, LOOK).await?;
            let is_ended = is_ended(&job)?;
            if job["progress"] != progress {
                progress = job["progress"].clone();
                self.show_progress(&progress);
            }
            let log = log::get(&self.daemon, &self.id).await?;
            for new in read.news(&log) {
                new.lines.iter().try_for_each(|line| self.write(line))?;
            }
            if is_ended {
                return self.end(&job);
            }
            if attempts_over(&job) > over {
                over = attempts_over(&job);
                self.show_pause(&job);
            }
        }
    }

    fn write(&self, line: &Line) -> io::Result<()> {
        let Line { stream, text } = line;
        match stream {
            // With `json`, standard output is reserved for the JSON.
            Stream::Out if !self.json => {
                output::print(&format!("{}{}\n", self.label, line.of_job(&[SIGN])))?;
            }
            Stream::Out | Stream::Err => self.note(&line.of_job(&[SIGN])),
            // A normal exit is not worth a line.
            Stream::Note if text == EXIT_OK => {}
            Stream::Note => self.note(&format!("{SIGN}{text}")),
        }
        Ok(())
    }

    fn note(&self, text: &str) {
        output::note(&format!("{}{text}\n", self.label));
    }

    fn show_progress(&self, progress: &Value) {
        if let Some(percent) = progress["percent"].as_f64() {
            let message = output::plain(progress["message"].as_str().unwrap_or_default());
            self.note(format!("{percent} % {message}").trim_end());
        }
    }

    /// Prints when the next attempt is due, so that waiting does not look like hanging.
    fn show_pause(&self, job: &Value) {
        if job["state"] == "queued" {
            let when = when::ago(&job["run_at"], when::now());
            let (attempt, status) = (cell(&job["attempt"]), cell(&job["exitcode"]));
            self.note(&format!("attempt {attempt} ended with {status}, the next one is {when}"));
        }
    }

    fn end(&self, job: &Value) -> anyhow::Result<Option<String>> {
        if self.json {
            output::print(&format!("{job}\n"))?;
        } else if !job["result"].is_null() {
            let result = output::plain(&output::cut(&cell(&job["result"]), RESULT_CHARS_MAX));
            self.note(&format!("result: {result}"));
        }
        Ok(failure(job).map(|how| format!("{}job {} {how}", self.label, self.id)))
    }
}

/// Attempts that have ended.
fn attempts_over(job: &Value) -> u64 {
    let attempt = job["attempt"].as_u64().unwrap_or_default();
    if job["state"] == "running" { attempt.saturating_sub(1) } else { attempt }
}

/// Describes how an unsuccessful job ended.
fn failure(job: &Value) -> Option<String> {
    match job["state"].as_str() {
        Some("finished") => None,
        Some("cancelled") => Some("was cancelled".into()),
        _ => {
            let status = cell(&job["exitcode"]);
            let attempts = match job["attempt"].as_u64() {
                None | Some(0) => ", before its first attempt".into(),
                Some(1) => String::new(),
                Some(attempts) => format!(", after {attempts} attempts"),
            };
            Some(format!("failed with {status}{attempts}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failure_is_one_sentence() {
        let job =
            |state: &str, tries: u64| json!({ "state": state, "attempt": tries, "exitcode": 500 });
        assert_eq!(failure(&job("finished", 1)), None);
        assert_eq!(failure(&job("cancelled", 0)).unwrap(), "was cancelled");
        assert_eq!(failure(&job("failed", 1)).unwrap(), "failed with 500");
        assert_eq!(failure(&job("failed", 3)).unwrap(), "failed with 500, after 3 attempts");
        let never = failure(&job("failed", 0)).unwrap();
        assert_eq!(never, "failed with 500, before its first attempt");
    }

    #[test]
    fn the_running_attempt_is_not_over() {
        let job = |state: &str| attempts_over(&json!({ "state": state, "attempt": 2 }));
        assert_eq!((job("running"), job("queued"), job("failed")), (1, 2, 2));
    }
}
