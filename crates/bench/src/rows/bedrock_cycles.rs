//! Jobs that come and go over Bedrock's protocol, beside the HTTP door and beside the disk;
//! whether jobs that wait make that slower, and what workers cost who wait.

use std::path::Path;

use crate::load::crowd::{self, Crowd};
use crate::load::cycle::{self, Cycle, Driven};
use crate::load::{client, depth};
use crate::process::child::{Role, Server};
use crate::report;
use crate::report::figure::{Figure, Outcome, median, micros};
use crate::scale::Scale;

const NAME: &str = "cycle";
const ONE: usize = 1;
const EIGHT: usize = 8;
/// The most cycles per second that the original reached with eight connections, on a machine like
/// the one that the promise was made for.
const ORIGINAL_RATE: f64 = 530.0;
const TIMES_MIN: f64 = 20.0;
/// Many waiting jobs leave at least so much of the rate.
const SHARE_MIN: f64 = 0.8;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    client::runtime()?.block_on(async {
        let mut figures = Vec::new();
        let mut rate = 0.0;
        for connections in [ONE, EIGHT] {
            let beside = Beside::measure(dir, connections, scale).await?;
            figures.extend(beside.figures(connections));
            rate = beside.bedrock.rate;
        }
        let times = rate / ORIGINAL_RATE;
        let name = "8 connections: beside the 530 cycles/s of the original";
        figures.push(Figure::new(name, times, "times"));
        let flat = depth::measure(dir, scale).await?;
        figures.extend(flat.figures);
        for workers in [1, scale.waiting] {
            report::progress(&format!("{workers} workers wait"));
            let crowd = crowd::measure(dir, workers, scale.phase, scale.lone).await?;
            figures.extend(crowd_figures(&crowd));
        }
        let (many, share) = (Figure::count(scale.queued[2]), flat.worst_share);
        Ok(Outcome {
            promise: "≥ 20 × the original's 530 cycles/s; no slower with 1 M waiting",
            reached: format!(
                "{times:.1} ×; {:.0} % of the rate with {many} waiting",
                share * 100.0
            ),
            kept: times >= TIMES_MIN && share >= SHARE_MIN,
            figures,
        })
    })
}

/// The same cycle in three ways, in turns.
struct Beside {
    bedrock: Driven,
    http: Driven,
    limit: f64,
}

impl Beside {
    async fn measure(dir: &Path, connections: usize, scale: &Scale) -> anyhow::Result<Beside> {
        let (mut bedrock, mut http, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            report::progress(&format!("cycles over {connections} connections"));
            let file_dir = tempfile::Builder::new().prefix("bedrock-cycles-").tempdir_in(dir)?;
            limits.push(cycle::limit(file_dir.path(), connections, scale.round).await?);
            let cycle = Cycle::bedrock(NAME, NAME, None);
            bedrock.push(on_fresh_server(dir, cycle, connections, scale).await?);
            http.push(on_fresh_server(dir, Cycle::http(NAME), connections, scale).await?);
        }
        Ok(Beside { bedrock: middle(bedrock), http: middle(http), limit: median(&limits) })
    }

    fn figures(&self, connections: usize) -> Vec<Figure> {
        let one = if connections == 1 { "1 connection" } else { "8 connections" };
        let figure = |what: &str, value, unit| Figure::new(format!("{one}: {what}"), value, unit);
        let mut figures = Vec::new();
        for (door, driven) in [("Bedrock", &self.bedrock), ("HTTP", &self.http)] {
            let of = |what: &str| format!("{what}, {door}");
            figures.push(figure(&of("cycles"), driven.rate, "cycles/s"));
            figures.push(figure(&of("a cycle, p50"), micros(driven.took.p50()), "µs"));
            figures.push(figure(&of("a cycle, p99"), micros(driven.took.within(0.99)), "µs"));
            figures.push(figure(&of("processor time"), driven.server_micros, "µs/cycle"));
        }
        figures.push(figure("two synced appends a cycle, the disk alone", self.limit, "cycles/s"));
        let share = self.bedrock.rate / self.limit;
        figures.push(figure("Bedrock beside the disk alone", share * 100.0, "%"));
        figures
    }
}

async fn on_fresh_server(
    dir: &Path,
    cycle: Cycle,
    connections: usize,
    scale: &Scale,
) -> anyhow::Result<Driven> {
    let dir = tempfile::Builder::new().prefix("bedrock-cycles-").tempdir_in(dir)?;
    let server = Server::start(Role::Windlass, dir.path())?;
    cycle::drive(&server, cycle, connections, scale.round).await
}

/// The one with the median rate.
fn middle(mut driven: Vec<Driven>) -> Driven {
    driven.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    driven.swap_remove(driven.len() / 2)
}

fn crowd_figures(crowd: &Crowd) -> Vec<Figure> {
    let workers = Figure::count(crowd.workers);
    let figure =
        |what: &str, value, unit| Figure::new(format!("{workers} waiting: {what}"), value, unit);
    let mut figures =
        vec![figure("processor time while nothing comes", crowd.idle_micros / 1000.0, "ms/s")];
    if crowd.workers > 1 {
        figures.push(figure("memory of each", crowd.worker_bytes / 1024.0, "KiB"));
    }
    figures
        .extend(crowd.wakes.figures(&format!("{workers} waiting: from the create to the worker")));
    figures
}
