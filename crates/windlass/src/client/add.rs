//! `windlass add`: payloads from the command line go into one request, lines from standard input
//! into as many as needed.

use std::io::{self, BufReader, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use windlass_core::limit::KEY_BYTES_MAX;

use super::chunk::Chunks;
use super::http::{AddRequest, Daemon, type_name};
use super::{Show, cell, is_ended, jobs};
use crate::cli::Add;
use crate::{Usage, output};

/// Bytes read from standard input at a time.
const READ_BYTES: usize = 1024 * 1024;
/// How long one request waits for a job to end, before the next request.
const WAIT: Duration = Duration::from_secs(30);
/// Room for the number that later requests append to the idempotency key.
const KEY_NUMBER_BYTES_MAX: usize = 12;

pub(super) async fn run(daemon: &Daemon, show: Show, add: &Add) -> anyhow::Result<()> {
    type_name(&add.name)?;
    let mut ids = Ids::new(show, add.wait);
    let sent = if add.payloads.is_empty() {
        if io::stdin().is_terminal() {
            bail!(Usage("give payloads as arguments, or lines on standard input".into()));
        }
        from_input(daemon, add, &mut ids).await
    } else {
        from_arguments(daemon, add, &mut ids).await
    };
    match sent {
        Ok(()) if add.wait => {
            // Without their ids, a caller would add them again.
            let waited = wait(daemon, show, &ids.kept).await;
            match waited.with_context(|| added_text(&ids.kept))? {
                0 => Ok(()),
                count => bail!("{count} of {} did not succeed", jobs(ids.kept.len() as u64)),
            }
        }
        Ok(()) => Ok(ids.end()?),
        Err(error) if ids.count == 0 => Err(error),
        Err(error) => {
            ids.end()?;
            Err(error.context(format!("stopped after adding {}", jobs(ids.count as u64))))
        }
    }
}

async fn from_arguments(daemon: &Daemon, add: &Add, ids: &mut Ids) -> anyhow::Result<()> {
    let options: Map<_, _> = options(add)
        .into_iter()
        .map(|(name, value)| {
            // The only option that is a number.
            let number = (name == "priority").then(|| value.parse::<u16>().ok()).flatten();
            (name.to_owned(), number.map_or(Value::from(value), Value::from))
        })
        .collect();
    let jobs: Vec<Value> = add
        .payloads
        .iter()
        .map(|payload| {
            let mut job = options.clone();
            job.insert("payload".into(), payload.as_str().into());
            Value::Object(job)
        })
        .collect();
    let request = AddRequest {
        content_type: "application/json",
        body: json!({ "jobs": jobs }).to_string().into_bytes(),
        query: &[],
        idempotency_key: add.idempotency_key.as_deref(),
    };
    ids.take(daemon.add(&add.name, request).await?)
}

async fn from_input(daemon: &Daemon, add: &Add, ids: &mut Ids) -> anyhow::Result<()> {
    let query = options(add);
    let key = add.idempotency_key.as_deref();
    let key_bytes_max = KEY_BYTES_MAX - KEY_NUMBER_BYTES_MAX;
    if key.is_some_and(|key| key.len() > key_bytes_max) {
        bail!("for standard input, an idempotency key has at most {key_bytes_max} bytes");
    }
    let mut chunks = Chunks::new(BufReader::with_capacity(READ_BYTES, io::stdin().lock()));
    let mut requests = 0_u64;
    let mut lines = 0;
    while let Some(chunk) = chunks.next().context("cannot read standard input")? {
        requests += 1;
        lines += chunk.lines;
        let key =
            key.map(|key| if requests == 1 { key.to_owned() } else { format!("{key}.{requests}") });
        let request = AddRequest {
            content_type: "text/plain",
            body: chunk.body,
            query: &query,
            idempotency_key: key.as_deref(),
        };
        ids.take(daemon.add(&add.name, request).await?)?;
        output::progress(&format!("added {}", jobs(lines as u64)));
    }
    output::progress("");
    Ok(())
}

fn options(add: &Add) -> Vec<(&'static str, String)> {
    let all = [
        ("delay", add.delay.clone()),
        ("run_at", add.run_at.clone()),
        ("priority", add.priority.map(|number| number.to_string())),
        ("timeout", add.timeout.clone()),
        ("expires", add.expires.clone()),
        ("unique", add.unique.clone()),
        ("repeat", add.repeat.clone()),
        ("parent", add.parent.clone()),
        ("then", add.then.clone()),
        ("durable", add.durable.clone()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Prints ids as they arrive, without keeping them in memory unless `--wait` needs them.
struct Ids {
    show: Show,
    keep: bool,
    kept: Vec<String>,
    count: usize,
}

impl Ids {
    fn new(show: Show, keep: bool) -> Ids {
        Ids { show, keep, kept: Vec::new(), count: 0 }
    }

    fn take(&mut self, ids: Vec<String>) -> anyhow::Result<()> {
        if !self.keep {
            let mut out = io::stdout().lock();
            for (at, id) in ids.iter().enumerate() {
                match (self.show.json, self.count + at) {
                    (false, _) => writeln!(out, "{id}")?,
                    (true, 0) => write!(out, "{{\"ids\":[\"{id}\"")?,
                    (true, _) => write!(out, ",\"{id}\"")?,
                }
            }
            out.flush()?;
        }
        self.count += ids.len();
        if self.keep {
            self.kept.extend(ids);
        }
        Ok(())
    }

    /// Closes the list.
    fn end(&self) -> io::Result<()> {
        match (self.show.json && !self.keep, self.count) {
            (true, 0) => output::print("{\"ids\":[]}\n"),
            (true, _) => output::print("]}\n"),
            (false, _) => Ok(()),
        }
    }
}

fn added_text(ids: &[String]) -> String {
    match ids {
        [] => "added nothing".into(),
        [id] => format!("added {id}, and stopped waiting for it"),
        [first, ..] => {
            format!("added {} from {first} on, and stopped waiting", jobs(ids.len() as u64))
        }
    }
}

/// Waits for each job in turn; returns how many did not succeed.
async fn wait(daemon: &Daemon, show: Show, ids: &[String]) -> anyhow::Result<usize> {
    let mut ended = Vec::new();
    let mut unsuccessful = 0;
    for (at, id) in ids.iter().enumerate() {
        output::progress(&format!("{at} of {} jobs have ended", ids.len()));
        let job = wait_for_end(daemon, id).await?;
        unsuccessful += usize::from(job["state"] != "finished");
        if show.json {
            ended.push(job);
        } else {
            output::progress("");
            output::print(&ended_line(&job))?;
        }
    }
    if show.json {
        output::print_json(&json!({ "ids": ids, "jobs": ended }))?;
    }
    Ok(unsuccessful)
}

/// Polls until the job has ended.
async fn wait_for_end(daemon: &Daemon, id: &str) -> anyhow::Result<Value> {
    loop {
        let job = daemon.job_wait(id, WAIT).await?;
        if is_ended(&job)? {
            return Ok(job);
        }
    }
}

fn ended_line(job: &Value) -> String {
    let parts = [&job["id"], &job["state"], &job["exitcode"], &job["result"]];
    let parts = parts.into_iter().filter(|part| !part.is_null());
    let line = parts.map(cell).collect::<Vec<_>>().join("  ");
    output::plain(&line) + "\n"
}
