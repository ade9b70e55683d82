//! `windlass run`: tries a handler on a few payloads, in a daemon of its own that is gone
//! afterwards. What the handler wrote is shown as the daemon kept it.

use std::io::{self, BufReader, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::cli::Run;
use crate::client::chunk::Chunks;
use crate::client::http::{AddRequest, type_name};
use crate::client::{Daemon, handler, wait_for_end};
use crate::output;

/// One job after the other, so that their output does not depend on luck.
const SLOTS: usize = 1;
const TENANT: &str = "default";
/// Jobs of other types that are looked at in the end.
const EMITTED_MAX: &str = "1000";

pub(crate) fn run(run: &Run) -> anyhow::Result<ExitCode> {
    type_name(&run.name)?;
    let handler = handler::trial(run)?;
    let payloads = payloads(run)?;
    crate::temporary::with_daemon(SLOTS, async |url| {
        let daemon = Daemon::new(url, TENANT)?;
        daemon.put(&daemon.path(&["handlers", &run.name]), &handler).await?;
        let unsuccessful = try_all(&daemon, &run.name, &payloads).await?;
        show_emitted(&daemon, &run.name).await?;
        if unsuccessful > 0 {
            bail!(
                "{unsuccessful} of {} did not succeed",
                crate::client::jobs(payloads.len() as u64)
            );
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// From the flags, or the lines of standard input, or a single empty one.
fn payloads(run: &Run) -> anyhow::Result<Vec<Vec<u8>>> {
    if !run.payload.is_empty() {
        return Ok(run.payload.iter().map(|payload| payload.clone().into_bytes()).collect());
    }
    if io::stdin().is_terminal() || run.file.as_os_str() == "-" {
        return Ok(vec![Vec::new()]);
    }
    let mut chunks = Chunks::new(BufReader::new(io::stdin().lock()));
    let chunk = chunks.next().context("cannot read standard input")?;
    if chunks.next().context("cannot read standard input")?.is_some() {
        bail!("standard input has more lines than a trial takes; add them to a daemon instead");
    }
    let Some(chunk) = chunk else { return Ok(vec![Vec::new()]) };
    let lines = chunk.body.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.trim_ascii_end().to_vec());
    Ok(lines.collect())
}

/// How many did not succeed.
async fn try_all(daemon: &Daemon, name: &str, payloads: &[Vec<u8>]) -> anyhow::Result<usize> {
    let mut unsuccessful = 0;
    for payload in payloads {
        let request = AddRequest {
            content_type: "application/octet-stream",
            body: payload.clone(),
            query: &[],
            idempotency_key: None,
        };
        let ids = daemon.add(name, request).await?;
        let id = ids.first().context("the daemon answered an add without ids")?;
        let job = wait_for_end(daemon, id).await?;
        let log = daemon.get_text(&daemon.path(&["jobs", id, "log"])).await?;
        // The first line says which attempt it was, and there is only one.
        let written = log.split_once('\n').map_or("", |(_, written)| written);
        output::print(written)?;
        if !job["result"].is_null() {
            output::print(&format!("result: {}\n", job["result"]))?;
        }
        output::print(&format!("{} {}\n", text(&job["state"]), job["exitcode"]))?;
        unsuccessful += usize::from(job["state"] != "finished");
    }
    Ok(unsuccessful)
}

async fn show_emitted(daemon: &Daemon, name: &str) -> anyhow::Result<()> {
    let list = daemon.get(&daemon.path(&["jobs"]), &[("limit", EMITTED_MAX)]).await?;
    let jobs = list["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    for job in jobs.iter().rev().filter(|job| job["type"] != name) {
        let path = daemon.path(&["jobs", text(&job["id"]), "payload"]);
        let payload = daemon.get_text(&path).await?;
        let line = format!("asked for {}: {payload}", text(&job["type"]));
        output::print(&(output::plain(&line) + "\n"))?;
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
