//! `windlass run`: sets a handler from a file, adds jobs for it and follows their logs until they
//! end.

use std::io::{self, BufReader, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use super::chunk::Chunks;
use super::http::{AddRequest, Daemon, type_name};
use super::{Show, follow, handler, jobs, load};
use crate::cli::Run;
use crate::signal::Signals;
use crate::{Usage, output, source};

/// Maximum number of followed jobs.
const JOBS_MAX: usize = 100_000;

pub(super) async fn run(daemon: Daemon, show: Show, run: &Run) -> anyhow::Result<ExitCode> {
    let name = type_of(run)?;
    let (_, mut handler) = load::file(&run.file, None)?;
    if !run.env.is_empty() {
        load::environment(&run.env, load::group(&mut handler, "options"))?;
    }
    let adds = adds(run)?;
    set(&daemon, name, &handler.into()).await?;
    let ids = add(&daemon, name, adds).await?;
    let count = ids.len();
    if count == 0 {
        output::note("standard input has no lines, so no job was added; --payload '' adds one\n");
    }
    let daemon = Arc::new(daemon);
    let mut signals = Signals::listen().context("cannot install signal handlers")?;
    let failed = tokio::select! {
        failed = follow::all(&daemon, show.json, ids) => failed.map_err(|error| {
            // A closed output is not a failure.
            if error.is::<io::Error>() {
                error
            } else {
                anyhow!("{error:#}; {}", running_hint(name))
            }
        })?,
        signal = signals.next() => {
            output::note(&format!("\n{}\n", running_hint(name)));
            return Ok(ExitCode::from(signal.exit_status()));
        }
    };
    match &failed[..] {
        [] => Ok(ExitCode::SUCCESS),
        [sentence] => bail!("{sentence}"),
        _ => bail!("{} of {} did not succeed", failed.len(), jobs(count as u64)),
    }
}

fn running_hint(name: &str) -> String {
    format!("the jobs keep running; see `windlass jobs list --type {}`", output::plain(name))
}

/// The type from `--type`, or else from the file name.
fn type_of(run: &Run) -> anyhow::Result<&str> {
    let stem = || run.file.file_stem().and_then(|stem| stem.to_str());
    let Some(name) = run.name.as_deref().or_else(stem) else {
        bail!(Usage(format!("cannot derive a type from {}; use --type", run.file.display())));
    };
    type_name(name)
}

/// An identical handler is left in place, so that it keeps its version and its
/// warm contexts.
async fn set(daemon: &Daemon, name: &str, handler: &Value) -> anyhow::Result<()> {
    let path = daemon.path(&["handlers", name]);
    let in_force = daemon.find(&path).await?;
    if !in_force.is_some_and(|in_force| source::is_same(handler, &in_force)) {
        handler::warn(&daemon.put(&path, handler).await?);
    }
    Ok(())
}

/// The requests that add the jobs.
fn adds(run: &Run) -> anyhow::Result<Vec<AddRequest<'static>>> {
    let empty = [String::new()];
    let payloads = match &run.payload[..] {
        [] if io::stdin().is_terminal() => &empty,
        [] => return from_input(&run.file),
        payloads => payloads,
    };
    let jobs: Vec<_> = payloads.iter().map(|payload| json!({ "payload": payload })).collect();
    let body = json!({ "jobs": jobs }).to_string().into_bytes();
    Ok(vec![request("application/json", body)])
}

/// Reads all lines before adding any, so that too many lines do not leave half of them added.
fn from_input(file: &Path) -> anyhow::Result<Vec<AddRequest<'static>>> {
    let mut chunks = Chunks::new(BufReader::new(io::stdin().lock()));
    let mut adds = Vec::new();
    let mut lines = 0;
    while let Some(chunk) = chunks.next().context("cannot read standard input")? {
        lines += chunk.lines;
        if lines > JOBS_MAX {
            bail!(
                "standard input has more than {JOBS_MAX} lines, too many to follow; set the \
                 handler with `windlass handler set TYPE {}` and add them with `windlass add TYPE`",
                file.display()
            );
        }
        adds.push(request("text/plain", chunk.body));
    }
    Ok(adds)
}

fn request(content_type: &'static str, body: Vec<u8>) -> AddRequest<'static> {
    AddRequest { content_type, body, query: &[], idempotency_key: None }
}

async fn add(
    daemon: &Daemon,
    name: &str,
    adds: Vec<AddRequest<'static>>,
) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for request in adds {
        match daemon.add(name, request).await {
            Ok(more) => ids.extend(more),
            Err(error) if ids.is_empty() => return Err(error),
            Err(error) => {
                let added = jobs(ids.len() as u64);
                return Err(error.context(format!("stopped after adding {added}")));
            }
        }
    }
    Ok(ids)
}
