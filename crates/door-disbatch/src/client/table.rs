//! Tables as Disbatch prints them: columns between bars, heads above a rule.

/// The lines of a table. Every row has a cell for each head.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let width = |column: usize, head: &str| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.fold(head.chars().count(), usize::max)
    };
    let widths: Vec<usize> =
        heads.iter().enumerate().map(|(column, head)| width(column, head)).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut lines = line(&heads, &widths, " | ");
    lines.push_str(&line(&rule, &widths, "-+-"));
    rows.iter().for_each(|row| lines.push_str(&line(row, &widths, " | ")));
    lines
}

fn line(cells: &[String], widths: &[usize], between: &str) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    let line = padded.collect::<Vec<_>>().join(between);
    format!("{}\n", line.trim_end())
}

/// Foreign text on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Foreign text on several lines, without other control characters.
pub(super) fn lines(text: &str) -> String {
    let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    text.chars().map(|c| if plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows =
            [row(["56eade3aeb6af81e0123ed21", "größe", ""]), row(["1", "a\u{1b}[2J\nb", "0"])];
        let expected = "\
ID                       | Name    | Threads
-------------------------+---------+--------
56eade3aeb6af81e0123ed21 | größe   |
1                        | a\u{fffd}[2J\u{fffd}b | 0
";
        assert_eq!(table(&["ID", "Name", "Threads"], &rows), expected);
    }

    #[test]
    fn a_table_without_rows_has_its_heads() {
        assert_eq!(table(&["ID", "Name"], &[]), "ID | Name\n---+-----\n");
    }
}
