//! The systemd unit of `windlass serve`: systemd reads all of it, it starts what the binary
//! understands, and the guide explains each of its lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Home, run, windlass};

/// The program as packages install it.
const INSTALLED: &str = "/usr/bin/windlass";
const BINARY: &str = env!("CARGO_BIN_EXE_windlass");

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn unit() -> String {
    fs::read_to_string(repository("packaging/systemd/windlass.service")).unwrap()
}

/// The directives of its sections, with their values.
fn directives(unit: &str) -> Vec<(&str, &str)> {
    let lines = unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
    lines.map(|line| line.split_once('=').unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn systemd_understands_every_line_of_the_unit() {
    // Many containers have no systemd; the other tests read the unit there.
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return;
    }
    let home = Home::new();
    let ours = unit().replace(INSTALLED, BINARY);
    assert!(ours.contains(BINARY));
    let path = home.write("windlass.service", &ours);
    let verify = |path: &Path| {
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]).arg(path);
        run(&mut command, b"")
    };
    let verified = verify(&path);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{verified:?}");
    // What systemd does not know, it ignores with a warning.
    let odd = home.write("odd.service", ours.replace("ProtectClock=", "ProtectClocks="));
    assert!(verify(&odd).stderr.contains("ProtectClocks"));
}

#[test]
fn the_unit_starts_a_command_line_that_the_binary_understands() {
    let unit = unit();
    let start = directives(&unit).into_iter().find(|(name, _)| *name == "ExecStart").unwrap().1;
    let words: Vec<&str> = start.split_whitespace().collect();
    assert_eq!(words[..2], [INSTALLED, "serve"]);
    let helped = |words: &[&str]| run(windlass().args(words).arg("--help"), b"").code;
    assert_eq!(helped(&words[1..]), Some(0));
    assert_eq!(helped(&["serve", "--data-directory", "x"]), Some(2));
    // It is the only place that the unit lets the daemon write to.
    let state = words.iter().position(|word| *word == "--data-dir").map(|at| words[at + 1]);
    assert_eq!(state, Some("/var/lib/windlass"));
    assert!(directives(&unit).contains(&("StateDirectory", "windlass")));
}

#[test]
fn the_guide_explains_every_line_that_closes_something() {
    let guide = fs::read_to_string(repository("docs/operations.md")).unwrap();
    let table = guide.split("## As a service").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let (absent, present): (Vec<&str>, Vec<&str>) = rows.partition(|row| row.contains("not set:"));
    let names = |rows: &[&str]| -> BTreeSet<String> {
        let lines = rows.iter().filter_map(|row| row.split('|').nth(1));
        let quoted = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
        let names = quoted.filter_map(|text| text.split_once('=')).map(|(name, _)| name);
        names.map(str::to_owned).collect()
    };
    let (explained, refused) = (names(&present), names(&absent));
    let unit = unit();
    let set: BTreeSet<&str> = directives(&unit).into_iter().map(|(name, _)| name).collect();
    // They say what the service is and when it starts, not what it may do.
    let plain = [
        "Description",
        "Wants",
        "After",
        "Type",
        "Group",
        "ExecStart",
        "ExecReload",
        "StateDirectoryMode",
        "Restart",
        "RestartSec",
        "LimitNOFILE",
        "WantedBy",
    ];
    for name in &set {
        assert!(explained.contains(*name) || plain.contains(name), "{name} is not in the table");
    }
    for name in &explained {
        assert!(set.contains(name.as_str()), "the table explains {name}, which is not set");
    }
    assert!(refused.contains("RestrictNamespaces"), "{refused:?}");
    for name in &refused {
        assert!(!set.contains(name.as_str()), "{name} takes isolation away");
    }
}
