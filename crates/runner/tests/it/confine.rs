//! What a process may use up. Whatever it tries, its job is an error with a readable
//! log, and nothing of it remains.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use windlass_core::runner::Report;
use windlass_core::{HandlerSpec, Lang, Limits, Runner};
use windlass_runner::{IsolationOptions, LocalRunner};

use crate::harness::{
    Fixture, SH_NS, check_ended, exists, fixture, lines_of, options, spec, with_env,
};

/// A runner whose handlers may write only to their own directory.
pub(crate) fn strict() -> Fixture {
    with_isolation(|_| {})
}

pub(crate) fn with_isolation(adjust: impl FnOnce(&mut IsolationOptions)) -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.isolation.write = Vec::new();
    adjust(&mut options.isolation);
    Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch }
}

fn limited(body: &str, limits: Limits) -> HandlerSpec {
    let mut spec = spec(Lang::Sh, body);
    spec.options.limits = limits;
    spec
}

/// The lines of the handler, without those of the runner.
pub(crate) fn written(report: &Report) -> Vec<String> {
    let lines = report.log.to_string();
    lines.lines().filter(|line| !line.starts_with('[')).map(str::to_owned).collect()
}

#[tokio::test]
async fn no_privilege_is_left_or_gained_and_no_signal_is_blocked_or_ignored() {
    let script = "grep -E '^(NoNewPrivs|SigBlk|SigIgn|CapEff|CapPrm):' /proc/self/status";
    let report = strict().sh(script).await;
    let none = ["SigBlk", "SigIgn", "CapPrm", "CapEff"].map(|set| format!("{set}:\t{:016x}", 0));
    let expected: Vec<String> = none.into_iter().chain(["NoNewPrivs:\t1".to_owned()]).collect();
    assert_eq!(written(&report), expected);
}

#[tokio::test]
async fn limits_are_those_of_the_handler_or_the_configured_ones() {
    let fixture = with_isolation(|isolation| {
        isolation.limits = Limits {
            memory: Some(256 << 20),
            cpu: Some(Duration::from_secs(100)),
            processes: Some(9),
            file_size: Some(1 << 20),
            scratch: None,
        };
    });
    let shown = "ulimit -d; ulimit -t; ulimit -f; ulimit -c; ulimit -n";
    let report = fixture.sh(shown).await;
    assert_eq!(written(&report), ["262144", "100", "2048", "0", "1024"]);
    let own = Limits {
        memory: Some(64 << 20),
        cpu: Some(Duration::from_millis(6500)),
        ..Limits::default()
    };
    let report = fixture.run(limited(shown, own), b"").await;
    assert_eq!(written(&report), ["65536", "7", "2048", "0", "1024"]);
}

#[tokio::test]
async fn memory_beyond_the_limit_is_an_error_of_the_job() {
    let limits = Limits { memory: Some(32 << 20), ..Limits::default() };
    let hog = limited("tail /dev/zero", limits);
    let report = strict().run(hog, b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("memory exhausted"), "{:?}", report.log);
}

#[tokio::test]
async fn processor_time_beyond_the_limit_is_an_error_of_the_job() {
    let limits = Limits { cpu: Some(Duration::from_secs(1)), ..Limits::default() };
    let report = strict().run(limited("while :; do :; done", limits), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("CPU time is used up"), "{:?}", report.log);
}

#[tokio::test]
async fn a_file_beyond_the_limit_is_an_error_of_the_job() {
    let limits = Limits { file_size: Some(1 << 20), ..Limits::default() };
    let report = strict().run(limited("exec cat /dev/zero > file", limits), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("options.file_size"), "{:?}", report.log);
}

/// Starts about 1000 processes, half of which start no others.
const BOMB: &str = "bomb() {
    echo $$ > /dev/null
    if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi
    sleep 1000
}
bomb 9";

#[tokio::test]
async fn a_fork_bomb_is_an_error_of_the_job_and_leaves_no_process() {
    for (bomb, shell) in [(BOMB.to_owned(), "sh"), (format!("setsid sh -c '{BOMB}'"), "setsid")] {
        let fixture = fixture();
        let limits = Limits { processes: Some(40), ..Limits::default() };
        let report = fixture.run(marked(&fixture, limited(&bomb, limits)), b"").await;
        check_ended(&report, 500, None);
        let log = report.log.to_string();
        assert!(log.contains("processes at once, more than the limit of 40"), "{shell}: {log}");
        assert_eq!(processes_below(fixture.scratch.path()), 0, "{shell}");
        assert!(fixture.scratch_is_empty());
    }
}

/// Each process has its own session and is gone when the next one runs, so that few are visible at
/// a time, and none stays where it was seen.
#[tokio::test]
async fn what_starts_itself_anew_all_the_time_is_caught() {
    let fixture = fixture();
    let runner = fixture.scratch.path().join("runner");
    let script =
        "#!/bin/sh\n[ -e \"$2\" ] || echo $$ > \"$2\"; setsid \"$0\" \"$1\" \"$2\" & exit\n";
    std::fs::write(&runner, script).unwrap();
    std::fs::set_permissions(&runner, Permissions::from_mode(0o755)).unwrap();
    let mark = fixture.scratch.path().join("mark");
    let body = format!(
        "{} x {} & while [ ! -s {2} ]; do sleep 0.01; done; echo started",
        runner.display(),
        mark.display(),
        mark.display()
    );
    let report = fixture.run(marked(&fixture, spec(Lang::Sh, &body)), b"").await;
    check_ended(&report, 200, None);
    // Its cell waits for the next job, and has nothing of this one.
    assert_eq!(processes_with(fixture.scratch.path(), &[MARK]), 0);
    fixture.runner.close().await;
    assert_eq!(processes_below(fixture.scratch.path()), 0);
}

/// Names the processes of one test in their environment.
const MARK: &str = "MARK_OF_TEST";

/// Living processes that belong to attempts of this scratch directory: those that a cell has
/// outside, and those of handlers with its mark.
fn processes_below(scratch: &Path) -> usize {
    processes_with(scratch, &["WINDLASS_DIR", MARK])
}

/// Living processes with one of these variables, which name this scratch directory.
fn processes_with(scratch: &Path, names: &[&str]) -> usize {
    let scratch = scratch.canonicalize().unwrap();
    let marker = |name: &&str| format!("{name}={}", scratch.display());
    let markers: Vec<String> = names.iter().map(marker).collect();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let carries = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let pid: Option<i32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        pid.and_then(Pid::from_raw).is_some()
            && environ.split(|byte| *byte == 0).any(|variable| {
                markers.iter().any(|marker| variable.starts_with(marker.as_bytes()))
            })
    };
    entries.filter(carries).count()
}

fn marked(fixture: &Fixture, handler: HandlerSpec) -> HandlerSpec {
    let scratch = fixture.scratch.path().canonicalize().unwrap();
    with_env(handler, MARK, scratch.to_str().unwrap())
}

/// The control of the others: while a handler runs, its processes are found.
#[tokio::test]
async fn processes_of_a_handler_are_found_by_their_mark() {
    let fixture = fixture();
    let ready = fixture.scratch.path().join("ready");
    let body = format!("sleep 1000 & echo x > {}; sleep 1000", ready.display());
    let handler = marked(&fixture, spec(Lang::Sh, &body));
    let run = fixture.begin(handler, vec![crate::harness::job(b"")]);
    lines_of(&ready, 1).await;
    // The outer process of the cell, the shell, and at least its first child.
    assert!(processes_below(fixture.scratch.path()) >= 3);
    run.abandon().await;
}

#[tokio::test]
async fn processes_of_other_jobs_do_not_count() {
    let fixture = fixture();
    let pids = fixture.scratch.path().join("pids");
    let others = format!(
        "{SH_NS}; for i in 1 2 3 4 5 6; do sleep 1000 & echo $NS/$! >> {}; done; wait",
        pids.display()
    );
    let mut run = fixture.begin(spec(Lang::Sh, &others), vec![crate::harness::job(b"")]);
    run.started().await;
    let pids = lines_of(&pids, 6).await;
    let few = Limits { processes: Some(3), ..Limits::default() };
    let body = "for i in 1 2 3 4 5 6 7 8; do true & wait; done; sleep 0.2";
    check_ended(&fixture.run(limited(body, few), b"").await, 200, None);
    assert!(pids.iter().all(|pid| exists(pid)));
    run.abandon().await;
}
