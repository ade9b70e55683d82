//! Commands of other crates: their output, how they end, what they leave behind.

use std::fs;
use std::path::PathBuf;

use windlass_core::launch::{Input, LaunchSpec, Launched, Launcher, Running, SignalTo};
use windlass_runner::CommandLauncher;
use windlass_test_kit::folder::whole_lines;
use windlass_test_kit::wait::in_time;

use crate::harness::{LIMITS, lines_of, until_gone};

const OUTPUT_BYTES_MAX: usize = 1000;

fn spec(program: &str, args: &[&str]) -> LaunchSpec {
    LaunchSpec {
        program: program.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        cwd: None,
        env: Vec::new(),
        input: Input::Open,
        output_bytes_max: OUTPUT_BYTES_MAX,
        time_limit: None,
    }
}

fn sh(script: &str) -> LaunchSpec {
    spec("sh", &["-c", script])
}

fn launch(spec: LaunchSpec) -> Box<dyn Running> {
    CommandLauncher::new().unwrap().launch(spec)
}

async fn run(spec: LaunchSpec) -> Launched {
    end_of(&*launch(spec)).await
}

async fn end_of(running: &dyn Running) -> Launched {
    in_time("it ends", running.wait()).await
}

#[tokio::test]
async fn both_outputs_and_the_exit_code_come_back() {
    let launched = run(sh("echo out; echo err >&2; exit 3")).await;
    assert_eq!((launched.code, launched.signal), (Some(3), None));
    assert_eq!((&launched.stdout.bytes[..], launched.stdout.dropped), (&b"out\n"[..], 0));
    assert_eq!((&launched.stderr.bytes[..], launched.stderr.dropped), (&b"err\n"[..], 0));
    assert!(!launched.timed_out && launched.failure.is_none());
}

#[tokio::test]
async fn a_signal_is_named() {
    let launched = run(sh("kill -KILL $$")).await;
    assert_eq!((launched.code, launched.signal.as_deref()), (None, Some("SIGKILL")));
}

#[tokio::test]
async fn the_environment_is_the_daemons_with_more_and_the_directory_is_the_one_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = sh(r#"printf '%s|%s|%s' "$(pwd -P)" "$MORE" "${PATH:+path}""#);
    spec.cwd = Some(dir.path().to_owned());
    spec.env = vec![("MORE".into(), "a b".into())];
    let launched = run(spec).await;
    let here = fs::canonicalize(dir.path()).unwrap();
    let expected = format!("{}|a b|path", here.display());
    assert_eq!(String::from_utf8_lossy(&launched.stdout.bytes), expected);
}

#[tokio::test]
async fn what_cannot_be_started_says_why_in_a_few_words() {
    let mut nowhere = sh("true");
    nowhere.cwd = Some(PathBuf::from("/no/such/directory"));
    for (spec, failure) in [
        (spec("/no/such/program", &[]), "spawn /no/such/program ENOENT"),
        (spec("no-such-program", &["x"]), "spawn no-such-program ENOENT"),
        (spec("", &[]), "spawn  ENOENT"),
        (nowhere, "spawn sh ENOENT"),
        (spec("/etc/passwd", &[]), "spawn /etc/passwd EACCES"),
    ] {
        let launched = run(spec).await;
        assert_eq!(launched.failure.as_deref(), Some(failure));
        assert_eq!((launched.code, launched.signal), (None, None));
    }
    let refused = run(spec("sh", &["a\0b"])).await.failure.unwrap();
    assert!(refused.starts_with("spawn sh: "), "{refused}");
}

#[tokio::test]
async fn more_output_than_is_kept_is_read_and_counted() {
    let bytes = 3_000_000;
    let launched = run(sh(&format!("yes | head -c {bytes}; yes | head -c 5 >&2"))).await;
    assert_eq!(launched.code, Some(0));
    assert_eq!(launched.stdout.bytes.len(), OUTPUT_BYTES_MAX);
    assert_eq!(launched.stdout.dropped, bytes - OUTPUT_BYTES_MAX as u64);
    assert_eq!((launched.stderr.bytes.len(), launched.stderr.dropped), (5, 0));
}

#[tokio::test]
async fn standard_input_that_is_at_its_end_is_not_waited_for() {
    let launched = run(LaunchSpec { input: Input::Ended, ..sh("cat; echo end") }).await;
    assert_eq!((launched.code, &launched.stdout.bytes[..]), (Some(0), &b"end\n"[..]));
}

#[tokio::test]
async fn standard_input_stays_open_and_empty() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let running = launch(sh(&format!("echo $$ > {}; cat", started.display())));
    lines_of(&started, 1).await;
    assert!(running.signal(SignalTo::Number(0)));
    assert!(running.signal(SignalTo::Name("SIGTERM".into())));
    assert_eq!(end_of(&*running).await.signal.as_deref(), Some("SIGTERM"));
}

#[tokio::test]
async fn a_signal_reaches_the_process_itself_and_nothing_when_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let script = format!(
        "trap 'echo caught; exit 7' USR1; echo $$ > {}; \
                          while :; do sleep 0.01; done",
        started.display()
    );
    let running = launch(sh(&script));
    lines_of(&started, 1).await;
    assert!(!running.signal(SignalTo::Number(99)));
    assert!(!running.signal(SignalTo::Name("SIGNONSENSE".into())));
    assert!(running.signal(SignalTo::Name("SIGUSR1".into())));
    let launched = end_of(&*running).await;
    assert_eq!((launched.code, &launched.stdout.bytes[..]), (Some(7), &b"caught\n"[..]));
    for signal in [SignalTo::Number(0), SignalTo::Number(15), SignalTo::Name("SIGKILL".into())] {
        assert!(!running.signal(signal));
    }
}

#[tokio::test]
async fn one_that_could_not_be_started_takes_no_signal() {
    let running = launch(spec("/no/such/program", &[]));
    assert!(!running.signal(SignalTo::Number(0)));
    assert!(end_of(&*running).await.failure.is_some());
    assert!(!running.signal(SignalTo::Number(15)));
}

#[tokio::test]
async fn at_the_time_limit_the_whole_tree_is_ended() {
    for limit in LIMITS {
        let dir = tempfile::tempdir().unwrap();
        let (near, far) = (dir.path().join("near"), dir.path().join("far"));
        // One child in the group, and one that left it and lost its parent.
        let mut spec = sh(&format!(
            "echo begun; sh -c 'echo $$ > {}; sleep 1000' & \
             (setsid sh -c 'echo $$ > {}; sleep 1000' &) ; sleep 1000",
            near.display(),
            far.display(),
        ));
        spec.time_limit = Some(limit);
        let launched = run(spec).await;
        assert!(launched.timed_out);
        assert_eq!((launched.code, launched.signal.as_deref()), (None, Some("SIGKILL")));
        let [near, far] = [near, far].map(|file| whole_lines(&file));
        if near.is_empty() || far.is_empty() {
            continue;
        }
        assert_eq!(launched.stdout.bytes, b"begun\n");
        until_gone(&near[0]).await;
        until_gone(&far[0]).await;
        return;
    }
    panic!("it never had both children before its limit");
}

#[tokio::test]
async fn it_can_be_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let child = dir.path().join("child");
    let script = format!("sh -c 'echo $$ > {}; sleep 1000' & trap '' TERM; wait", child.display());
    let running = launch(sh(&script));
    let child = lines_of(&child, 1).await;
    running.kill_tree();
    let launched = end_of(&*running).await;
    assert_eq!((launched.signal.as_deref(), launched.timed_out), (Some("SIGKILL"), false));
    until_gone(&child[0]).await;
}

#[tokio::test]
async fn what_stays_in_the_background_neither_holds_the_command_nor_is_ended_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let (go, left) = (dir.path().join("go"), dir.path().join("left"));
    let script = format!(
        "(while [ ! -e {} ]; do sleep 0.01; done; echo late && echo $$ > {}) & echo early",
        go.display(),
        left.display(),
    );
    let launched = run(sh(&script)).await;
    assert_eq!((launched.code, &launched.stdout.bytes[..]), (Some(0), &b"early\n"[..]));
    // It can still write to its pipe.
    fs::write(go, "").unwrap();
    lines_of(&left, 1).await;
}

#[tokio::test]
async fn dropping_it_does_not_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let (go, done) = (dir.path().join("go"), dir.path().join("done"));
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; echo $$ > {}",
        go.display(),
        done.display(),
    );
    drop(launch(sh(&script)));
    fs::write(go, "").unwrap();
    lines_of(&done, 1).await;
}
