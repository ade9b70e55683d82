//! The table of requirements cannot lie: each number has a row, each named test exists.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The requirements that the table must have: S0 and S2, by ranges.
const RANGES: [(&str, &[(u32, u32)]); 2] =
    [("S0", &[(1, 63)]), ("S2", &[(1, 9), (11, 30), (32, 40)])];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows `| S0-1 | what | tests |` by their number.
fn rows() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() >= 5 && (cells[1].starts_with("S0-") || cells[1].starts_with("S2-")) {
            let before = rows.insert(cells[1].to_owned(), cells[3].to_owned());
            assert!(before.is_none(), "{} has two rows", cells[1]);
        }
    }
    rows
}

fn functions_below(dir: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split("fn ").skip(1) {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.insert(rest[..end.unwrap_or(rest.len())].to_owned());
            }
        }
    }
}

#[test]
fn every_requirement_has_a_row() {
    let rows = rows();
    let mut wanted = HashSet::new();
    for (family, ranges) in RANGES {
        for (first, last) in ranges {
            wanted.extend((*first..=*last).map(|number| format!("{family}-{number}")));
        }
    }
    let mut missing: Vec<&String> = wanted.iter().filter(|key| !rows.contains_key(*key)).collect();
    missing.sort();
    assert!(missing.is_empty(), "no row for {missing:?}");
    let empty: Vec<&String> =
        rows.iter().filter(|(_, tests)| tests.is_empty()).map(|(key, _)| key).collect();
    assert!(empty.is_empty(), "neither a test nor a reason for {empty:?}");
}

#[test]
fn every_test_that_is_named_exists() {
    let mut names = HashSet::new();
    functions_below(&root().join("crates"), &mut names);
    let mut named = 0;
    for (requirement, tests) in rows() {
        // Test names stand between backticks.
        for name in tests.split('`').skip(1).step_by(2) {
            assert!(names.contains(name), "{requirement} names {name}, which does not exist");
            named += 1;
        }
    }
    assert!(named > 0);
}
