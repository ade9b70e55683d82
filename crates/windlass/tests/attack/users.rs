//! Daemons of the two users that are attacked, root and nobody, and jobs of an attacker.

use std::fs;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant};

pub(crate) const NOBODY: u32 = 65534;
/// Printed by an attack that got somewhere.
pub(crate) const IN: &str = "GOT IN";
/// The last line of an attack, which nothing has cut short.
pub(crate) const TRIED: &str = "tried all";

/// A configuration for a daemon of each user. That of root has more layers and more rights.
pub(crate) fn both_users() -> [Config; 2] {
    assert!(rustix::process::geteuid().is_root(), "these tests start daemons of two users");
    [Config::new(), Config::new().run_by(NOBODY)]
}

/// The attack with each configuration, both at once: most of an attack waits.
pub(crate) fn as_both_users(attack: impl Fn(Config) + Sync) {
    let attack = &attack;
    thread::scope(|scope| {
        for config in both_users() {
            scope.spawn(move || attack(config));
        }
    });
}

/// The attack, under a daemon of each user, with every layer and one attempt for each job.
pub(crate) fn as_root_and_as_nobody(attack: impl Fn(&Daemon) + Sync) {
    as_both_users(|config| attack(&Daemon::start(strict(config))));
}

pub(crate) fn strict(config: Config) -> Config {
    config.set("retry.attempts", "1").set("isolation.level", "\"required\"")
}

/// No layer at all, for a control that shows the same code getting in.
pub(crate) fn bare(config: Config) -> Config {
    let config = config.set("retry.attempts", "1").set("isolation.level", "\"off\"");
    config.set("isolation.landlock", "\"off\"")
}

/// The same command, started by a shell script that gets its words, and this one before them.
pub(crate) fn wrapped(command: &Command, script: &str, first: &str) -> Command {
    let mut outer = Command::new("sh");
    outer.args(["-c", script, first]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Runs a job of a handler with this body; returns it and its log.
pub(crate) fn run(tenant: &Tenant, lang: &str, body: &str, payload: &str) -> (Value, String) {
    tenant.handler("attack", &json!({"lang": lang, "body": body}));
    let id = tenant.add_one("attack", payload);
    let job = tenant.until_end(&id);
    (job, tenant.log(&id))
}

/// Runs the attack to its end: it must not print that it got in.
#[track_caller]
pub(crate) fn fails(tenant: &Tenant, lang: &str, body: &str) -> String {
    let log = tries(tenant, lang, body);
    assert!(!log.contains(IN), "{body}: {log}");
    log
}

/// Runs the attack to its end, for a control.
#[track_caller]
pub(crate) fn tries(tenant: &Tenant, lang: &str, body: &str) -> String {
    let (_, log) = run(tenant, lang, body, "x");
    assert!(log.lines().any(|line| line == TRIED), "{body}: {log}");
    log
}

#[track_caller]
pub(crate) fn works(tenant: &Tenant, lang: &str, body: &str) -> String {
    let (job, log) = run(tenant, lang, body, "x");
    assert_eq!(job["state"], "finished", "{body}: {log}");
    log
}

/// The processes that have this word among their arguments.
pub(crate) fn with_argument(word: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|found| found == word.as_bytes())
    };
    numbers.filter(has).collect()
}

pub(crate) fn runs(word: &str) -> bool {
    !with_argument(word).is_empty()
}
