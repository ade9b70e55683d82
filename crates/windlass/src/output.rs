//! Output for people and programs: tables, aligned values, JSON, messages on standard error. The
//! only module that writes to the terminal. What jobs and their clients wrote cannot control it.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Between two columns.
const GAP: usize = 2;
/// Minimum width of a column that is cut.
const CUT_MIN: usize = 8;

/// Writes to standard output and flushes.
pub(crate) fn print(text: &str) -> io::Result<()> {
    draw(&shown(text, is_terminal()))
}

/// The same for our own text, which may move the cursor.
pub(crate) fn draw(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whether a person reads standard output as it is.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    print(&format!("{text}\n"))
}

/// The error message of a failed command.
pub(crate) fn print_error(sentence: &str) {
    note(&format!("windlass: {sentence}\n"));
}

/// A remark on standard error.
pub(crate) fn note(text: &str) {
    draw_note(&shown(text, io::stderr().is_terminal()));
}

fn draw_note(text: &str) {
    // If standard error is closed, nothing can be reported.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A remark that replaces the previous one; only on a terminal.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        draw_note(&format!("\r\u{1b}[K{}", plain(text)));
    }
}

/// The width of the terminal; `None` if the output is not a terminal and must not be cut.
pub(crate) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    head: &'static str,
    numbers: bool,
    cut: bool,
}

/// A left-aligned column.
pub(crate) const fn text(head: &'static str) -> Column {
    Column { head, numbers: false, cut: false }
}

/// A left-aligned column that may be cut on a shrink_columns terminal.
pub(crate) const fn long(head: &'static str) -> Column {
    Column { head, numbers: false, cut: true }
}

/// A right-aligned column.
pub(crate) const fn number(head: &'static str) -> Column {
    Column { head, numbers: true, cut: false }
}

/// Aligned rows under column heads.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells.iter().map(|cell| plain(cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, cut to `width` if it is given.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.head.chars().count()).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(cell.chars().count());
            }
        }
        if let Some(width) = width {
            self.shrink_columns(&mut widths, width);
        }
        let heads: Vec<_> = self.columns.iter().map(|column| column.head.to_owned()).collect();
        let rows = std::iter::once(&heads).chain(&self.rows);
        rows.map(|row| self.line(row, &widths, width)).collect()
    }

    /// Shrinks the widest column that may be cut until the line fits.
    fn shrink_columns(&self, widths: &mut [usize], width: usize) {
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        while total(widths) > width {
            let cut = (0..widths.len()).filter(|at| self.columns[*at].cut && widths[*at] > CUT_MIN);
            let Some(widest) = cut.max_by_key(|at| widths[*at]) else { return };
            widths[widest] -= 1;
        }
    }

    fn line(&self, row: &[String], widths: &[usize], width: Option<usize>) -> String {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let (cell, wide) = (cut(cell, widths[at]), widths[at]);
            let gap = if at == 0 { 0 } else { GAP };
            line.push_str(&" ".repeat(gap));
            if self.columns[at].numbers {
                line.push_str(&format!("{cell:>wide$}"));
            } else {
                line.push_str(&format!("{cell:wide$}"));
            }
        }
        let line = line.trim_end();
        let line = width.map_or(line.to_owned(), |width| cut(line, width));
        line + "\n"
    }
}

/// One name and value per line; absent values are skipped.
pub(crate) fn pairs(pairs: &[(&str, Option<String>)]) -> String {
    let wide = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let shown = pairs.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    shown.map(|(name, value)| format!("{name:wide$}  {}\n", plain(value))).collect()
}

/// Replaces control characters, so that a value cannot control the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_control(c) { '\u{fffd}' } else { c }).collect()
}

/// The same for lines that go to a terminal; programs get every byte.
fn shown(text: &str, terminal: bool) -> Cow<'_, str> {
    let is_kept = |c: char| !is_control(c) || matches!(c, '\n' | '\t');
    if !terminal || text.chars().all(is_kept) {
        return text.into();
    }
    let text = text.replace("\r\n", "\n");
    text.chars().map(|c| if is_kept(c) { c } else { '\u{fffd}' }).collect()
}

/// Whether it controls the terminal, or the direction in which text is shown.
fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[text("ID"), long("TYPE"), number("READY")]);
        table.row(vec!["1".into(), "a-rather-long-type-name".into(), "7".into()]);
        table.row(vec!["22".into(), "b".into(), "1234567".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_on_the_right() {
        let expected = "\
ID  TYPE                       READY
1   a-rather-long-type-name        7
22  b                        1234567
";
        assert_eq!(table().render(None), expected);
    }

    #[test]
    fn a_narrow_terminal_cuts_long_columns_first_and_no_line_is_wider() {
        let expected = "\
ID  TYPE         READY
1   a-rather…        7
22  b          1234567
";
        assert_eq!(table().render(Some(22)), expected);
        for width in 1..40 {
            assert!(table().render(Some(width)).lines().all(|line| line.chars().count() <= width));
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&[text("A")]);
        table.row(vec!["x\u{1b}[2Jy\nz".into()]);
        assert!(!table.render(None).contains('\u{1b}'));
        assert_eq!(table.render(None).lines().count(), 2);
        assert!(!pairs(&[("a", Some("\u{7}".into()))]).contains('\u{7}'));
        assert_eq!(plain("invoice\u{202e}gnp.exe"), "invoice\u{fffd}gnp.exe");
    }

    #[test]
    fn lines_of_jobs_do_not_control_the_terminal_and_programs_get_every_byte() {
        let log = "a\tb\n\u{1b}]0;title\u{7}c\u{9b}2J\r\nd\n";
        assert_eq!(shown(log, true), "a\tb\n\u{fffd}]0;title\u{fffd}c\u{fffd}2J\nd\n");
        assert_eq!(shown(log, false), log);
        assert!(matches!(shown("a\tb\n", true), Cow::Borrowed("a\tb\n")));
    }

    #[test]
    fn absent_values_are_left_out() {
        let text =
            pairs(&[("id", Some("1".into())), ("result", None), ("state", Some("x".into()))]);
        assert_eq!(text, "id      1\nstate   x\n");
    }
}
