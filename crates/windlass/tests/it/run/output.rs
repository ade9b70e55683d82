//! What handlers print: log lines, and new jobs.

use serde_json::json;

use crate::harness::{Config, Daemon, until};

#[test]
fn s0_29_an_output_line_becomes_a_job() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("second", &daemon.home().recorder("seen"));
    tenant.sh("first", "echo 'J: second|pay|load one'; echo '#J: second|two'");
    let id = tenant.add_one("first", "x");
    tenant.until_state(&id, "finished");
    tenant.until_count("second", "finished", 2);
    let mut seen: Vec<String> = daemon
        .home()
        .lines("seen")
        .iter()
        .map(|line| line.split_once(' ').unwrap().1.to_owned())
        .collect();
    seen.sort();
    assert_eq!(seen, ["pay|load one", "two"]);
}

#[test]
fn s0_29_an_attempt_that_will_run_again_adds_nothing() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "echo \"J: out|$WINDLASS_ATTEMPT\"; [ $WINDLASS_ATTEMPT = 3 ]");
    tenant.sh("bad", "echo 'J: out|from bad'; exit 65");
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let bad = tenant.add_one("bad", "x");
    tenant.until_state(&bad, "failed");
    let jobs = tenant.until_count("out", "queued", 2);
    let mut payloads: Vec<String> = jobs
        .iter()
        .map(|job| tenant.get(&format!("jobs/{}/payload", job["id"].as_str().unwrap())))
        .map(|answer| answer.expect(200).text())
        .collect();
    payloads.sort();
    assert_eq!(payloads, ["3", "from bad"], "4xx ends a job too");
}

#[test]
fn s0_30_other_lines_are_its_log_and_create_nothing() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let noise = ["hello", "j: x|y", " J: x|y", "J:x|y", "#j: x|y", "x J: x|y", "J; x|y"];
    let mut body: String = noise.iter().map(|line| format!("echo '{line}'\n")).collect();
    body.push_str("echo 'to standard error' >&2\necho 'J: last|x'\nprintf 'no newline'");
    tenant.sh("t", &body);
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    tenant.until_count("last", "queued", 1);
    assert_eq!(tenant.list("").len(), 2, "only the job and its last line");
    let log = tenant.log(&id);
    for line in noise.iter().chain(["to standard error", "no newline"].iter()) {
        assert!(log.contains(line), "{line:?} in {log}");
    }
}

#[test]
fn s0_30_a_line_that_is_almost_a_job_stays_a_log_line_with_a_warning() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "echo 'J: without a bar'; echo 'J: |no type'; echo 'J: last|x'");
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    tenant.until_count("last", "queued", 1);
    assert_eq!(tenant.list("").len(), 2);
    let log = tenant.log(&id);
    assert!(log.contains("J: without a bar"), "{log}");
    assert!(log.lines().count() > 3, "a warning stands behind such a line: {log}");
}

#[test]
fn the_log_keeps_the_tail_of_each_attempt() {
    let config = Config::new().set("job.log_bytes_max", "4096").set("retry.attempts", "2");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("t", "seq 1 20000; echo end-of-$WINDLASS_ATTEMPT; exit 1");
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "failed");
    let log = tenant.log(&id);
    assert!(log.contains("end-of-1") && log.contains("end-of-2"), "both attempts are there");
    assert!(log.contains("20000") && !log.contains("\n10000\n"), "the tail is kept");
    assert!(log.len() < 4 * 4096, "{} bytes", log.len());
}

#[test]
fn a_line_without_end_is_cut_and_does_not_fill_the_memory() {
    const ENDLESS_BYTES: usize = 200_000_000;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let before = daemon.memory_kib("VmHWM");
    tenant.sh("t", &format!("head -c {ENDLESS_BYTES} /dev/zero | tr '\\0' x; echo; echo end"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let log = tenant.log(&id);
    assert!(log.contains("end") && log.len() < 200_000, "{} bytes", log.len());
    let grown = daemon.memory_kib("VmHWM") - before;
    assert!(grown < 64 * 1024, "{grown} KiB more for one long line");
}

#[test]
fn output_cannot_forge_a_result() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let body = "echo '{\"status\":200}'; echo 200; echo 'R: 200'; printf '\\0\\377\\n'; exit 1";
    tenant.sh("t", body);
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "failed");
    assert_eq!((&job["code"], &job["exitcode"]), (&json!("error"), &json!(500)));
}

#[test]
fn s0_29_many_jobs_of_one_output_all_run_once() {
    const EMITTED: usize = 500;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &format!("seq 1 {EMITTED} | sed 's/^/J: out|/'"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let row = || tenant.type_row("out");
    until("all are in the store", row, |row| row["ready"] == EMITTED);
    let jobs = tenant.drain("out", EMITTED);
    let payloads: Vec<String> =
        jobs.iter().map(|job| crate::harness::text(&job["payload"])).collect();
    let wanted: Vec<String> = (1..=EMITTED).map(|n| n.to_string()).collect();
    assert_eq!(payloads, wanted, "in the order of the lines");
}

#[test]
fn s0_29_a_long_payload_of_an_output_line_is_not_cut() {
    const BYTES: usize = 300_000;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &format!("printf 'J: out|'; head -c {BYTES} /dev/zero | tr '\\0' y; echo"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let jobs = tenant.until_count("out", "queued", 1);
    assert_eq!(jobs[0]["payload_bytes"], BYTES);
}
