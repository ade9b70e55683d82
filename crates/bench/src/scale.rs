//! How much is measured: a smoke test, an ordinary run, or the whole of it.

use std::time::Duration;

pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// `accept-latency`, `start-latency`, `bedrock-cycles`, `jobd-commands`: lone operations of
    /// each kind.
    pub(crate) lone: usize,
    /// `bulk-adds`, `small-adds`, `bedrock-cycles`, `jobd-commands`: rounds of which the median
    /// counts, and, but in the last of these rows, how long each of them takes.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// `bulk-adds` and `bedrock-cycles`: how long ingest may take to catch up before that is given
    /// up.
    pub(crate) drain_max: Duration,
    /// `warm-contexts`: jobs that contexts run.
    pub(crate) warm: u64,
    /// `backlog`: jobs that wait, in the shallow and in the deep queue.
    pub(crate) shallow: u64,
    pub(crate) deep: u64,
    /// `warm-contexts` and `backlog`: how long each phase takes.
    pub(crate) phase: Duration,
    /// `bedrock-cycles`: jobs that wait while others come and go, from none to many.
    pub(crate) queued: [u64; 3],
    /// `bedrock-cycles`: how long each of these phases takes.
    pub(crate) queued_phase: Duration,
    /// `bedrock-cycles`: connections that wait for a job.
    pub(crate) waiting: u64,
    /// `jobd-commands`: rows of the table that are run in a round.
    pub(crate) commands: u64,
    /// `many-types`: types that wait, and tenants that have them.
    pub(crate) types: (u64, u64),
}

impl Scale {
    pub(crate) fn choose(quick: bool, full: bool) -> Scale {
        if quick {
            return Scale {
                name: "quick",
                lone: 300,
                rounds: 1,
                round: Duration::from_secs(1),
                drain_max: Duration::from_secs(5),
                warm: 30_000,
                shallow: 20_000,
                deep: 100_000,
                phase: Duration::from_secs(1),
                queued: [0, 1000, 20_000],
                queued_phase: Duration::from_millis(200),
                waiting: 1000,
                commands: 300,
                types: (20_000, 200),
            };
        }
        Scale {
            name: if full { "full" } else { "ordinary" },
            lone: 2000,
            rounds: 3,
            round: Duration::from_secs(5),
            drain_max: Duration::from_secs(120),
            warm: 400_000,
            shallow: 200_000,
            deep: if full { 10_000_000 } else { 1_000_000 },
            phase: Duration::from_secs(5),
            queued: [0, 1000, 1_000_000],
            queued_phase: Duration::from_secs(5),
            waiting: 10_000,
            commands: 3000,
            types: (1_000_000, 10_000),
        }
    }
}
