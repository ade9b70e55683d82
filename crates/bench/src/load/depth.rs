//! Whether waiting jobs slow others down: the same cycles with no, few and many waiting jobs, in
//! three layouts.

use std::path::Path;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::load::client::{self, Connection};
use crate::load::cycle::{self, Cycle, CycleResults};
use crate::load::round;
use crate::process::child::{Role, Server};
use crate::process::server::TENANT;
use crate::report;
use crate::report::figure::Figure;
use crate::scale::Scale;

const CONNECTIONS: usize = 8;
/// The name of the jobs in the cycles, and a pattern that matches it.
const NAME: &str = "bench/cycle";
const PATTERN: &str = "bench/*";
/// Names in the layout that has many; half of them match.
const NAMES: u64 = 1000;
const LINES_PER_REQUEST: u64 = 1000;
/// Ahead of all waiting jobs.
const FIRST: Option<u16> = Some(1000);

/// The tenant of the waiting jobs.
#[derive(Clone, Copy)]
enum Layout {
    OtherName,
    SameName,
    ManyNames,
}

/// One kind of cycle in a layout.
struct Kind {
    layout: Layout,
    name: &'static str,
    wanted: &'static str,
    priority: Option<u16>,
}

const KINDS: [Kind; 5] = [
    Kind { layout: Layout::OtherName, name: "another name", wanted: NAME, priority: None },
    Kind { layout: Layout::SameName, name: "the same name", wanted: NAME, priority: FIRST },
    Kind {
        layout: Layout::SameName,
        name: "the same name, oldest first",
        wanted: NAME,
        priority: None,
    },
    Kind { layout: Layout::ManyNames, name: "1,000 names, GLOB", wanted: PATTERN, priority: FIRST },
    Kind {
        layout: Layout::ManyNames,
        name: "1,000 names, GLOB, oldest first",
        wanted: PATTERN,
        priority: None,
    },
];

/// The results for all kinds and depths.
pub(crate) struct DepthResults {
    pub(crate) figures: Vec<Figure>,
    /// The largest drop: the rate with the most jobs relative to that with none.
    pub(crate) worst_share: f64,
}

pub(crate) async fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<DepthResults> {
    let mut results = DepthResults { figures: Vec::new(), worst_share: f64::INFINITY };
    for kind in &KINDS {
        let mut rates = Vec::new();
        for queued in scale.queued {
            report::progress(&format!("cycles with {queued} jobs of {}", kind.name));
            let measured = kind.measure(dir, queued, scale).await?;
            let name = format!("{}, {} waiting", kind.name, Figure::count(queued));
            let figure = |what, value, unit| Figure::new(format!("{name}: {what}"), value, unit);
            results.figures.push(figure("cycles", measured.rate, "cycles/s"));
            results.figures.push(figure("processor time", measured.server_micros, "µs/cycle"));
            rates.push(measured.rate);
        }
        if let (Some(none), Some(many)) = (rates.first(), rates.last()) {
            results.worst_share = results.worst_share.min(many / none);
        }
    }
    Ok(results)
}

impl Kind {
    /// Runs on a fresh server with this many jobs.
    async fn measure(
        &self,
        dir: &Path,
        queued: u64,
        scale: &Scale,
    ) -> anyhow::Result<CycleResults> {
        let dir = tempfile::Builder::new().prefix("depth-").tempdir_in(dir)?;
        let server = Server::start(Role::Windlass, dir.path())?;
        self.layout.fill(&server, queued, scale.drain_max).await?;
        let cycle = Cycle::bedrock(NAME, self.wanted, self.priority);
        cycle::measure(&server, cycle, CONNECTIONS, scale.queued_phase).await
    }
}

impl Layout {
    /// The names of the waiting jobs, oldest first, as written in a path: those that do not match
    /// come first.
    fn names(self) -> Vec<String> {
        match self {
            Layout::OtherName => vec!["other".into()],
            Layout::SameName => vec![NAME.replace('/', "%2F")],
            Layout::ManyNames => {
                let half = |prefix: &'static str| {
                    (0..NAMES / 2).map(move |number| format!("{prefix}%2F{number}"))
                };
                half("other").chain(half("bench")).collect()
            }
        }
    }

    /// Adds this many jobs, spread evenly, and waits until the store has them.
    async fn fill(self, server: &Server, queued: u64, patience: Duration) -> anyhow::Result<()> {
        let names = self.names();
        let each = queued / names.len() as u64;
        let requests: Vec<Vec<u8>> =
            names.iter().flat_map(|name| lines(each).map(move |lines| add(name, lines))).collect();
        // In turns, so that the connections roughly keep the order of the names.
        let share = async |first: usize| {
            let mut connection = Connection::open(server.address).await?;
            for request in requests.iter().skip(first).step_by(CONNECTIONS) {
                connection.exchange(request).await?;
            }
            anyhow::Ok(())
        };
        try_join_all((0..CONNECTIONS).map(share)).await?;
        round::drained(server, patience).await
    }
}

/// The number of lines of each request that adds this many jobs.
fn lines(jobs: u64) -> impl Iterator<Item = u64> {
    (0..jobs).step_by(LINES_PER_REQUEST as usize).map(move |at| LINES_PER_REQUEST.min(jobs - at))
}

fn add(name: &str, lines: u64) -> Vec<u8> {
    let line = cycle::data() + "\n";
    client::post(&format!("/v1/{TENANT}/jobs/{name}"), line.repeat(lines as usize).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_add_up_to_the_jobs() {
        assert_eq!(lines(0).count(), 0);
        assert!(lines(2500).eq([1000, 1000, 500]));
        assert!(lines(1).eq([1]));
    }

    #[test]
    fn half_of_many_names_match_and_are_younger() {
        let names = Layout::ManyNames.names();
        assert_eq!(names.len() as u64, NAMES);
        assert!(names[..500].iter().all(|name| name.starts_with("other")));
        assert!(names[500..].iter().all(|name| name.starts_with("bench%2F")));
    }
}
