//! A table of modules in a `//!` header lists the modules that the file declares, and no others.

use std::collections::BTreeSet;

use super::SourceFile;

/// The files whose headers may have such a table.
const NAMES: [&str; 3] = ["lib.rs", "mod.rs", "main.rs"];
/// The head of the first column. Other tables have other heads.
const HEADS: [&str; 2] = ["module", "file"];

pub(super) fn check(file: &SourceFile) -> Vec<String> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    if !NAMES.contains(&name) {
        return Vec::new();
    }
    let Some(listed) = listed(&file.text) else { return Vec::new() };
    let declared = declared(&file.text);
    let path = &file.path;
    let mut complaints = Vec::new();
    for name in declared.required.difference(&listed) {
        complaints.push(format!("{path}: the table of modules lacks `{name}`"));
    }
    for name in listed.difference(&declared.required) {
        if !declared.test_only.contains(name) {
            complaints.push(format!("{path}: the table of modules has `{name}`, no module here"));
        }
    }
    complaints
}

/// The names in the first column; `None` if there is no table of modules.
fn listed(text: &str) -> Option<BTreeSet<&str>> {
    let header = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let mut cells = header.map(|line| line.strip_prefix('|').and_then(|row| row.split('|').next()));
    cells.find(|cell| cell.is_some_and(|cell| HEADS.contains(&cell.trim())))?;
    let rows = cells.map_while(|cell| cell).skip(1);
    Some(rows.flat_map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`'))).collect())
}

struct Declared<'a> {
    required: BTreeSet<&'a str>,
    /// Test modules may be listed, but need not be.
    test_only: BTreeSet<&'a str>,
}

fn declared(text: &str) -> Declared<'_> {
    let mut declared = Declared { required: BTreeSet::new(), test_only: BTreeSet::new() };
    let mut attribute = "";
    for line in text.lines() {
        if let Some(name) = module(line) {
            let only_tests = attribute.starts_with("#[cfg(test)]");
            let names = if only_tests { &mut declared.test_only } else { &mut declared.required };
            names.insert(name);
        }
        attribute = line;
    }
    declared
}

/// The name in `mod name;`, with any visibility, at the top level.
fn module(line: &str) -> Option<&str> {
    let (visibility, rest) = line.split_once("mod ")?;
    let visible = visibility.is_empty() || visibility.starts_with("pub");
    rest.strip_suffix(';').filter(|_| visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &str = "mod a;\npub mod b;\npub(crate) mod c;\n#[cfg(test)]\nmod tests;\n";

    fn complaints(path: &str, rows: &str) -> Vec<String> {
        let text =
            format!("//! Text.\n//!\n//! | module | owns |\n//! |---|---|\n{rows}\n{MODULES}");
        check(&SourceFile { path: path.into(), text })
    }

    #[test]
    fn a_table_with_every_module_is_fine_with_or_without_those_of_tests() {
        let rows = "//! | `a`, `b` | x |\n//! | `c` | y |\n";
        assert_eq!(complaints("x/lib.rs", rows), [""; 0]);
        let rows = "//! | `a`, `b`, `c` | x |\n//! | `tests` | y |\n//!\n//! More.\n";
        assert_eq!(complaints("x/lib.rs", rows), [""; 0]);
    }

    #[test]
    fn missing_and_stale_rows_are_found() {
        let stale = "//! | `a`, `gone` | x |\n//! | `c` | x |\n//! | the others | x |\n";
        let found = complaints("x/mod.rs", stale);
        assert_eq!(
            found,
            [
                "x/mod.rs: the table of modules lacks `b`",
                "x/mod.rs: the table of modules has `gone`, no module here",
                "x/mod.rs: the table of modules has `the others`, no module here",
            ]
        );
        assert_eq!(complaints("x/other.rs", stale), [""; 0]);
    }

    #[test]
    fn tables_of_other_things_and_files_without_one_are_left_alone() {
        for header in ["//! | trait | verbs |\n//! |---|---|\n//! | `X` | y |\n", "//! Text.\n"] {
            let file = SourceFile { path: "lib.rs".into(), text: format!("{header}\n{MODULES}") };
            assert_eq!(check(&file), [""; 0]);
        }
    }
}
