//! What a process may access and use up. Whatever it tries, its job is an error with a readable
//! log, and nothing of it remains.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use windlass_core::runner::Report;
use windlass_core::{HandlerSpec, Lang, Limits};
use windlass_runner::{IsolationOptions, Landlock, LocalRunner};

use crate::harness::{Fixture, check_ended, exists, fixture, lines_of, options, spec};

/// A runner whose handlers may write only to their own directory.
fn strict() -> Fixture {
    with_isolation(|_| {})
}

fn with_isolation(adjust: impl FnOnce(&mut IsolationOptions)) -> Fixture {
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
fn written(report: &Report) -> Vec<String> {
    let lines = report.log.to_string();
    lines.lines().filter(|line| !line.starts_with('[')).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_handler_reads_the_system_and_writes_its_own_directory() {
    let script = "set -e; ls /usr > list; cat /etc/passwd > $TMPDIR/users; mkdir -p a/b; mv list a
                  ln -s a link; echo '#!/bin/sh' > run; chmod +x run; ./run; rm -r a; echo done
                  echo seen > /dev/null; echo out > /dev/stdout; echo err > /dev/stderr
                  cat < /proc/$$/stat
                  head -c 4 /dev/urandom | wc -c";
    let report = strict().sh(script).await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().contains("[stderr] err\n"), "{:?}", report.log);
    let written = written(&report);
    for line in ["done", "out", "4"] {
        assert!(written.iter().any(|written| written == line), "{line}: {written:?}");
    }
}

#[tokio::test]
async fn a_handler_can_neither_write_nor_read_what_is_not_its_own() {
    let fixture = strict();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "a secret\n").unwrap();
    let (dir, scratch) = (outside.path().display(), fixture.scratch.path().display());
    let secret = format!("{dir}/secret");
    for attempt in [
        format!("echo x > {dir}/new"),
        format!("echo x >> {secret}"),
        format!("rm {secret}"),
        format!("mkdir {dir}/sub"),
        format!("ln -s / {dir}/link"),
        format!("mv {secret} ."),
        format!("ln {secret} ."),
        format!("truncate -s 0 {secret}"),
        format!("cat {secret}"),
        format!("ls {dir}"),
        format!("ls {scratch}"),
        format!("cat {scratch}/.lock"),
        "cat /etc/shadow".to_owned(),
        "ls /root".to_owned(),
        "ls /etc".to_owned(),
        "echo x > /tmp/of-a-handler".to_owned(),
        "echo x > /usr/of-a-handler".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "readlink /proc/$PPID/exe".to_owned(),
        "kill -CONT $PPID".to_owned(),
    ] {
        let report = fixture.sh(&format!("{attempt} && echo reached")).await;
        assert!(!report.log.to_string().contains("reached"), "{attempt}: {:?}", report.log);
        assert!(!report.status.code().ends_job(), "{attempt}: {:?}", report.log);
    }
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "a secret\n");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn an_operator_can_open_further_paths() {
    let place = tempfile::tempdir().unwrap();
    let (shown, shared) = (place.path().join("shown"), place.path().join("shared"));
    for dir in [&shown, &shared] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("file"), "text\n").unwrap();
    }
    let fixture = with_isolation(|isolation| {
        isolation.read = vec![shown.clone(), place.path().join("missing")];
        isolation.write = vec![shared.clone()];
    });
    let script = format!(
        "cat {0}/file; echo new > {1}/new; cat {1}/new; echo x > {0}/new && echo wrong",
        shown.display(),
        shared.display()
    );
    let report = fixture.sh(&script).await;
    assert_eq!(written(&report)[..2], ["text", "new"]);
    assert!(!report.log.to_string().contains("wrong") && !shown.join("new").exists());
}

#[tokio::test]
async fn a_program_that_lies_elsewhere_is_refused_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    let line = program.display().to_string();
    let report = strict().run(spec(Lang::Exec, &line), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("isolation.read"), "{:?}", report.log);
    let opened = with_isolation(|isolation| isolation.read = vec![place.path().to_owned()]);
    check_ended(&opened.run(spec(Lang::Exec, &line), b"").await, 200, None);
}

#[tokio::test]
async fn without_landlock_files_are_open_and_all_else_is_as_strict() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let fixture = with_isolation(|isolation| isolation.landlock = Landlock::Off);
    let script = format!("echo x > {}; grep NoNewPrivs /proc/self/status", file.display());
    let report = fixture.sh(&script).await;
    check_ended(&report, 200, None);
    assert_eq!(written(&report), ["NoNewPrivs:\t1"]);
    assert!(file.exists());
}

#[tokio::test]
async fn what_is_required_is_in_force() {
    let fixture = with_isolation(|isolation| isolation.landlock = Landlock::Required);
    let report = fixture.sh("cat /etc/shadow").await;
    check_ended(&report, 500, None);
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
        let report = fixture.run(limited(&bomb, limits), b"").await;
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
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&runner, mode).unwrap();
    let mark = fixture.scratch.path().join("mark");
    let body = format!(
        "{} x {} & while [ ! -s {2} ]; do sleep 0.01; done; echo started",
        runner.display(),
        mark.display(),
        mark.display()
    );
    let report = fixture.sh(&body).await;
    check_ended(&report, 200, None);
    assert_eq!(processes_below(fixture.scratch.path()), 0);
}

/// Living processes that belong to attempts of this scratch directory.
fn processes_below(scratch: &Path) -> usize {
    let scratch = scratch.canonicalize().unwrap();
    let marker = format!("WINDLASS_DIR={}", scratch.display());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let carries = |entry: &std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let pid: Option<i32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        pid.and_then(Pid::from_raw).is_some()
            && environ
                .split(|byte| *byte == 0)
                .any(|variable| variable.starts_with(marker.as_bytes()))
    };
    entries.filter(carries).count()
}

#[tokio::test]
async fn processes_of_other_jobs_do_not_count() {
    let fixture = fixture();
    let pids = fixture.scratch.path().join("pids");
    let others =
        format!("for i in 1 2 3 4 5 6; do sleep 1000 & echo $! >> {}; done; wait", pids.display());
    let mut run = fixture.begin(spec(Lang::Sh, &others), vec![crate::harness::job(b"")]);
    run.started().await;
    let pids = lines_of(&pids, 6).await;
    let few = Limits { processes: Some(3), ..Limits::default() };
    let body = "for i in 1 2 3 4 5 6 7 8; do true & wait; done; sleep 0.2";
    check_ended(&fixture.run(limited(body, few), b"").await, 200, None);
    assert!(pids.iter().all(|pid| exists(pid)));
    run.abandon().await;
}
