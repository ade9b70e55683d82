//! Whether jobs that wait make others slower that come and go: the same cycles beside none, few and
//! many of them, in three layouts.

use std::path::Path;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::load::client::{self, Connection};
use crate::load::cycle::{self, Cycle, Driven};
use crate::load::round;
use crate::process::child::{Role, Server};
use crate::process::server::TENANT;
use crate::report;
use crate::report::figure::Figure;
use crate::scale::Scale;

const CONNECTIONS: usize = 8;
/// The name of the jobs that come and go, and a pattern that it matches.
const NAME: &str = "bench/cycle";
const PATTERN: &str = "bench/*";
/// Names in the layout that has many; half of them match.
const NAMES: u64 = 1000;
const LINES_PER_REQUEST: u64 = 1000;
/// Before all that wait.
const FIRST: Option<u16> = Some(1000);

/// Whose jobs wait.
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

/// What came of all kinds and depths.
pub(crate) struct Flat {
    pub(crate) figures: Vec<Figure>,
    /// The rate with the most jobs beside that with none, where it fell most.
    pub(crate) worst_share: f64,
}

pub(crate) async fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Flat> {
    let mut flat = Flat { figures: Vec::new(), worst_share: f64::INFINITY };
    for kind in &KINDS {
        let mut rates = Vec::new();
        for queued in scale.queued {
            report::progress(&format!("cycles with {queued} jobs of {}", kind.name));
            let driven = kind.drive(dir, queued, scale).await?;
            let name = format!("{}, {} waiting", kind.name, Figure::count(queued));
            let figure = |what, value, unit| Figure::new(format!("{name}: {what}"), value, unit);
            flat.figures.push(figure("cycles", driven.rate, "cycles/s"));
            flat.figures.push(figure("processor time", driven.server_micros, "µs/cycle"));
            rates.push(driven.rate);
        }
        if let (Some(none), Some(many)) = (rates.first(), rates.last()) {
            flat.worst_share = flat.worst_share.min(many / none);
        }
    }
    Ok(flat)
}

impl Kind {
    /// On a fresh server with so many jobs.
    async fn drive(&self, dir: &Path, queued: u64, scale: &Scale) -> anyhow::Result<Driven> {
        let dir = tempfile::Builder::new().prefix("depth-").tempdir_in(dir)?;
        let server = Server::start(Role::Windlass, dir.path())?;
        self.layout.fill(&server, queued, scale.drain_max).await?;
        let cycle = Cycle::bedrock(NAME, self.wanted, self.priority);
        cycle::drive(&server, cycle, CONNECTIONS, scale.queued_phase).await
    }
}

impl Layout {
    /// The names of those that wait, the oldest first, as they stand in a path: what does not match
    /// stands before what does.
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

    /// Adds so many jobs, shared out evenly, and waits until the store has them.
    async fn fill(self, server: &Server, queued: u64, patience: Duration) -> anyhow::Result<()> {
        let names = self.names();
        let each = queued / names.len() as u64;
        let requests: Vec<Vec<u8>> =
            names.iter().flat_map(|name| lines(each).map(move |lines| add(name, lines))).collect();
        // In turns, so that the connections keep about the order of the names.
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

/// How many lines each of the requests has that add so many jobs.
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
