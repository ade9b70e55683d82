//! Jobs of a table run by jobd's worker, compared with the same commands run by the same runner
//! without a table; the latency of its answers, and the time from a poke to a start.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::jobd::database::{Database, Table};
use crate::jobd::spawn::{Plan, SpawnResults};
use crate::jobd::{self, CONCURRENCY, Daemon, Program, poke};
use crate::load::client;
use crate::process::child::Part;
use crate::report;
use crate::report::figure::{Figure, Outcome, Samples, median, micros};
use crate::scale::Scale;

const PROGRAM: &str = "/bin/true";
/// Jobs before the measurement.
const WARM_UP_JOBS: u64 = 100;
/// A round that takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(120);
const SHARE_MIN: f64 = 0.7;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    report::progress("a private MariaDB");
    let database = Database::start()?;
    let dir = tempfile::Builder::new().prefix("jobd-commands-").tempdir_in(dir)?;
    client::runtime()?.block_on(async {
        let mut figures = Vec::new();
        let mut table = database.table("jobs").await?;
        let config = database.config(&table);
        let config = jobd::worker_config(&format!("{PROGRAM} {{id}}"), &config, None);
        let worker = Daemon::start(Program::Worker, dir.path(), &config).await?;
        let (mut alone, mut rounds) = (Vec::new(), Vec::new());
        round(&database, &mut table, &worker, WARM_UP_JOBS).await?;
        for _ in 0..scale.rounds {
            report::progress(&format!("{} commands, alone and from the table", scale.commands));
            alone.push(commands(dir.path(), scale.commands)?);
            rounds.push(round(&database, &mut table, &worker, scale.commands).await?);
        }
        let share = rate_of(&rounds) / rate_of(&alone);
        figures.extend(rate_figures(&rounds, &alone, share));
        report::progress("answers and pokes");
        figures.extend(statuses(&worker, scale.lone).await?.figures("a status and its answer"));
        drop(worker);
        let starts = poke::measure(dir.path(), &database, scale.lone).await?;
        figures.extend(starts.poked.figures("from a poke to the start of its job"));
        figures.extend(starts.alone.figures("the same command started by the runner alone"));
        Ok(Outcome {
            promise: "≥ 70 % of a bare spawn loop of the same runner",
            reached: format!("{:.0} %", share * 100.0),
            kept: share >= SHARE_MIN,
            figures,
        })
    })
}

/// The same commands in a separate process, without a table.
fn commands(dir: &Path, commands: u64) -> anyhow::Result<Round> {
    let plan =
        Plan { program: PROGRAM.to_owned(), warm_up: WARM_UP_JOBS, commands, at_once: CONCURRENCY };
    let SpawnResults { rate, own_micros, command_micros } = Part::Spawn.run(dir, &plan)?;
    Ok(Round { rate, own_micros, command_micros, database_micros: 0.0 })
}

/// Commands per second, and CPU time per command.
struct Round {
    rate: f64,
    own_micros: f64,
    command_micros: f64,
    database_micros: f64,
}

/// From the poll until all rows are done.
async fn round(
    database: &Database,
    table: &mut Table,
    worker: &Daemon,
    jobs: u64,
) -> anyhow::Result<Round> {
    table.add(jobs).await?;
    let used = || Ok((worker.server.usage()?.cpu, worker.server.children_cpu()?, database.cpu()?));
    let before: anyhow::Result<(Duration, Duration, Duration)> = used();
    let before = before?;
    let began = Instant::now();
    worker.announce_jobs("poll").await?;
    let polled = began.elapsed();
    let took = polled + table.done(PATIENCE).await?;
    let after = used()?;
    let jobs = jobs as f64;
    let each = |after: Duration, before: Duration| micros(after - before) / jobs;
    Ok(Round {
        rate: jobs / took.as_secs_f64(),
        own_micros: each(after.0, before.0),
        command_micros: each(after.1, before.1),
        database_micros: each(after.2, before.2),
    })
}

async fn statuses(worker: &Daemon, count: usize) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..count {
        let began = Instant::now();
        let status = worker.ask("status", None).await?;
        samples.push(began.elapsed());
        ensure!(status.starts_with("{\"targets\":"), "a status without targets: {status}");
    }
    Ok(samples)
}

fn rate_of(rounds: &[Round]) -> f64 {
    middle(rounds, |round| round.rate)
}

fn middle(rounds: &[Round], value: impl Fn(&Round) -> f64) -> f64 {
    median(&rounds.iter().map(value).collect::<Vec<_>>())
}

fn rate_figures(jobd: &[Round], alone: &[Round], share: f64) -> Vec<Figure> {
    let cpu = |name: &str, rounds: &[Round], value: fn(&Round) -> f64| {
        Figure::new(format!("processor time of {name}"), middle(rounds, value), "µs/job")
    };
    vec![
        Figure::new("jobd, from the table and back", rate_of(jobd), "jobs/s"),
        Figure::new("the bare spawn loop", rate_of(alone), "jobs/s"),
        Figure::new("jobd beside the bare spawn loop", share * 100.0, "%"),
        cpu("the worker", jobd, |round| round.own_micros),
        cpu("its commands", jobd, |round| round.command_micros),
        cpu("MariaDB", jobd, |round| round.database_micros),
        cpu("the bare loop", alone, |round| round.own_micros),
        cpu("its commands, in the bare loop", alone, |round| round.command_micros),
    ]
}
