//! `windlass doctor`: reports what is in force, and what is not.

use std::os::unix::process::CommandExt;

use serde_json::Value;

use crate::harness::{Finished, Home, run, windlass};

const NOBODY: u32 = 65_534;

/// Runs the doctor with these additional variables, in its own directory.
fn doctor(home: &Home, variables: &[(&str, &str)]) -> Finished {
    doctor_of(None, home, variables)
}

/// The same as another user.
fn doctor_of(user: Option<u32>, home: &Home, variables: &[(&str, &str)]) -> Finished {
    let mut command = windlass();
    command.args(["doctor", "--json"]).envs(variables.iter().copied()).current_dir(home.files());
    if let Some(user) = user {
        home.give_to(user);
        command.uid(user).gid(user);
    }
    run(&mut command, b"")
}

/// The user of the tests and, if that is root, an ordinary one.
fn users() -> Vec<Option<u32>> {
    let others = rustix::process::geteuid().is_root().then_some(Some(NOBODY));
    [None].into_iter().chain(others).collect()
}

fn layer(finished: &Finished, name: &str) -> Value {
    let answer: Value = serde_json::from_str(&finished.stdout).unwrap();
    let layers = answer["layers"].as_array().unwrap();
    let found = layers.iter().find(|layer| layer["layer"] == name);
    found.unwrap_or_else(|| panic!("no layer {name} in {answer}")).clone()
}

const LAYERS: [&str; 25] = [
    "namespaces",
    "user",
    "daemon's process",
    "files of others",
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
    "scratch space",
    "processor time",
    "file size",
    "processes",
    "core files",
    "sh",
    "node",
    "python3",
    "php",
];

#[test]
fn every_layer_is_tried_and_in_force() {
    for user in users() {
        let home = Home::new();
        let finished = doctor_of(user, &home, &[]);
        assert_eq!(finished.code, Some(0), "{user:?}: {finished:?}");
        for name in LAYERS {
            assert_eq!(layer(&finished, name)["standing"], "in force", "{user:?}: {finished:?}");
        }
        assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 0, "it leaves nothing behind");
    }
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

const OFF: [(&str, &str); 2] =
    [("WINDLASS_ISOLATION_LEVEL", "off"), ("WINDLASS_ISOLATION_LANDLOCK", "off")];

/// The control: without a cell, the same attacks succeed.
#[test]
fn without_isolation_the_attacks_succeed() {
    for user in users() {
        let finished = doctor_of(user, &Home::new(), &OFF);
        assert_eq!(finished.code, Some(1), "{finished:?}");
        // Handlers of root have lost their rights, without which none slows down one that has some.
        let of_root = user.is_none() && rustix::process::geteuid().is_root();
        let slows_down = if of_root { &[][..] } else { &["priority", "processors"] };
        for (name, deeds) in [
            ("namespaces", &["the daemon's process", "shared memory", "not shown"][..]),
            ("user", &["the daemon's"]),
            ("daemon's process", &["signals", "limits"]),
            ("daemon's process", slows_down),
            ("files of others", &["the mode", "the times"]),
            ("network policy", &["TCP", "UDP", "UNIX socket in a directory", "abstract"]),
            ("system call filter", &["user namespace", "keyctl", "io_uring_setup", "ptrace"]),
            ("end of all processes", &["outlived its job"]),
            ("memory of all processes", &["was not stopped"]),
            ("scratch space", &["wrote more"]),
        ] {
            let layer = layer(&finished, name);
            assert_eq!(layer["standing"], "not in force", "{user:?}, {name}: {finished:?}");
            for deed in deeds {
                assert!(layer["detail"].as_str().unwrap().contains(deed), "{deed}: {layer}");
            }
        }
    }
}

/// On a busy machine a process may take long until nothing tells whose it is any more. It must not
/// be ended before that: what ends it then is not what is tried.
#[test]
fn a_process_that_is_slow_to_hide_is_waited_for() {
    let home = Home::new();
    let slow = home.write("env", "#!/bin/sh\nsleep 1\nexec /usr/bin/env \"$@\"\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(slow, mode).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.files().display());
    let finished = doctor(&home, &[&OFF[..], &[("PATH", &path)]].concat());
    let layer = layer(&finished, "end of all processes");
    assert!(layer["detail"].as_str().unwrap().contains("outlived its job"), "{layer}");
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
