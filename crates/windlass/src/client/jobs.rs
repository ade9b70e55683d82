//! `windlass jobs …`.

use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use windlass_core::JobId;
use windlass_core::limit::PAGE_JOBS_MAX;
use windlass_core::log::Stream;

use super::http::{self, Daemon, type_name};
use super::log::{self, Line, NewLines, Read};
use super::{Show, cell, cell_if_there, is_ended, jobs, when};
use crate::Usage;
use crate::cli::{Jobs, JobsList, JobsLog, JobsRequeue};
use crate::output::{self, Table, long, number, text};

/// A page may be short although there are more jobs, so listing continues, within this bound.
const PAGES_MAX: usize = 10_000;
/// How often a followed log is polled.
const FOLLOW: Duration = Duration::from_secs(1);
/// Longer results are cut.
const RESULT_CHARS_MAX: usize = 2000;

pub(super) async fn run(daemon: &Daemon, show: Show, command: Jobs) -> anyhow::Result<()> {
    match command {
        Jobs::List(wanted) => list(daemon, show, &wanted).await,
        Jobs::Show { id } => show_one(daemon, show, &id).await,
        Jobs::Log(wanted) => log(daemon, show, &wanted).await,
        Jobs::Cancel { ids } => change(daemon, show, &ids, Change::Cancel).await,
        Jobs::Retry { ids } => change(daemon, show, &ids, Change::Retry).await,
        Jobs::Rm { ids } => change(daemon, show, &ids, Change::Remove).await,
        Jobs::Requeue(wanted) => requeue(daemon, show, &wanted).await,
    }
}

async fn list(daemon: &Daemon, show: Show, wanted: &JobsList) -> anyhow::Result<()> {
    if wanted.limit == 0 {
        bail!(Usage("--limit must be at least 1".into()));
    }
    let (jobs, next) = pages(daemon, wanted).await?;
    let now = when::now();
    let mut table = Table::new(&[
        text("ID"),
        long("TYPE"),
        text("STATE"),
        number("ATTEMPT"),
        text("CODE"),
        number("STATUS"),
        number("BYTES"),
        text("ADDED"),
        text("RAN"),
    ]);
    for job in &jobs {
        table.row(vec![
            cell(&job["id"]),
            cell(&job["type"]),
            state(job, now),
            cell(&job["attempt"]),
            cell(&job["code"]),
            cell(&job["exitcode"]),
            cell(&job["payload_bytes"]),
            when::ago(&job["created_at"], now),
            ran(job),
        ]);
    }
    show.table(&json!({ "jobs": jobs, "next": next }), table, "no matching jobs")?;
    if let (Some(cursor), false) = (next, show.json) {
        output::note(&format!("there are more jobs; continue with --after {cursor}\n"));
    }
    Ok(())
}

/// Fetches pages until there are enough jobs; also returns the cursor of the rest.
async fn pages(daemon: &Daemon, wanted: &JobsList) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let path = daemon.path(&["jobs"]);
    let mut jobs = Vec::new();
    let mut after = wanted.after.clone();
    for _ in 0..PAGES_MAX {
        let limit = (wanted.limit - jobs.len()).min(PAGE_JOBS_MAX).to_string();
        let query = [
            ("limit", Some(limit.as_str())),
            ("after", after.as_deref()),
            ("type", wanted.name.as_deref()),
            ("state", wanted.state.map(|state| state.as_str())),
        ];
        let query: Vec<_> = query.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
        let mut page = daemon.get(&path, &query).await?;
        let Value::Array(more) = page["jobs"].take() else {
            bail!("the daemon's answer to a list has no jobs");
        };
        jobs.extend(more);
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || jobs.len() >= wanted.limit {
            break;
        }
    }
    Ok((jobs, after))
}

/// A queued job that is not due yet says when it is.
fn state(job: &Value, now: jiff::Timestamp) -> String {
    let state = cell(&job["state"]);
    match when::read(&job["run_at"]) {
        Some(due) if due > now && state == "queued" => {
            format!("queued {}", when::ago(&job["run_at"], now))
        }
        _ => state,
    }
}

fn ran(job: &Value) -> String {
    match (when::read(&job["started_at"]), when::read(&job["finished_at"])) {
        (Some(start), Some(end)) => {
            when::two_units((end.as_millisecond() - start.as_millisecond()).max(0))
        }
        _ => "-".into(),
    }
}

async fn show_one(daemon: &Daemon, show: Show, id: &str) -> anyhow::Result<()> {
    let text = daemon.get_text(&daemon.path(&["jobs", job_id(id)?])).await?;
    if show.json {
        return Ok(output::print_json(&http::fields(&text)?)?);
    }
    let job = http::job(&text)?;
    let now = when::now();
    let text = |name: &str| cell_if_there(&job[name]);
    let time = |name: &str| when::absolute_and_relative(&job[name], now);
    let result = text("result").map(|result| output::cut(&result, RESULT_CHARS_MAX));
    let bytes = text("payload_bytes").map(|bytes| format!("{bytes} bytes"));
    let progress = &job["progress"];
    let progress = progress["percent"]
        .as_f64()
        .map(|percent| format!("{percent} % {}", progress["message"].as_str().unwrap_or_default()));
    let pairs = output::pairs(&[
        ("id", text("id")),
        ("tenant", text("tenant")),
        ("type", text("type")),
        ("state", text("state")),
        ("attempt", text("attempt")),
        ("code", text("code")),
        ("status", text("exitcode")),
        ("priority", text("priority")),
        ("payload", bytes),
        ("created", time("created_at")),
        ("run at", time("run_at")),
        ("started", time("started_at")),
        ("finished", time("finished_at")),
        ("expires", time("expires_at")),
        ("lock", text("lock")),
        ("progress", progress),
        ("parent", text("parent")),
        ("repeat", text("repeat")),
        ("then", text("then")),
        ("result", result),
    ]);
    Ok(output::print(&pairs)?)
}

/// The job's standard output goes to standard output, everything else to standard error.
async fn log(daemon: &Daemon, show: Show, wanted: &JobsLog) -> anyhow::Result<()> {
    let id = job_id(&wanted.id)?;
    let mut read = Read::default();
    loop {
        // Fetching the state first guarantees that the log of an ended job is complete.
        let ended = !wanted.follow || is_ended(&daemon.job_wait(id, FOLLOW).await?)?;
        if show.json && ended {
            let path = daemon.path(&["jobs", id, "log"]);
            let log = daemon.get(&path, &[("format", "json")]).await?;
            return Ok(output::print_json(&log)?);
        }
        if !show.json {
            let log = log::get(daemon, id).await?;
            read.news(&log).iter().try_for_each(write_news)?;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Before lines of Windlass in a log, and before the output of each attempt.
const SIGN: &str = "[windlass] ";
const ATTEMPT: &str = "--- attempt ";

fn write_news(news: &NewLines<'_>) -> io::Result<()> {
    if news.is_new {
        let ended = news.attempt.ended_at.as_ref().map(|at| format!("ended {at}"));
        let state = ended.as_deref().unwrap_or("running");
        output::note(&format!("{ATTEMPT}{}, {state} ---\n", news.attempt.attempt));
    }
    // Consecutive lines for the same stream are written together.
    for lines in news.lines.chunk_by(|a, b| a.stream == b.stream) {
        let shown = |line: &Line| match line.stream {
            Stream::Note => format!("{SIGN}{}\n", line.text),
            Stream::Out | Stream::Err => line.of_job(&[SIGN, ATTEMPT]) + "\n",
        };
        let text: String = lines.iter().map(shown).collect();
        match lines[0].stream {
            Stream::Out => output::print(&text)?,
            Stream::Err | Stream::Note => output::note(&text),
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Cancel,
    Retry,
    Remove,
}

impl Change {
    fn done(self) -> &'static str {
        match self {
            Change::Cancel => "cancelled",
            Change::Retry => "queued",
            Change::Remove => "removed",
        }
    }
}

/// Changes each job; a refused one does not stop the others.
async fn change(daemon: &Daemon, show: Show, ids: &[String], change: Change) -> anyhow::Result<()> {
    let mut results = Vec::new();
    let mut refused = Vec::new();
    for id in ids {
        match change_one(daemon, id, change).await {
            Ok(()) => results.push(json!({ "id": id, "done": change.done() })),
            Err(error) => {
                results.push(json!({ "id": id, "error": format!("{error:#}") }));
                refused.push(format!("{id}: {error:#}"));
            }
        }
    }
    show.answer(&Value::from(results.clone()), || {
        let done = results.iter().filter(|result| result["error"].is_null());
        done.map(|result| format!("{} {}\n", cell(&result["id"]), change.done())).collect()
    })?;
    match &refused[..] {
        [] => Ok(()),
        [only] => bail!("{only}"),
        [first, ..] => bail!("{} of {} jobs were refused, first {first}", refused.len(), ids.len()),
    }
}

async fn change_one(daemon: &Daemon, id: &str, change: Change) -> anyhow::Result<()> {
    let id = job_id(id)?;
    match change {
        Change::Cancel => daemon.post(&daemon.path(&["jobs", id, "cancel"]), None).await?,
        Change::Retry => daemon.post(&daemon.path(&["jobs", id, "retry"]), None).await?,
        Change::Remove => daemon.delete(&daemon.path(&["jobs", id])).await?,
    };
    Ok(())
}

async fn requeue(daemon: &Daemon, show: Show, wanted: &JobsRequeue) -> anyhow::Result<()> {
    let name = type_name(&wanted.name)?;
    let body = json!({ "type": name, "state": wanted.state.as_str(), "limit": wanted.limit });
    let answer = daemon.post(&daemon.path(&["jobs", "requeue"]), Some(&body)).await?;
    show.answer(&answer, || {
        format!("queued again: {}\n", jobs(answer["requeued"].as_u64().unwrap_or_default()))
    })
}

fn job_id(id: &str) -> anyhow::Result<&str> {
    id.parse::<JobId>()
        .with_context(|| format!("'{}' is not a valid job ID", output::plain(id)))?;
    Ok(id)
}
