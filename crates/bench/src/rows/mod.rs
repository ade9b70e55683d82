//! The rows of the table of promises, one file each: what is measured, and compared with what.
//! Their numbers are those of the promises, so some are missing; only this table knows them.

mod accept_latency;
mod backlog;
mod bedrock_cycles;
mod bulk_adds;
mod cell_commands;
mod cell_start;
mod jobd_commands;
mod key_check;
mod many_types;
mod postgres;
mod postgres_latency;
mod small_adds;
mod start_latency;
mod warm_contexts;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::report::figure::{Outcome, Row};
use crate::scale::Scale;

/// A row that can be measured.
pub(crate) struct Entry {
    number: u8,
    pub(crate) name: &'static str,
    what: &'static str,
    measure: fn(&Path, &Scale) -> anyhow::Result<Outcome>,
}

pub(crate) static ROWS: [Entry; 14] = [
    Entry {
        number: 1,
        name: "accept-latency",
        what: "accept of one line, one client",
        measure: accept_latency::measure,
    },
    Entry {
        number: 2,
        name: "bulk-adds",
        what: "durable lines, 1,000 × 200 B a request, 8 connections",
        measure: bulk_adds::measure,
    },
    Entry {
        number: 3,
        name: "small-adds",
        what: "HTTP adds of one line, 64 connections",
        measure: small_adds::measure,
    },
    Entry {
        number: 4,
        name: "warm-contexts",
        what: "warm node context, batches of 100",
        measure: warm_contexts::measure,
    },
    Entry {
        number: 5,
        name: "start-latency",
        what: "accept → start, idle queue, warm",
        measure: start_latency::measure,
    },
    Entry { number: 6, name: "backlog", what: "backlog", measure: backlog::measure },
    Entry {
        number: 9,
        name: "bedrock-cycles",
        what: "Bedrock create → get → finish, 8 connections",
        measure: bedrock_cycles::measure,
    },
    Entry {
        number: 10,
        name: "jobd-commands",
        what: "jobd, `/bin/true {id}` at concurrency 20",
        measure: jobd_commands::measure,
    },
    Entry {
        number: 11,
        name: "many-types",
        what: "a new type beside a million others",
        measure: many_types::measure,
    },
    Entry {
        number: 13,
        name: "key-check",
        what: "the check of an API key, beside 10,000 others",
        measure: key_check::measure,
    },
    Entry {
        number: 14,
        name: "cell-start",
        what: "first job of a new context in a cell",
        measure: cell_start::measure,
    },
    Entry {
        number: 15,
        name: "cell-commands",
        what: "jobs of `sh` in cells",
        measure: cell_commands::measure,
    },
    Entry {
        number: 16,
        name: "postgres",
        what: "the store on PostgreSQL, 4 clients",
        measure: postgres::measure,
    },
    Entry {
        number: 17,
        name: "postgres-latency",
        what: "accept → start on PostgreSQL, idle queue",
        measure: postgres_latency::measure,
    },
];

impl Entry {
    pub(crate) fn measure(&self, dir: &Path, scale: &Scale) -> anyhow::Result<Row> {
        let Entry { number, name, what, measure } = *self;
        let outcome =
            measure(dir, scale).with_context(|| format!("row {number}, {name}, failed"))?;
        Ok(Row { number, name, what, outcome })
    }
}

/// By its number or by its name.
pub(crate) fn find(text: &str) -> Result<&'static Entry, String> {
    let found = ROWS.iter().find(|row| row.name == text || row.number.to_string() == text);
    found.ok_or_else(|| {
        let known = ROWS.each_ref().map(|row| format!("{} ({})", row.number, row.name));
        format!("the rows are {}", known.join(", "))
    })
}

/// All rows, one per line.
pub(crate) fn list() -> String {
    let mut text = String::from("Rows, by number or name:\n");
    for Entry { number, name, what, .. } in &ROWS {
        let _ = writeln!(text, "  {number:>2}  {name:<16} {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_its_number_and_by_its_name() {
        for row in &ROWS {
            assert_eq!(find(&row.number.to_string()).unwrap().name, row.name);
            assert_eq!(find(row.name).unwrap().number, row.number);
        }
        let none = find("7").map(|row| row.name).unwrap_err();
        assert!(none.contains("6 (backlog), 9 (bedrock-cycles)"), "{none}");
    }
}
