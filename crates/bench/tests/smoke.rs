//! The program from outside: brief runs of real servers, and invalid arguments.

use std::path::Path;
use std::process::{Command, Output};

fn bench(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass-bench"));
    command.current_dir(dir).arg("--quick").args(args).output().expect("the program is built")
}

#[test]
fn rows_are_measured_and_written_down_in_both_forms() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ran = bench(
        dir.path(),
        &["1", "small-adds", "4", "5", "9", "10", "13", "--json", "figures.json"],
    );
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let json = std::fs::read(dir.path().join("figures.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let numbers: Vec<u64> = rows.iter().map(|row| row["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 3, 4, 5, 9, 10, 13]);
    assert_eq!(rows[0]["name"], "accept-latency");
    let text = String::from_utf8(ran.stdout).unwrap();
    for figure in rows.iter().flat_map(|row| row["figures"].as_array().unwrap()) {
        assert!(figure["value"].is_number(), "{figure}");
        assert!(text.contains(figure["name"].as_str().unwrap()), "{figure}");
    }
    let left = std::fs::read_dir(dir.path().join("target/bench")).unwrap().count();
    assert_eq!(left, 0, "data was left behind");
}

#[test]
fn the_help_says_what_each_number_measures() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let help = String::from_utf8(bench(dir.path(), &["--help"]).stdout).unwrap();
    for line in [" 1  accept-latency ", " 6  backlog ", "10  jobd-commands "] {
        assert!(help.contains(line), "{line:?} in {help}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cases = [
        (&["0"][..], "'0'"),
        (&["7"], "'7'"),
        (&["1", "--write"], "--write"),
        (&["1", "--dir", "/dev/shm"], "--dir"),
    ];
    for (args, named) in cases {
        let ran = bench(dir.path(), args);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && said.contains(named), "{args:?}: {said}");
    }
}
