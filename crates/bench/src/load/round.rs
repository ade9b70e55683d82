//! One round of load on one fresh, warmed-up server: how many requests it answered, and at what
//! cost.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::load::client::{self, Connection};
use crate::machine;
use crate::process::child::{Role, Server};
use crate::report::figure::{Figure, micros};
use crate::scale::Scale;

/// Fraction of a round that is spent on warming up first.
const WARM_UP_SHARE: u32 = 5;
/// How often to check the journal while it empties.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(crate) struct Round {
    /// Requests per second.
    pub(crate) rate: f64,
    /// CPU time per request.
    pub(crate) server_micros: f64,
    pub(crate) client_micros: f64,
    lag: Option<Lag>,
}

/// How far Windlass's store lagged behind its journal at the end of the load.
#[derive(Clone)]
struct Lag {
    jobs: u64,
    caught_up: Duration,
    left: u64,
    peak_bytes: u64,
}

impl Round {
    /// The round with the median rate.
    pub(crate) fn middle(rounds: &[Round]) -> Round {
        let mut sorted: Vec<&Round> = rounds.iter().collect();
        sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        sorted[sorted.len() / 2].clone()
    }

    pub(crate) fn lag_figures(&self) -> Vec<Figure> {
        let Some(lag) = &self.lag else { return Vec::new() };
        vec![
            Figure::new("accepted but not yet in the store at the end", lag.jobs as f64, "jobs"),
            Figure::new("time until the store had them", lag.caught_up.as_secs_f64(), "s"),
            Figure::new("not in the store when that was given up", lag.left as f64, "jobs"),
            Figure::new("most memory of Windlass", lag.peak_bytes as f64 / (1 << 20) as f64, "MiB"),
        ]
    }
}

pub(crate) fn measure(
    role: Role,
    dir: &Path,
    connections: usize,
    request: &[u8],
    scale: &Scale,
) -> anyhow::Result<Round> {
    let dir = tempfile::Builder::new().prefix("round-").tempdir_in(dir)?;
    let server = Server::start(role, dir.path())?;
    client::runtime()?.block_on(async {
        let warm_up = scale.round / WARM_UP_SHARE;
        client::load(server.address, connections, request, warm_up).await?;
        let (server_before, client_before) = (server.usage()?, machine::usage("self")?);
        let began = Instant::now();
        let rate = client::load(server.address, connections, request, scale.round).await?;
        let requests = rate * began.elapsed().as_secs_f64();
        let (server_after, client_after) = (server.usage()?, machine::usage("self")?);
        let lag = match role {
            Role::Windlass => Some(catch_up(&server, scale.drain_max).await?),
            Role::Empty | Role::Append => None,
        };
        Ok(Round {
            rate,
            server_micros: micros(server_after.cpu - server_before.cpu) / requests,
            client_micros: micros(client_after.cpu - client_before.cpu) / requests,
            lag,
        })
    })
}

/// Waits until the store has everything; taking too long is an error.
pub(crate) async fn drained(server: &Server, patience: Duration) -> anyhow::Result<()> {
    let lag = catch_up(server, patience).await?;
    ensure!(lag.left == 0, "{} jobs did not reach the store in time", lag.left);
    Ok(())
}

/// Waits until the store has everything that was accepted.
async fn catch_up(server: &Server, patience: Duration) -> anyhow::Result<Lag> {
    let began = Instant::now();
    let mut connection = Connection::open(server.address).await?;
    let jobs = waiting(&mut connection).await?;
    let mut left = jobs;
    while left > 0 && began.elapsed() < patience {
        tokio::time::sleep(LOOK_PAUSE).await;
        left = waiting(&mut connection).await?;
    }
    Ok(Lag { jobs, caught_up: began.elapsed(), left, peak_bytes: server.usage()?.peak_bytes })
}

async fn waiting(connection: &mut Connection) -> anyhow::Result<u64> {
    let status: serde_json::Value =
        serde_json::from_slice(connection.exchange(&client::get("/v1/status")).await?)?;
    status["journal"]["waiting"].as_u64().context("the status does not say what waits")
}
