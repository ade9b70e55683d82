//! How much is measured: a smoke test, an ordinary run, or a full run.

use std::time::Duration;

pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// `accept-latency`, `start-latency`, `bedrock-cycles`, `jobd-commands`, `postgres-latency`:
    /// single operations of each kind.
    pub(crate) lone: usize,
    /// `bulk-adds`, `small-adds`, `bedrock-cycles`, `jobd-commands`, `cell-commands`, `postgres`:
    /// rounds of which the median counts, and, except in the rows of commands, how long each takes.
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// `bulk-adds` and `bedrock-cycles`: how long ingest may take to catch up.
    pub(crate) drain_max: Duration,
    /// `warm-contexts`: jobs that contexts run.
    pub(crate) warm: u64,
    /// `backlog` and `postgres`: waiting jobs in the shallow and in the deep queue.
    pub(crate) shallow: u64,
    pub(crate) deep: u64,
    /// `warm-contexts`, `backlog` and `cell-commands`: duration of each phase, or the most of it.
    pub(crate) phase: Duration,
    /// `bedrock-cycles`: waiting jobs beside the cycles, from none to many.
    pub(crate) queued: [u64; 3],
    /// `bedrock-cycles`: duration of each of these phases.
    pub(crate) queued_phase: Duration,
    /// `bedrock-cycles`: connections that wait for a job.
    pub(crate) waiting: u64,
    /// `jobd-commands` and `cell-commands`: rows of the table, or jobs, per round.
    pub(crate) commands: u64,
    /// `postgres`: how long jobs are run under an open transaction before that is measured.
    pub(crate) churn: Duration,
    /// `cell-start`: contexts of each kind.
    pub(crate) starts: u64,
    /// `many-types`: waiting types, and the tenants that have them.
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
                churn: Duration::from_secs(2),
                starts: 5,
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
            churn: Duration::from_secs(60),
            starts: 40,
            types: (1_000_000, 10_000),
        }
    }
}
