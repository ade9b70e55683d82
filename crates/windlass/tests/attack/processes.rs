//! Processes of a job that outlive it, or that try to see, slow down or stop those of others.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::{Daemon, until};
use crate::users::{
    as_both_users, as_root_and_as_nobody, bare, run, runs, strict, with_argument, works,
};

/// A word that only processes of this test have among their arguments, as seconds of a sleep.
pub(crate) fn word(first: u32, pid: u32) -> String {
    format!("{}.{}", first + pid, std::process::id())
}

/// How many processes hide.
const HIDDEN: usize = 30;

/// Starts processes that give up everything by which they could be known, and prints that when all
/// of them have: the word is an argument of a `sleep` then, no longer a part of a shell's.
fn hides(word: &str) -> String {
    format!(
        r"i=0; while [ $i -lt {HIDDEN} ]; do
            (cd /; setsid env -i sh -c '(sleep {word} &) &' < /dev/null > /dev/null 2>&1 &)
            i=$((i + 1)); done
          hidden() {{ cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' '\n' | grep -c '^{word}$'; }}
          until [ $(hidden) -ge {HIDDEN} ]; do sleep 0.05; done; echo begun"
    )
}

/// The same in Python.
fn hides_in_python(script: &str) -> String {
    format!("import os\nos.system(r\"\"\"{script}\"\"\")")
}

#[test]
fn b5_processes_that_leave_everything_behind_end_with_their_job() {
    as_root_and_as_nobody(|daemon| {
        let word = word(90_000, daemon.pid());
        let body = hides(&word);
        let (_, log) = run(&daemon.tenant("a"), "sh", &body, "x");
        assert!(log.contains("begun"), "{log}");
        assert!(!runs(&word), "processes of the job are still there");
        let (_, log) = run(&daemon.tenant("a"), "python", &hides_in_python(&body), "x");
        assert!(log.contains("begun"), "{log}");
        until("they are gone", || runs(&word), |runs| !runs);
    });
    // The control: nothing else ends them.
    as_both_users(|config| {
        let open = Daemon::start(bare(config));
        let word = word(40_000, open.pid());
        let (_, log) = run(&open.tenant("a"), "sh", &hides(&word), "x");
        assert!(log.contains("begun"), "{log}");
        let hidden = with_argument(&word);
        for pid in &hidden {
            kill_process(Pid::from_raw(*pid as i32).unwrap(), Signal::KILL).unwrap();
        }
        assert_eq!(hidden.len(), HIDDEN);
    });
}

/// Kills the daemon while such processes of its jobs run.
pub(crate) fn hide_when_the_daemon_is_killed(daemon: &mut Daemon) {
    let tenant = daemon.tenant("a");
    let word = word(60_000, daemon.pid());
    let body = format!("{}; sleep 1000", hides(&word));
    let python = hides_in_python(&body);
    for (kind, lang, body) in [("t", "sh", &body), ("u", "python", &python)] {
        tenant.handler(kind, &json!({"lang": lang, "body": body}));
        tenant.add_one(kind, "x");
    }
    // Their shells have it among their words, too, but not as one.
    until("all of them hide", || with_argument(&word).len(), |count| *count >= 2 * HIDDEN);
    daemon.kill9();
    until("they are gone", || runs(&word), |runs| !runs);
}

#[test]
fn b5_processes_that_leave_everything_behind_end_with_a_daemon_that_is_killed() {
    as_both_users(|config| hide_when_the_daemon_is_killed(&mut Daemon::start(strict(config))));
}

/// What the kernel shows of limits, priority, nice value and policy of a process.
pub(crate) fn standing(pid: u32) -> (String, [String; 3]) {
    let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let stat = of("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (of("limits"), [15, 16, 38].map(|place| fields[place].to_owned()))
}

/// Ways to change them, or to stop it.
pub(crate) fn disturbs(pid: u32) -> String {
    format!(
        "def tries(name, act):\n  \
         try:\n    act(); print('done', name)\n  except OSError as e: print('refused', name, e)\n\
         tries('limit', lambda: resource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1)))\n\
         tries('priority', lambda: os.setpriority(os.PRIO_PROCESS, {pid}, 19))\n\
         tries('of the group', lambda: os.setpriority(os.PRIO_PGRP, {pid}, 19))\n\
         tries('policy', lambda: os.sched_setscheduler({pid}, os.SCHED_IDLE,\n  \
         os.sched_param(0)))\n\
         tries('processors', lambda: os.sched_setaffinity({pid}, [0]))\n\
         tries('stop', lambda: os.kill({pid}, 19))\n"
    )
}

/// How many ways there are.
pub(crate) const DISTURBS: usize = 6;

#[test]
fn b6_b18_limits_and_priority_of_the_daemon_and_of_others_are_out_of_reach() {
    as_root_and_as_nobody(|daemon| {
        let word = word(70_000, daemon.pid());
        let victim = daemon.tenant("b");
        victim.sh("sleeper", &format!("exec sleep {word}"));
        let id = victim.add_one("sleeper", "x");
        let sleeper =
            until("the victim runs", || with_argument(&word), |found| found.len() == 1)[0];
        let before = [daemon.pid(), sleeper].map(standing);
        let body = format!(
            "import os, resource\n{}{}\
             tries('all of the user', lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))\n\
             tries('own', lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))\n\
             print('own is', os.getpriority(os.PRIO_PROCESS, 0))\n\
             resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))\n\
             print('tried all')\nreturn 200",
            disturbs(daemon.pid()),
            disturbs(sleeper),
        );
        let log = works(&daemon.tenant("a"), "python", &body);
        assert_eq!(log.matches("refused ").count(), 2 * DISTURBS + 1, "{log}");
        assert!(log.contains("done own\nown is 19\n"), "the control: {log}");
        assert!(log.contains("tried all"), "{log}");
        assert_eq!([daemon.pid(), sleeper].map(standing), before);
        assert_eq!(victim.job(&id)["state"], "running");
        victim.post(&format!("jobs/{id}/cancel")).expect(200);
    });
    // The control: without isolation, all handlers are the daemon's own user.
    as_both_users(|config| {
        let open = Daemon::start(bare(config));
        let word = word(30_000, open.pid());
        let victim = open.tenant("b");
        victim.sh("sleeper", &format!("exec sleep {word}"));
        victim.add_one("sleeper", "x");
        let sleeper =
            until("the victim runs", || with_argument(&word), |found| found.len() == 1)[0];
        let body = format!("import os, resource\n{}return 200", disturbs(sleeper));
        let log = works(&open.tenant("a"), "python", &body);
        assert_eq!(log.matches("done ").count(), DISTURBS, "{log}");
    });
}

/// Two ways to see arguments.
const LOOKS: &str = "cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' '; echo; ps aux";

#[test]
fn b15_arguments_of_another_tenants_processes_are_not_seen() {
    as_root_and_as_nobody(|daemon| {
        let word = word(80_000, daemon.pid());
        let (victim, attacker) = (daemon.tenant("b"), daemon.tenant("a"));
        victim.sh("sleeper", &format!("sleep {word}"));
        let id = victim.add_one("sleeper", "x");
        until("the victim runs", || runs(&word), |runs| *runs);
        let log = works(&attacker, "sh", LOOKS);
        assert!(!log.contains(&word), "{log}");
        assert!(log.contains("/job/in/script"), "its own are there: {log}");
        victim.post(&format!("jobs/{id}/cancel")).expect(200);
    });
    as_both_users(|config| {
        let open = Daemon::start(bare(config));
        let word = word(20_000, open.pid());
        let victim = open.tenant("b");
        victim.sh("sleeper", &format!("sleep {word}"));
        let id = victim.add_one("sleeper", "x");
        until("the victim runs", || runs(&word), |runs| *runs);
        // The brackets are for `grep`, which is not to find its own arguments.
        let (first, rest) = word.split_at(1);
        let finds = format!("{{ {LOOKS}; }} | grep -o 'sleep [{first}]{rest}'");
        let log = works(&open.tenant("a"), "sh", &finds);
        assert_eq!(log.matches(&word).count(), 2, "the control: {log}");
        victim.post(&format!("jobs/{id}/cancel")).expect(200);
    });
}
