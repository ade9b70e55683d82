//! Nodes that may open only a few files: they run fewer tasks at a time, and fail none because of
//! it.

use std::process::Command;

use mongodb::bson::doc;

use crate::harness::{Home, Program, windlass};

/// A node whose shell has set this limit.
fn den_with_files(home: &Home, ulimit: &str) -> Program {
    let file = home.write(&home.den_config("one"));
    let node = windlass(&["den", "--config", file.to_str().unwrap()]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("ulimit {ulimit} && exec \"$@\""), "sh"]);
    shell.arg(node.get_program()).args(node.get_args());
    for (name, value) in node.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let mut den = Program::spawn(shell, home.folder());
    home.entered("one", &mut den);
    den
}

/// The soft limit is a shell's default; a node may raise it by itself.
#[test]
fn a_low_soft_limit_is_raised() {
    let home = Home::seed();
    let queue = home.line_with(&home.gated(), doc! {});
    let tasks = home.add(queue, 20);
    let _den = den_with_files(&home, "-Sn 64");
    for task in &tasks {
        home.began(*task);
    }
    home.open_all();
    home.all_reach(&tasks, 1);
}

#[test]
fn with_few_files_tasks_wait_and_do_not_fail() {
    let home = Home::seed();
    let queue = home.line_with(&home.gated(), doc! {});
    let tasks = home.add(queue, 30);
    let _den = den_with_files(&home, "-n 160");
    let begun = || tasks.iter().filter(|task| home.has_begun(**task)).count();
    home.passes("one", 2);
    let active = home.active(queue);
    assert!((1..20).contains(&active), "{active} at once");
    home.open_all();
    home.all_reach(&tasks, 1);
    assert_eq!(begun(), tasks.len());
    let failed = home.mongo.count("tasks", doc! {"windlass.attempt": {"$ne": 1}});
    assert_eq!(failed, 0, "each was started once");
}
