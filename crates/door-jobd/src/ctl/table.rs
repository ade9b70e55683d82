//! Text tables: columns joined by ` | `, upper-case heads above dashes, cells padded to the width
//! of their column. A cell may have several lines.

const SPLITTER: &str = " | ";

/// The table without a newline at its end. Every row has a cell for each column.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(column, head)| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.flat_map(|cell| cell.split('\n')).map(width).fold(width(head), usize::max)
        })
        .collect();
    let heads: Vec<String> = columns.iter().map(|head| head.to_uppercase()).collect();
    let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut lines = Vec::new();
    push_row(&mut lines, &widths, &heads);
    push_row(&mut lines, &widths, &dashes);
    rows.iter().for_each(|row| push_row(&mut lines, &widths, row));
    lines.join("\n")
}

/// Foreign text as one line of a cell, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn push_row(lines: &mut Vec<String>, widths: &[usize], row: &[String]) {
    let cells: Vec<Vec<&str>> = row.iter().map(|cell| cell.split('\n').collect()).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or_default();
    for line in 0..height {
        let parts = widths.iter().enumerate().map(|(column, width)| {
            let part = cells.get(column).and_then(|cell| cell.get(line)).copied();
            format!("{:<width$}", part.unwrap_or_default())
        });
        lines.push(parts.collect::<Vec<_>>().join(SPLITTER));
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn check(columns: &[&str], rows: &[&[&str]], expected: &[&str]) {
        let rows: Vec<Vec<String>> = rows.iter().map(|cells| row(cells)).collect();
        let text = table(columns, &rows);
        assert_eq!(text.split('\n').collect::<Vec<_>>(), expected);
    }

    #[test]
    fn cells_are_padded_also_in_the_last_column() {
        check(
            &["target", "concurrency", "length", "paused"],
            &[&["low", "2", "0", "no"], &["1/high", "3", "0", "yes"]],
            &[
                "TARGET | CONCURRENCY | LENGTH | PAUSED",
                "------ | ----------- | ------ | ------",
                "low    | 2           | 0      | no    ",
                "1/high | 3           | 0      | yes   ",
            ],
        );
    }

    #[test]
    fn rows_may_have_several_lines() {
        check(
            &["worker", "targets", "concurrency", "length", "paused"],
            &[
                &["srv-1\n(127.0.0.1)", "a\nb", "2\n3", "0\n0", "no\nno"],
                &["srv-2-long-name\n(127.0.0.1)", "a", "2", "0", "no"],
            ],
            &[
                "WORKER          | TARGETS | CONCURRENCY | LENGTH | PAUSED",
                "--------------- | ------- | ----------- | ------ | ------",
                "srv-1           | a       | 2           | 0      | no    ",
                "(127.0.0.1)     | b       | 3           | 0      | no    ",
                "srv-2-long-name | a       | 2           | 0      | no    ",
                "(127.0.0.1)     |         |             |        |       ",
            ],
        );
    }

    #[test]
    fn a_table_without_rows_has_its_heads() {
        check(&["what", "value"], &[], &["WHAT | VALUE", "---- | -----"]);
    }

    #[test]
    fn a_wide_cell_widens_dashes_and_counts_characters() {
        check(
            &["what", "value"],
            &[&["größer", "1"]],
            &["WHAT   | VALUE", "------ | -----", "größer | 1    "],
        );
    }

    #[test]
    fn text_of_others_stays_on_its_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J\u{9b}"), "a\u{fffd}b\u{fffd}[2J\u{fffd}");
    }
}
