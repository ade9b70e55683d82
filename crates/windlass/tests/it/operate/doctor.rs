//! `windlass doctor`: reports what is in force, and what is not.

use serde_json::Value;

use crate::harness::{Finished, Home, run, windlass};

/// Runs the doctor with these additional variables, in its own directory.
fn doctor(home: &Home, variables: &[(&str, &str)]) -> Finished {
    let mut command = windlass();
    command.args(["doctor", "--json"]).envs(variables.iter().copied()).current_dir(home.files());
    run(&mut command, b"")
}

fn layer(finished: &Finished, name: &str) -> Value {
    let answer: Value = serde_json::from_str(&finished.stdout).unwrap();
    let layers = answer["layers"].as_array().unwrap();
    let found = layers.iter().find(|layer| layer["layer"] == name);
    found.unwrap_or_else(|| panic!("no layer {name} in {answer}")).clone()
}

#[test]
fn every_layer_is_tried_and_in_force() {
    let home = Home::new();
    let finished = doctor(&home, &[]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for name in [
        "namespaces",
        "user",
        "network policy",
        "system call filter",
        "end of all processes",
        "session",
        "environment",
        "private directory",
        "descriptors",
        "signals",
        "privileges",
        "files (Landlock)",
        "memory",
        "memory of all processes",
        "processor time",
        "file size",
        "processes",
        "core files",
        "sh",
        "node",
        "python3",
        "php",
    ] {
        assert_eq!(layer(&finished, name)["standing"], "in force", "{name}: {finished:?}");
    }
    assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 0, "it leaves nothing behind");
}

#[test]
fn what_is_not_wanted_is_no_failure() {
    let finished = doctor(&Home::new(), &[("WINDLASS_ISOLATION_LANDLOCK", "off")]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(layer(&finished, "files (Landlock)")["standing"], "absent");
}

#[test]
fn what_does_not_work_is_named_and_fails() {
    let home = Home::new();
    let node = home.write("node", "#!/bin/sh\necho broken; exit 3\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(node, mode).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.files().display());
    let finished = doctor(&home, &[("PATH", &path)]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let node = layer(&finished, "node");
    assert_eq!(node["standing"], "not in force");
    assert!(node["detail"].as_str().unwrap().contains("broken"), "{node}");
}
