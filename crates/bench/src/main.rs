//! Measures Windlass beside what the machine itself can do, in the same run: ratios count, absolute
//! figures are orientation.
//!
//! | module | owns |
//! |---|---|
//! | `row1` … `row10` | one promise each: what is measured, and beside what |
//! | `scale` | how much of it is measured |
//! | `limit`, `append`, `server`, `pipe` | the limits: a synced write, two servers, a bare node |
//! | `daemon`, `noop`, `context`, `watched` | Windlass itself, and the runners that it is given |
//! | `queue`, `backlog`, `warm` | jobs that wait, run with nothing to do or in warm contexts |
//! | `round`, `child`, `client` | servers in processes of their own, and the client of them all |
//! | `bedrock`, `cycle`, `depth`, `crowd` | jobs that come and go, and workers that wait |
//! | `database`, `jobd`, `spawn`, `poke` | jobd on a real MariaDB, and commands without it |
//! | `figure`, `report`, `machine` | numbers, how they are shown, and where they were taken |
//!
//! Nothing here runs for ever: every phase ends after a count or a time.

mod append;
mod backlog;
mod bedrock;
mod child;
mod client;
mod context;
mod crowd;
mod cycle;
mod daemon;
mod database;
mod depth;
mod figure;
mod jobd;
mod limit;
mod machine;
mod noop;
mod pipe;
mod poke;
mod queue;
mod report;
mod round;
mod row1;
mod row10;
mod row2;
mod row3;
mod row4;
mod row5;
mod row6;
mod row9;
mod scale;
mod server;
mod spawn;
mod warm;
mod watched;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Parser;

use crate::child::Part;
use crate::figure::Row;
use crate::report::Report;
use crate::scale::Scale;

/// Measures Windlass beside the machine's own limits.
#[derive(Parser)]
#[command(name = "windlass-bench")]
struct Args {
    /// Which rows to measure; all of them when none is named.
    #[arg(value_name = "ROW", value_parser = row_number)]
    rows: Vec<u8>,
    /// Where data goes; on a real disk, never in memory.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    /// Write the figures to this file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Put the figures into docs/benchmarks.md below the working directory.
    #[arg(long)]
    write: bool,
    /// A smoke test: everything once, briefly.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The whole of it, with ten million jobs waiting.
    #[arg(long)]
    full: bool,
}

type Measure = fn(&Path, &Scale) -> anyhow::Result<Row>;

const ROWS: [(u8, Measure); 8] = [
    (1, row1::measure),
    (2, row2::measure),
    (3, row3::measure),
    (4, row4::measure),
    (5, row5::measure),
    (6, row6::measure),
    (9, row9::measure),
    (10, row10::measure),
];

const DOCUMENT: &str = "docs/benchmarks.md";

fn main() -> anyhow::Result<ExitCode> {
    let mut given = std::env::args_os().skip(1);
    if let Some(part) = given.next().as_deref().and_then(|name| Part::find(name.to_str()?)) {
        part.play(given)?;
        return Ok(ExitCode::SUCCESS);
    }
    measure(&Args::parse())
}

fn row_number(text: &str) -> Result<u8, String> {
    let known = ROWS.map(|(number, _)| number);
    let number = text.parse().ok().filter(|number| known.contains(number));
    number.ok_or_else(|| format!("the rows are {}", known.map(|it| it.to_string()).join(", ")))
}

fn measure(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.rows.is_empty() || !args.write,
        "--write puts all rows into the document; name no rows with it"
    );
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make {}", args.dir.display()))?;
    let dir = args.dir.canonicalize().context("the directory cannot be found again")?;
    let machine = machine::Machine::look(&dir)?;
    ensure!(
        !machine.in_memory(),
        "{} is kept in memory, where a sync costs nothing; choose a disk with --dir",
        dir.display()
    );
    let scale = Scale::choose(args.quick, args.full);
    let mut report = Report::begin(machine, &scale);
    for (number, measure) in ROWS {
        if args.rows.is_empty() || args.rows.contains(&number) {
            report::progress(&format!("row {number}"));
            let row = measure(&dir, &scale).with_context(|| format!("row {number}"))?;
            report.add(row);
        }
    }
    if let Some(file) = &args.json {
        std::fs::write(file, report.to_json())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.write {
        report.write_into(Path::new(DOCUMENT))?;
    }
    Ok(ExitCode::SUCCESS)
}
