//! The cycle of a job through a door: created, taken and finished over one persistent connection,
//! each request sent after the answer to the last.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::limits::append;
use crate::limits::disk::{LINE_BYTES, SyncedFile, line};
use crate::load::bedrock;
use crate::load::client::{self, Connection};
use crate::process::child::Server;
use crate::process::server::TENANT;
use crate::report::figure::{Samples, micros};

/// Fraction of the time that is spent on warming up first.
const WARM_UP_SHARE: u32 = 5;
/// Changes that must be on disk before a cycle has ended: the new job, and its end.
const SYNCS: usize = 2;

/// The requests of a cycle, except the finish.
pub(crate) enum Cycle {
    Bedrock { create: Vec<u8>, get: Vec<u8> },
    Http { add: Vec<u8>, claim: Vec<u8> },
}

impl Cycle {
    pub(crate) fn bedrock(name: &str, wanted: &str, priority: Option<u16>) -> Cycle {
        let create = bedrock::create(name, &data(), priority);
        Cycle::Bedrock { create, get: bedrock::get(wanted) }
    }

    /// `name` must need no encoding in a path.
    pub(crate) fn http(name: &str) -> Cycle {
        let add = client::post(&format!("/v1/{TENANT}/jobs/{name}"), data().as_bytes());
        let wish = serde_json::json!({
            "types": [name], "limit": 1, "lease": "60s", "wait": "5s",
        });
        let claim = client::post_json(&format!("/v1/{TENANT}/claim"), &wish.to_string());
        Cycle::Http { add, claim }
    }

    fn address(&self, server: &Server) -> anyhow::Result<SocketAddr> {
        match self {
            Cycle::Bedrock { .. } => server.bedrock(),
            Cycle::Http { .. } => Ok(server.address),
        }
    }

    async fn turn(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let finish = match self {
            Cycle::Bedrock { create, get } => {
                connection.exchange(create).await?;
                bedrock::finish(bedrock::job_id(connection.exchange(get).await?)?)
            }
            Cycle::Http { add, claim } => {
                connection.exchange(add).await?;
                finish_claimed(connection.exchange(claim).await?)?
            }
        };
        connection.exchange(&finish).await?;
        Ok(())
    }
}

/// The payload of every job: a JSON object as long as the lines of the other rows.
pub(crate) fn data() -> String {
    let around = r#"{"x":""}"#.len() + 1;
    format!(r#"{{"x":"{}"}}"#, "x".repeat(LINE_BYTES - around))
}

fn finish_claimed(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    #[derive(Deserialize)]
    struct Claimed {
        jobs: Vec<Claim>,
    }
    #[derive(Deserialize)]
    struct Claim {
        id: String,
        token: u64,
    }
    let claimed: Claimed = serde_json::from_slice(body).context("the answer gives no job")?;
    let Claim { id, token } = claimed.jobs.first().context("no job was there to claim")?;
    let path = format!("/v1/{TENANT}/jobs/{id}/finish");
    Ok(client::post_json(&path, &format!(r#"{{"token":{token},"status":200}}"#)))
}

/// The results of many cycles.
pub(crate) struct CycleResults {
    /// Cycles per second.
    pub(crate) rate: f64,
    pub(crate) took: Samples,
    /// CPU time of the server per cycle.
    pub(crate) server_micros: f64,
}

/// Runs cycles for a while on this many connections, after a warm-up.
pub(crate) async fn measure(
    server: &Server,
    cycle: Cycle,
    connections: usize,
    time: Duration,
) -> anyhow::Result<CycleResults> {
    let (address, cycle) = (cycle.address(server)?, Arc::new(cycle));
    run_cycles(address, &cycle, connections, time / WARM_UP_SHARE).await?;
    let before = server.usage()?;
    let began = Instant::now();
    let took = run_cycles(address, &cycle, connections, time).await?;
    let seconds = began.elapsed().as_secs_f64();
    let cycles = took.len() as f64;
    let server_micros = micros(server.usage()?.cpu - before.cpu) / cycles;
    Ok(CycleResults { rate: cycles / seconds, took, server_micros })
}

async fn run_cycles(
    address: SocketAddr,
    cycle: &Arc<Cycle>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<Samples> {
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (mut connection, cycle) = (Connection::open(address).await?, cycle.clone());
        tasks.spawn(async move {
            let mut took = Samples::default();
            let began = Instant::now();
            while began.elapsed() < time {
                let turned = Instant::now();
                cycle.turn(&mut connection).await?;
                took.push(turned.elapsed());
            }
            anyhow::Ok(took)
        });
    }
    let measured = tokio::time::timeout(time + client::ANSWER_PATIENCE, tasks.join_all()).await;
    let mut all = Samples::default();
    for took in measured.context("the server no longer answers")? {
        all.extend(took?);
    }
    Ok(all)
}

/// Cycles per second that the disk allows: two small synced appends each. A single caller syncs
/// each of them; appends of several callers during a sync share the next one.
pub(crate) async fn limit(dir: &Path, callers: usize, time: Duration) -> anyhow::Result<f64> {
    if callers == 1 {
        return Ok(SyncedFile::create(dir)?.rate(&line(), time)? / SYNCS as f64);
    }
    append::rate(dir, callers, SYNCS, Bytes::from(line()), time).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_an_object_as_long_as_a_line_without_its_end() {
        assert_eq!(data().len(), LINE_BYTES - 1);
        assert!(serde_json::from_str::<serde_json::Value>(&data()).unwrap().is_object());
    }

    #[test]
    fn a_claimed_job_is_finished_with_its_token() {
        let finish = finish_claimed(br#"{"jobs":[{"id":"7","token":3,"type":"x"}]}"#).unwrap();
        let text = String::from_utf8(finish).unwrap();
        assert!(text.starts_with("POST /v1/acme/jobs/7/finish HTTP/1.1\r\n"), "{text}");
        assert!(text.ends_with(r#"{"token":3,"status":200}"#), "{text}");
        assert!(finish_claimed(br#"{"jobs":[]}"#).is_err());
    }
}
