//! The tables of requirements and of defects are complete: each number has a row, each named test
//! exists.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::test_name::{self, stem};

/// The requirements that the table must have: S0 and S2, by ranges.
const RANGES: [(&str, &[(u32, u32)]); 2] =
    [("S0", &[(1, 63)]), ("S2", &[(1, 9), (11, 30), (32, 40)])];

/// The sections of the contract of Bedrock::Jobs, and what Windlass adds.
const BEDROCK: [&str; 30] = [
    "1.1", "1.2", "1.3", "1.4", "2", "3", "4", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7",
    "5.8", "5.9", "5.10", "5.11", "5.12", "5.13", "5.14", "6", "7", "8.1", "8.2", "9.1", "9.2",
    "9.3", "9.4", "9.5",
];

/// The sections of the contract of jobd, and what Windlass adds.
const JOBD: [&str; 36] = [
    "1.1", "1.2", "1.3", "2", "3.1", "3.2", "4", "5.1", "5.2", "6.1", "6.2", "7", "8.1", "8.2",
    "9.1", "9.2", "9.3", "9.4", "9.5", "9.6", "9.7", "9.8", "9.9", "9.10", "9.11", "9.12", "9.13",
    "9.14", "9.15", "9.16", "9.17", "9.18", "9.19", "12.1", "12.2", "12.3",
];

/// The sections of the contract of Disbatch, and what Windlass adds.
const DISBATCH: [&str; 70] = [
    "0.1", "0.2", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "2.1", "2.2", "2.3", "2.4",
    "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "3.1", "4.1", "4.2", "5.1", "6.1", "7.1",
    "7.2", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "8.9", "8.10", "8.11", "9.1",
    "9.2", "9.3", "9.4", "10.1", "10.2", "11.1", "11.2", "11.3", "11.4", "11.5", "11.6", "11.7",
    "11.8", "11.9", "11.10", "11.11", "11.12", "11.13", "11.14", "11.15", "11.16", "11.17",
    "11.18", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.7", "13",
];

/// The defects of the core and of the doors.
const DEFECTS: [(char, u32); 2] = [('A', 19), ('D', 7)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows `| S0-1 | what | tests |` by their number. A test may be named with its module.
fn rows() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let numbered = ["S0-", "S2-", "B-", "J-", "D-"]
            .iter()
            .any(|head| line.starts_with(&format!("| {head}")));
        if cells.len() >= 5 && numbered {
            let before = rows.insert(cells[1].to_owned(), cells[3].to_owned());
            assert!(before.is_none(), "{} has two rows", cells[1]);
        }
    }
    rows
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
    wanted.extend(BEDROCK.map(|section| format!("B-{section}")));
    wanted.extend(JOBD.map(|section| format!("J-{section}")));
    wanted.extend(DISBATCH.map(|section| format!("D-{section}")));
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
    test_name::all_below(&root().join("crates"), &mut names);
    let mut named = 0;
    for (requirement, tests) in rows() {
        // Test names are between backticks.
        for name in tests.split('`').skip(1).step_by(2) {
            assert!(names.contains(name), "{requirement} names {name}, which does not exist");
            named += 1;
        }
    }
    assert!(named > 0);
}

/// The rows of the tables of a page whose last column names tests.
fn tested_rows(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.contains("| tests |"));
    rows.map(str::to_owned).collect()
}

/// Each row names tests, and all of them exist.
fn check_tests_of(page: &str, rows: &[String]) {
    let mut names = HashSet::new();
    test_name::all_below(&root().join("crates"), &mut names);
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit("| ").next().unwrap_or_default();
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{page}: no test in {row}");
        for name in tests {
            assert!(names.contains(name), "{page}: {name} does not exist: {row}");
        }
    }
}

#[test]
fn every_claim_about_security_names_tests_that_exist() {
    let rows = tested_rows("docs/security.md");
    assert!(rows.len() > 10, "{} claims", rows.len());
    check_tests_of("docs/security.md", &rows);
}

#[test]
fn every_defect_names_tests_that_exist() {
    let rows = tested_rows("docs/defects.md");
    let numbers: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().nth(1)).collect();
    let of = |(family, last): &(char, u32)| {
        (1..=*last).map(|number| format!("{family}{number}")).collect::<Vec<_>>()
    };
    let wanted: Vec<String> = DEFECTS.iter().flat_map(of).collect();
    assert_eq!(numbers, wanted);
    check_tests_of("docs/defects.md", &rows);
}

/// No test of the doors is left out of the table.
#[test]
fn every_test_of_a_door_proves_a_row() {
    let rows = rows();
    let named: HashSet<&str> =
        rows.values().flat_map(|tests| tests.split('`').skip(1).step_by(2)).collect();
    let mut missing = Vec::new();
    let folders = [
        ("it/bedrock", "bedrock::"),
        ("it/bedrock_door", "bedrock_door::"),
        ("jobd", ""),
        ("disbatch", ""),
        ("disbatch/chaos", "chaos::"),
        ("disbatch/client", "client::"),
        ("disbatch/dci", "dci::"),
        ("disbatch/den", "den::"),
        ("disbatch/dtr", "dtr::"),
        ("disbatch/task", "task::"),
    ];
    for (folder, path_of) in folders {
        let folder = root().join("crates/windlass/tests").join(folder);
        for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split("#[test]\nfn ").skip(1) {
                let test = rest.split('(').next().unwrap();
                let name = format!("{path_of}{}::{test}", stem(&path));
                if !named.contains(name.as_str()) {
                    missing.push(name);
                }
            }
        }
    }
    assert!(missing.is_empty(), "no row names {missing:?}");
}
