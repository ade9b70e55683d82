//! Every row of the table of defects that runs, tests and readers have found names what notices
//! the defect now, and that is there: a test, or an input of a fuzz target.

use super::SourceFile;
use crate::shell;

const PAGE: &str = "docs/reliability.md";
const HEAD: &str = "| found by | defect | state | noticed now by |";
/// Names of tests are sentences.
const WORDS_MIN: usize = 4;

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let is_there = |name: &str| {
        let function = format!("fn {name}(");
        files.iter().any(|file| file.is_rust() && file.text.contains(&function))
    };
    let is_seed = |name: &str| shell::root().join("fuzz/seeds").join(name).is_file();
    complaints(&page.text, is_there, is_seed)
}

fn complaints(
    page: &str,
    is_test: impl Fn(&str) -> bool,
    is_seed: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut rows = page.lines().skip_while(|line| *line != HEAD).skip(2).peekable();
    if rows.peek().is_none() {
        return vec![format!("{PAGE}: no table begins with '{HEAD}'")];
    }
    let mut complaints = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let names = last.split('`').skip(1).step_by(2);
        let mut found = 0;
        for name in names {
            let test = name.rsplit("::").next().unwrap_or(name);
            let good = match name.contains('/') {
                true => is_seed(name),
                // The name of a crate or of its tests.
                false if test.split('_').count() < WORDS_MIN => continue,
                false => is_test(test),
            };
            found += 1;
            if !good {
                complaints.push(format!("{PAGE}: there is no '{name}'"));
            }
        }
        if found == 0 {
            complaints.push(format!("{PAGE}: what notices this defect? {row}"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_a_test_or_a_seed_that_is_there() {
        let with = |last: &str| {
            let page =
                format!("text\n\n{HEAD}\n|---|---|---|---|\n| a | b `x_y_z_w` | c | {last} |\n\n");
            complaints(&page, |test| test == "it_is_there_now", |seed| seed == "text/date").len()
        };
        assert_eq!(with("engine `attempt::it_is_there_now`"), 0);
        assert_eq!(with("seed `text/date`"), 0);
        assert_eq!(with("seed `text/date`, `beat::it_was_there_once`"), 1);
        assert_eq!(with("`text/other`"), 1);
        assert_eq!(with(""), 1, "none");
        assert_eq!(with("store-sqlite `sync`"), 1, "that is no test");
        assert_eq!(complaints("no table", |_| true, |_| true).len(), 1);
    }
}
