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
        "daemon's process",
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
    let landlock = layer(&finished, "files (Landlock)");
    assert_eq!(landlock["standing"], "absent");
    // The attack that Landlock stops succeeds without it, though the private root is in force.
    let detail = landlock["detail"].as_str().unwrap();
    assert!(detail.contains("wrote a file") && detail.contains("read a file"), "{detail}");
}

/// The control: without a cell, the same attacks succeed.
#[test]
fn without_isolation_the_attacks_succeed() {
    let off = [("WINDLASS_ISOLATION_LEVEL", "off"), ("WINDLASS_ISOLATION_LANDLOCK", "off")];
    let finished = doctor(&Home::new(), &off);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    for (name, deeds) in [
        ("namespaces", &["the daemon's process", "shared memory", "not shown"][..]),
        ("user", &["the daemon's"]),
        ("daemon's process", &["signals", "limits"]),
        ("network policy", &["TCP", "UDP", "UNIX socket in a directory", "abstract"]),
        ("system call filter", &["user namespace", "keyctl", "io_uring_setup", "ptrace"]),
        ("end of all processes", &["outlived its job"]),
        ("memory of all processes", &["was not stopped"]),
    ] {
        let layer = layer(&finished, name);
        assert_eq!(layer["standing"], "not in force", "{name}: {finished:?}");
        for deed in deeds {
            assert!(layer["detail"].as_str().unwrap().contains(deed), "{deed}: {layer}");
        }
    }
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
