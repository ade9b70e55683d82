//! Measures Windlass next to what the machine itself can do, in the same run: ratios count,
//! absolute figures are for orientation.
//!
//! | module | owns |
//! |---|---|
//! | `rows` | one promise each: what is measured, and compared with what |
//! | `scale` | how much of it is measured |
//! | `limits` | what the machine does without Windlass |
//! | `engine` | Windlass without a door, and its runners |
//! | `process`, `load` | servers in their own processes, their common client and its loads |
//! | `jobd` | jobd on a real MariaDB, and commands without it |
//! | `postgres` | queues on a real PostgreSQL: Windlass's store, and a plain one |
//! | `report`, `machine` | numbers, their presentation, and the machine |
//!
//! Nothing here runs for ever: every phase ends after a count or a time.

mod engine;
mod jobd;
mod limits;
mod load;
mod machine;
mod postgres;
mod process;
mod report;
mod rows;
mod scale;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Parser;

use crate::process::child::Part;
use crate::report::Report;
use crate::rows::Entry;
use crate::scale::Scale;

/// Measure Windlass next to the limits of the machine.
#[derive(Parser)]
#[command(name = "windlass-bench", after_help = rows::list())]
struct Args {
    /// Rows to measure, by number or name; default: all.
    #[arg(value_name = "ROW", value_parser = rows::find)]
    rows: Vec<&'static Entry>,
    /// Directory for data; must be on a real disk, not in memory.
    #[arg(long, default_value = "target/bench")]
    dir: PathBuf,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures into docs/benchmarks.md below the working directory.
    #[arg(long)]
    write: bool,
    /// Smoke test: everything once, briefly.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Full run, with ten million jobs waiting.
    #[arg(long)]
    full: bool,
}

const DOCUMENT: &str = "docs/benchmarks.md";

fn main() -> anyhow::Result<ExitCode> {
    windlass_runner::cell::enter_if_told();
    let mut args = std::env::args_os().skip(1);
    if let Some(part) = args.next().as_deref().and_then(|name| Part::find(name.to_str()?)) {
        part.run_as_child(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    measure(&Args::parse())
}

fn measure(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.rows.is_empty() || !args.write,
        "--write puts all rows into the document; name no rows with it"
    );
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make {}", args.dir.display()))?;
    let dir = args.dir.canonicalize().context("the directory cannot be found again")?;
    let machine = machine::Machine::inspect(&dir)?;
    ensure!(
        !machine.in_memory(),
        "{} is kept in memory, where a sync costs nothing; choose a disk with --dir",
        dir.display()
    );
    let scale = Scale::choose(args.quick, args.full);
    let mut report = Report::begin(machine, &scale);
    for row in &rows::ROWS {
        let named = args.rows.iter().any(|named| named.name == row.name);
        if args.rows.is_empty() || named {
            report::progress(row.name);
            report.add(row.measure(&dir, &scale)?);
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
