//! How an attempt in a process can end by itself.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::{Lang, Runner};
use windlass_runner::LocalRunner;

use crate::harness::{
    Event, Fixture, MadePieces, check_ended, fixture, in_pieces, job, lines_of, options, spec,
};

#[tokio::test]
async fn s0_32_an_exit_code_becomes_a_status_and_is_in_the_log() {
    let fixture = fixture();
    for (code, status) in [(0, 200), (75, 100), (65, 400), (1, 500), (3, 500), (255, 500)] {
        let report = fixture.sh(&format!("exit {code}")).await;
        check_ended(&report, status, None);
        assert_eq!(report.log.to_string(), format!("[windlass] exit code {code}\n"));
    }
    assert!(fixture.scratch_is_empty());
}

#[tokio::test]
async fn s2_5_a_handler_that_dies_by_a_signal_is_an_error_that_names_the_signal() {
    let fixture = fixture();
    for signal in ["KILL", "SEGV", "TERM"] {
        let report = fixture.sh(&format!("echo before; kill -{signal} $$")).await;
        check_ended(&report, 500, None);
        assert!(report.log.to_string().starts_with("before\n"), "{}", report.log);
        assert!(report.log.to_string().contains(&format!("SIG{signal}")), "{}", report.log);
    }
    assert!(fixture.scratch_is_empty());
}

#[tokio::test]
async fn s0_34_jobs_behind_a_crash_in_the_same_batch_run_all_the_same() {
    let fixture = fixture();
    let jobs = vec![job(b"0"), job(b"crash"), job(b"0"), job(b"75")];
    let ids: Vec<_> = jobs.iter().map(|assignment| assignment.job.id).collect();
    let script = "read word; [ $word = crash ] && kill -KILL $$; exit $word";
    let events = fixture.begin(spec(Lang::Sh, script), jobs).rest().await;
    let mut seen = Vec::new();
    for event in events {
        match event {
            Event::Started(id) => seen.push((id, 0)),
            Event::Ended(id, report) => seen.push((id, report.status.get())),
            other => panic!("{other:?}"),
        }
    }
    let expected: Vec<_> =
        ids.into_iter().zip([200, 500, 200, 100]).flat_map(|(id, s)| [(id, 0), (id, s)]).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_payload_arrives_as_it_is() {
    let fixture = fixture();
    let report = fixture.run(spec(Lang::Sh, "od -An -tx1"), b"a\0\xff\n").await;
    assert!(report.log.to_string().starts_with(" 61 00 ff 0a\n"), "{}", report.log);
    let report = fixture.run(spec(Lang::Exec, "wc -c"), b"").await;
    assert!(report.log.to_string().starts_with("0\n"), "{}", report.log);
    let report = fixture.run(spec(Lang::Sh, "cksum"), &vec![b'x'; 1024 * 1024]).await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().contains(" 1048576\n"), "{}", report.log);
}

#[tokio::test]
async fn a_handler_need_not_read_its_payload() {
    let fixture = fixture();
    let large = vec![b'x'; 1024 * 1024];
    let report = fixture.run(spec(Lang::Sh, "exit 0"), &large).await;
    check_ended(&report, 200, None);
    let report = fixture.run(spec(Lang::Sh, "exec 0<&-; echo done"), &large).await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().starts_with("done\n"), "{}", report.log);
}

#[tokio::test]
async fn a_script_may_be_longer_than_an_argument() {
    let fixture = fixture();
    let script = format!("# {}\necho reached\nexit 65\n", "x".repeat(3 * 1024 * 1024));
    let report = fixture.sh(&script).await;
    check_ended(&report, 400, None);
    assert!(report.log.to_string().starts_with("reached\n"));
}

#[tokio::test]
async fn exec_starts_the_program_with_its_words_and_no_shell() {
    let fixture = fixture();
    let line = r#"printf '%s|' "two words" $HOME '*' ''"#;
    let report = fixture.run(spec(Lang::Exec, line), b"").await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().starts_with("two words|$HOME|*||\n"), "{}", report.log);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_an_error_with_the_reason() {
    let fixture = fixture();
    for (line, reason) in [
        ("no-such-program-anywhere", "No such file"),
        ("/etc/passwd", "Permission denied"),
        ("'unended", "within a quote"),
    ] {
        let events = fixture.begin(spec(Lang::Exec, line), vec![job(b"")]).rest().await;
        let [Event::Started(_), Event::Ended(_, report)] = &events[..] else {
            panic!("{events:?}");
        };
        check_ended(report, 500, None);
        assert!(report.log.to_string().contains(reason), "{}", report.log);
    }
    assert!(fixture.scratch_is_empty());
}

#[tokio::test]
async fn an_argument_list_beyond_the_limit_of_the_system_is_an_error_of_the_handler() {
    let line = format!("true {}", "x".repeat(1024 * 1024));
    let report = fixture().run(spec(Lang::Exec, &line), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("Argument list too long"), "{}", report.log);
}

#[tokio::test]
async fn a_job_whose_payload_cannot_be_read_is_not_started() {
    let fixture = fixture();
    let pieces = MadePieces { bytes: 1000, piece_bytes: 10, broken_from: 0 };
    let run = fixture.begin_with(spec(Lang::Sh, "cat"), vec![in_pieces(1000)], Arc::new(pieces));
    let id = run.ids[0];
    assert_eq!(run.rest().await, [Event::Returned(id)]);
}

#[tokio::test]
async fn half_a_payload_never_looks_like_a_whole_one() {
    let fixture = fixture();
    let pieces = MadePieces { bytes: 1000, piece_bytes: 10, broken_from: 50 };
    let script = spec(Lang::Sh, "cat > /dev/null; exit 0");
    let mut run = fixture.begin_with(script, vec![in_pieces(1000)], Arc::new(pieces));
    let (_, report) = run.ended().await;
    check_ended(&report, 500, None);
    assert!(
        report.log.to_string().contains("piece 50 of the payload: the store is gone"),
        "{}",
        report.log
    );
}

#[tokio::test]
async fn s0_57_a_job_is_charged_with_its_own_time() {
    let fixture = fixture();
    let began = std::time::Instant::now();
    let jobs = vec![job(b""), job(b""), job(b"")];
    let events = fixture.begin(spec(Lang::Sh, "exit 0"), jobs).rest().await;
    let batch_time = began.elapsed();
    let times = events.into_iter().filter_map(|event| match event {
        Event::Ended(_, report) => Some(report.run_time),
        _ => None,
    });
    let times: Vec<_> = times.collect();
    assert!(times.len() == 3 && times.iter().all(|time| *time > Duration::ZERO));
    assert!(times.iter().sum::<Duration>() <= batch_time);
}

#[tokio::test]
async fn s2_13_a_handler_that_hangs_does_not_hold_up_others() {
    let fixture = fixture();
    let mut hanging: Vec<_> =
        (0..20).map(|_| fixture.begin(spec(Lang::Sh, "sleep 1000"), vec![job(b"")])).collect();
    for run in &mut hanging {
        run.started().await;
    }
    for _ in 0..5 {
        check_ended(&fixture.sh("exit 0").await, 200, None);
    }
    for mut run in hanging {
        fixture.runner.stop(run.attempts[0], windlass_core::runner::Stop::Cancelled);
        run.ended().await;
    }
}

#[tokio::test]
async fn processes_and_directories_of_a_killed_daemon_are_cleared_away_at_the_next_start() {
    let scratch = tempfile::tempdir().unwrap();
    let leftover = scratch.path().canonicalize().unwrap().join("job-77-0");
    std::fs::create_dir(&leftover).unwrap();
    let mut command = std::process::Command::new("sleep");
    let mut left = command.arg("1000").env("WINDLASS_DIR", &leftover).spawn().unwrap();
    let runner = tokio::task::spawn_blocking(move || {
        // The new runner waits until the process is gone, and this test has to reap it.
        let reaper = std::thread::spawn(move || left.wait().unwrap());
        let runner = LocalRunner::new(options(&scratch)).unwrap();
        assert!(!reaper.join().unwrap().success());
        Fixture { runner: Arc::new(runner), scratch }
    });
    let fixture = runner.await.unwrap();
    assert!(!leftover.exists());
    let mark = fixture.scratch.path().join("mark");
    fixture.sh(&format!("echo ran > {}", mark.display())).await;
    assert_eq!(lines_of(&mark, 1).await, ["ran"]);
}
