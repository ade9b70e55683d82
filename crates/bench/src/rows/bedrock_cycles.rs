//! Cycles of jobs over Bedrock's protocol, compared with the HTTP door and the disk; whether
//! waiting jobs slow them down, and what waiting workers cost.

use std::path::Path;

use crate::load::crowd::{self, Crowd};
use crate::load::cycle::{self, Cycle, CycleResults};
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
/// The fraction of the rate that must remain with many waiting jobs.
const SHARE_MIN: f64 = 0.8;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    client::runtime()?.block_on(async {
        let mut figures = Vec::new();
        let mut rate = 0.0;
        for connections in [ONE, EIGHT] {
            let beside = CycleComparison::measure(dir, connections, scale).await?;
            figures.extend(beside.figures(connections));
            rate = beside.bedrock.rate;
        }
        let times = rate / ORIGINAL_RATE;
        let name = "8 connections: beside the 530 cycles/s of the original";
        figures.push(Figure::new(name, times, "times"));
        let depths = depth::measure(dir, scale).await?;
        figures.extend(depths.figures);
        for workers in [1, scale.waiting] {
            report::progress(&format!("{workers} workers wait"));
            let crowd = crowd::measure(dir, workers, scale.phase, scale.lone).await?;
            figures.extend(crowd_figures(&crowd));
        }
        let (many, share) = (Figure::count(scale.queued[2]), depths.worst_share);
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

/// The same cycle in three ways, alternating.
struct CycleComparison {
    bedrock: CycleResults,
    http: CycleResults,
    limit: f64,
}

impl CycleComparison {
    async fn measure(
        dir: &Path,
        connections: usize,
        scale: &Scale,
    ) -> anyhow::Result<CycleComparison> {
        let (mut bedrock, mut http, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            report::progress(&format!("cycles over {connections} connections"));
            let file_dir = tempfile::Builder::new().prefix("bedrock-cycles-").tempdir_in(dir)?;
            limits.push(cycle::limit(file_dir.path(), connections, scale.round).await?);
            let cycle = Cycle::bedrock(NAME, NAME, None);
            bedrock.push(on_fresh_server(dir, cycle, connections, scale).await?);
            http.push(on_fresh_server(dir, Cycle::http(NAME), connections, scale).await?);
        }
        Ok(CycleComparison { bedrock: middle(bedrock), http: middle(http), limit: median(&limits) })
    }

    fn figures(&self, connections: usize) -> Vec<Figure> {
        let one = if connections == 1 { "1 connection" } else { "8 connections" };
        let figure = |what: &str, value, unit| Figure::new(format!("{one}: {what}"), value, unit);
        let mut figures = Vec::new();
        for (door, measured) in [("Bedrock", &self.bedrock), ("HTTP", &self.http)] {
            let of = |what: &str| format!("{what}, {door}");
            figures.push(figure(&of("cycles"), measured.rate, "cycles/s"));
            figures.push(figure(&of("a cycle, p50"), micros(measured.took.p50()), "µs"));
            figures.push(figure(&of("a cycle, p99"), micros(measured.took.percentile(0.99)), "µs"));
            figures.push(figure(&of("processor time"), measured.server_micros, "µs/cycle"));
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
) -> anyhow::Result<CycleResults> {
    let dir = tempfile::Builder::new().prefix("bedrock-cycles-").tempdir_in(dir)?;
    let server = Server::start(Role::Windlass, dir.path())?;
    cycle::measure(&server, cycle, connections, scale.round).await
}

/// The one with the median rate.
fn middle(mut measured: Vec<CycleResults>) -> CycleResults {
    measured.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    measured.swap_remove(measured.len() / 2)
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
