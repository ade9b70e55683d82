//! The live view: a table that is redrawn on a terminal, an occasional line elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::Value;

use super::plan::{PLAN, Work};
use crate::output::{self, Table, number, text};

/// Width of a bar.
const BAR: usize = 24;
/// Without a terminal, the time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The counts of one type at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) finished: u64,
    pub(super) failed: u64,
}

impl Count {
    /// From the daemon's list of types.
    pub(super) fn read(item: &Value) -> Count {
        let of = |name: &str| item[name].as_u64().unwrap_or_default();
        Count {
            waiting: of("ready") + of("deferred"),
            running: of("running"),
            finished: of("finished"),
            failed: of("failed"),
        }
    }
}

pub(super) struct Screen {
    redraws: bool,
    lines_drawn: usize,
    line_due: Duration,
}

impl Screen {
    pub(super) fn new() -> Screen {
        Screen { redraws: io::stdout().is_terminal(), lines_drawn: 0, line_due: Duration::ZERO }
    }

    /// Shows the counts, one per type of the plan. `elapsed` counts from the first add.
    pub(super) fn show(
        &mut self,
        counts: &[Count],
        elapsed: Duration,
        last: bool,
    ) -> io::Result<()> {
        if self.redraws {
            let table = draw_table(counts, elapsed, output::width());
            // Move up to the first line and overwrite the old table.
            let up = match self.lines_drawn {
                0 => String::new(),
                lines => format!("\u{1b}[{lines}A"),
            };
            self.lines_drawn = table.lines().count();
            return output::draw(&(up + &table.replace('\n', "\u{1b}[K\n")));
        }
        if !last && elapsed < self.line_due {
            return Ok(());
        }
        self.line_due = elapsed + LINE_EVERY;
        output::print(&line(counts, elapsed))
    }
}

fn draw_table(counts: &[Count], elapsed: Duration, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        text("TENANT"),
        text("TYPE"),
        number("WAITING"),
        number("RUNNING"),
        number("FINISHED"),
        text("DONE"),
    ]);
    for (work, count) in PLAN.iter().zip(counts) {
        table.row(vec![
            work.tenant.into(),
            work.name.into(),
            count.waiting.to_string(),
            count.running.to_string(),
            count.finished.to_string(),
            bar(work, *count),
        ]);
    }
    format!("{}{:>6.1} s\n", table.render(width), elapsed.as_secs_f64())
}

fn bar(work: &Work, count: Count) -> String {
    let share = count.finished as f64 / work.expected as f64;
    let full = ((share * BAR as f64) as usize).min(BAR);
    format!("{}{} {:3.0} %", "█".repeat(full), "░".repeat(BAR - full), share * 100.0)
}

fn line(counts: &[Count], elapsed: Duration) -> String {
    let parts = PLAN.iter().zip(counts).map(|(work, count)| {
        format!("  {}/{} {}/{}", work.tenant, work.name, count.finished, work.expected)
    });
    let parts: String = parts.collect();
    format!("{:5.1} s{parts}\n", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_when_everything_has_finished() {
        let work = &PLAN[0];
        let count = |finished| Count { finished, ..Count::default() };
        assert!(bar(work, count(0)).starts_with(&"░".repeat(BAR)));
        assert_eq!(bar(work, count(work.expected as u64)), "█".repeat(BAR) + " 100 %");
        let half = bar(work, count(work.expected as u64 / 2));
        assert_eq!(half.matches('█').count(), BAR / 2);
    }

    #[test]
    fn a_picture_has_a_line_for_each_type_between_head_and_clock() {
        let counts = [Count::default(); PLAN.len()];
        let table = draw_table(&counts, Duration::from_millis(1500), None);
        assert_eq!(table.lines().count(), 1 + PLAN.len() + 1);
        assert!(table.ends_with("1.5 s\n"));
    }
}
