//! What happens to the lines that a process writes.

use windlass_core::Lang;
use windlass_core::limit::{EMITTED_MAX, LOG_LINE_BYTES_MAX};
use windlass_core::runner::Report;

use crate::harness::{LOG_BYTES_MAX, check_ended, fixture, spec};

fn emitted(report: &Report) -> Vec<(&str, &[u8])> {
    report.emitted.iter().map(|job| (job.name.as_str(), &job.payload[..])).collect()
}

#[tokio::test]
async fn s0_29_job_lines_of_both_outputs_become_jobs() {
    let script = "echo 'J: mail|to|you'; echo '#J: log|entry' >&2; echo plain; printf 'J: x|end'";
    let report = fixture().sh(script).await;
    check_ended(&report, 200, None);
    let mut jobs = emitted(&report);
    jobs.sort_unstable();
    assert_eq!(jobs, [("log", &b"entry"[..]), ("mail", b"to|you"), ("x", b"end")]);
    assert_eq!(report.log.to_string(), "plain\n[windlass] exit code 0\n");
}

#[tokio::test]
async fn s0_30_other_lines_are_log_in_the_order_of_their_stream() {
    let script = "cat";
    let noise = "noise\nj: x|1\n J: x|1\nJ:x|1\nlast\n";
    let report = fixture().run(spec(Lang::Sh, script), noise.as_bytes()).await;
    assert_eq!(emitted(&report), []);
    assert_eq!(report.log.to_string(), format!("{noise}[windlass] exit code 0\n"));
    let report = fixture().sh("echo to standard error >&2; exit 3").await;
    assert_eq!(report.log.to_string(), "[stderr] to standard error\n[windlass] exit code 3\n");
}

#[tokio::test]
async fn s0_31_a_type_that_looks_like_another_tenants_is_a_type_of_this_tenant() {
    let report = fixture().sh("echo 'J: other/type|x'; echo 'J: b-t|x'").await;
    assert_eq!(emitted(&report), [("other/type", &b"x"[..]), ("b-t", b"x")]);
}

#[tokio::test]
async fn a_job_line_that_cannot_be_read_is_log_with_a_warning_behind_it() {
    let report = fixture().sh("echo 'J: no bar'; echo after").await;
    check_ended(&report, 200, None);
    let log = report.log.to_string();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!((lines[0], lines[2]), ("J: no bar", "after"));
    assert!(lines[1].contains("warning"), "{}", report.log);
}

#[tokio::test]
async fn more_jobs_than_the_bound_are_a_warning() {
    let script = format!("yes 'J: t|x' | head -n {}", EMITTED_MAX + 10);
    let report = fixture().sh(&script).await;
    check_ended(&report, 200, None);
    assert_eq!(report.emitted.len(), EMITTED_MAX);
    assert!(report.log.to_string().contains("at most 10000 jobs"), "{}", report.log);
}

#[tokio::test]
async fn long_lines_and_bytes_that_are_no_text_are_made_readable() {
    let script = "head -c 100000 /dev/zero | tr '\\0' x; echo; printf 'a\\377b\\000c\\n'";
    let report = fixture().sh(script).await;
    let log = report.log.to_string();
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].starts_with("xxx") && lines[0].ends_with("[cut]"));
    assert!(lines[0].len() < LOG_LINE_BYTES_MAX + 10);
    assert_eq!(lines[1], "a\u{fffd}b\u{fffd}c");
}

#[tokio::test]
async fn of_a_long_log_the_end_is_kept() {
    let report = fixture().sh("seq 1 100000; exit 3").await;
    assert!(report.log.len() <= LOG_BYTES_MAX);
    assert!(report.log.to_string().ends_with("99999\n100000\n[windlass] exit code 3\n"));
    assert!(report.log.to_string().starts_with("[windlass] earlier output was dropped: "));
}

#[tokio::test]
async fn a_handler_that_closes_its_outputs_runs_on() {
    let report = fixture().sh("echo first; exec >&- 2>&-; sleep 0.1; exit 65").await;
    check_ended(&report, 400, None);
    assert_eq!(report.log.to_string(), "first\n[windlass] exit code 65\n");
}
