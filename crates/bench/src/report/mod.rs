//! Shows figures: on the terminal as they come in, as JSON, and as the tables of the document. The
//! only module that prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub(crate) mod figure;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use windlass_core::Clock;
use windlass_core::time::SystemClock;

use crate::machine::Machine;
use crate::scale::Scale;

use figure::{Outcome, Row};

/// Everything between these lines of the document is replaced.
const BEGIN: &str = "<!-- figures: written by windlass-bench -->";
const END: &str = "<!-- end of figures -->";

#[derive(Serialize)]
pub(crate) struct Report {
    date: String,
    scale: &'static str,
    machine: Machine,
    rows: Vec<Row>,
}

/// Shows what is being done now.
pub(crate) fn progress(what: &str) {
    eprintln!("… {what}");
}

/// Tells the parent process where a server listens, door by door.
pub(crate) fn announce(addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    writeln!(out, "{}", addresses.join(" "))?;
    out.flush().context("cannot tell the parent where the server listens")
}

/// Passes the measurements to the parent process.
pub(crate) fn hand_over(figures: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(std::io::stdout(), figures).context("the figures cannot be handed over")
}

impl Report {
    pub(crate) fn begin(machine: Machine, scale: &Scale) -> Report {
        let now = jiff::Timestamp::from_millisecond(SystemClock.now().ms()).unwrap_or_default();
        let date = now.strftime("%Y-%m-%d").to_string();
        let report = Report { date, scale: scale.name, machine, rows: Vec::new() };
        println!("{}", report.circumstances());
        report
    }

    pub(crate) fn add(&mut self, row: Row) {
        let Row { number, name, what, outcome } = &row;
        println!("\n{number}. {what} ({name})");
        for figure in &outcome.figures {
            println!("   {:<58} {:>14} {}", figure.name, figure.text(), figure.unit);
        }
        let kept = if outcome.kept { "kept" } else { "NOT KEPT" };
        println!("   promise: {}\n   reached: {} ({kept})", outcome.promise, outcome.reached);
        self.rows.push(row);
    }

    fn circumstances(&self) -> String {
        let Machine { cores, cpu, memory_gib, kernel, file_system } = &self.machine;
        let (date, scale) = (&self.date, self.scale);
        let build =
            if cfg!(debug_assertions) { " of a debug build, which is meaningless" } else { "" };
        format!(
            "{date}, {scale} run{build}. {cores} cores ({cpu}), {memory_gib:.0} GiB of memory, \
             Linux {kernel}, {file_system}. Servers, client and disk share this one machine."
        )
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("figures are plain data") + "\n"
    }

    /// Replaces the figures in the document.
    pub(crate) fn write_into(&self, document: &Path) -> anyhow::Result<()> {
        let name = document.display();
        let text = std::fs::read_to_string(document)
            .with_context(|| format!("cannot read {name} below the working directory"))?;
        let replaced = replace_between(&text, &self.to_markdown())
            .with_context(|| format!("{name} has no place for figures"))?;
        std::fs::write(document, replaced).with_context(|| format!("cannot write {name}"))
    }

    fn to_markdown(&self) -> String {
        let mut text = format!("{}\n\n", self.circumstances());
        text.push_str("| # | what | promise | reached | |\n|---|---|---|---|---|\n");
        for row in &self.rows {
            let Row { number, what, outcome, .. } = row;
            let Outcome { promise, reached, kept, .. } = outcome;
            let kept = if *kept { "kept" } else { "**not kept**" };
            writeln!(text, "| {number} | {what} | {promise} | {reached} | {kept} |")
                .expect("a text takes everything");
        }
        for row in &self.rows {
            write!(
                text,
                "\n### {}. {}\n\n| figure | value | |\n|---|--:|---|\n",
                row.number, row.what
            )
            .expect("a text takes everything");
            for figure in &row.outcome.figures {
                writeln!(text, "| {} | {} | {} |", figure.name, figure.text(), figure.unit)
                    .expect("a text takes everything");
            }
        }
        text
    }
}

fn replace_between(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{figures}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_replaced_and_the_prose_around_them_stays() {
        let text = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nMore.\n");
        let once = replace_between(&text, "new\n").unwrap();
        assert_eq!(once, format!("# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nMore.\n"));
        assert_eq!(replace_between(&once, "new\n").unwrap(), once);
        assert_eq!(replace_between("no place", "new"), None);
    }
}
