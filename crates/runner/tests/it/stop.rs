//! Time limits, stops from outside, and that nothing survives an attempt.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use windlass_core::runner::Stop;
use windlass_core::{Lang, Runner};
use windlass_test_kit::folder::whole_lines;
use windlass_test_kit::process::number_here;

use crate::harness::{
    Event, Fixture, LIMITS, SH_NS, bare_fixture, check_ended, exists, fixture, job, limited,
    lines_of, next_claim, spec,
};

/// Starts a process in a new session, whose parents are gone, and writes its name into `pids`.
const DAEMON: &str = "(setsid sh -c 'echo $1/$$ >> \"$0\"; exec sleep 1000' \"$PIDS\" $NS &)\n";

/// A script that knows the file for names of processes.
fn script(fixture: &Fixture, body: &str) -> windlass_core::HandlerSpec {
    let pids = fixture.scratch.path().join("pids");
    spec(Lang::Sh, &format!("PIDS={}; {SH_NS}\n{body}", pids.display()))
}

async fn pids(fixture: &Fixture, count: usize) -> Vec<String> {
    lines_of(&fixture.scratch.path().join("pids"), count).await
}

/// Runs the script into a time limit long enough to write down all its processes; returns the log.
async fn ended_at_its_limit(make: fn() -> Fixture, body: &str, processes: usize) -> String {
    for limit in LIMITS {
        let fixture = make();
        let jobs = vec![limited(job(b""), limit)];
        let (_, report) = fixture.begin(script(&fixture, body), jobs).ended().await;
        check_ended(&report, 500, Some(Stop::TimedOut));
        let pids = whole_lines(&fixture.scratch.path().join("pids"));
        for pid in &pids {
            assert!(!exists(pid), "{pid}");
        }
        if pids.len() >= processes {
            let said = format!("[windlass] timed out after {}s\n", limit.as_secs());
            let log = report.log.to_string();
            return log.strip_suffix(&said).unwrap_or_else(|| panic!("{log}")).to_owned();
        }
    }
    panic!("it never had {processes} processes before its limit");
}

#[tokio::test]
async fn s2_30_a_hung_job_is_killed_at_its_time_limit_with_its_children() {
    let body = "echo hanging; echo $NS/$$ >> $PIDS; sleep 1000 & echo $NS/$! >> $PIDS; wait";
    for make in [fixture, bare_fixture] {
        assert_eq!(ended_at_its_limit(make, body, 2).await, "hanging\n");
    }
}

#[tokio::test]
async fn s2_30_a_time_limit_ends_what_left_the_session_and_ignores_signals() {
    let stubborn = "trap '' TERM HUP INT\necho $NS/$$ >> $PIDS\n";
    let nested = "setsid sh -c 'trap \"\" TERM; setsid sleep 1000 & echo $1/$! >> \"$0\"; wait' \
                  $PIDS $NS &";
    let body = format!("{stubborn}{DAEMON}{nested}\nwhile :; do sleep 1000; done");
    for make in [fixture, bare_fixture] {
        ended_at_its_limit(make, &body, 3).await;
    }
}

#[tokio::test]
async fn a_process_left_behind_in_a_session_of_its_own_is_gone_when_the_job_has_ended() {
    for fixture in [fixture(), bare_fixture()] {
        let body = format!("{DAEMON}while [ ! -s $PIDS ]; do sleep 0.01; done; echo done; exit 0");
        let report = fixture.run(script(&fixture, &body), b"").await;
        check_ended(&report, 200, None);
        assert_eq!(report.log.to_string(), "done\n[windlass] exit code 0\n");
        let pids = pids(&fixture, 1).await;
        assert!(!exists(&pids[0]));
    }
}

#[tokio::test]
async fn a_background_process_that_holds_the_pipes_does_not_delay_the_end() {
    for fixture in [fixture(), bare_fixture()] {
        let body = "sleep 1000 & echo $NS/$! >> $PIDS; echo done";
        let report = fixture.run(script(&fixture, body), b"").await;
        check_ended(&report, 200, None);
        assert!(report.log.to_string().starts_with("done\n"));
        assert!(!exists(&pids(&fixture, 1).await[0]));
    }
}

#[tokio::test]
async fn an_orphan_without_the_jobs_environment_is_known_by_where_it_works() {
    for fixture in [fixture(), bare_fixture()] {
        let body = "(env -i setsid sh -c 'echo $1/$$ >> \"$0\"; exec /bin/sleep 1000' $PIDS $NS &)
                while [ ! -s $PIDS ]; do sleep 0.01; done";
        let report = fixture.run(script(&fixture, body), b"").await;
        check_ended(&report, 200, None);
        assert!(!exists(&pids(&fixture, 1).await[0]));
    }
}

/// Nothing tells any more whose it is, except the cell that it cannot leave.
#[tokio::test]
async fn a_process_that_hid_completely_is_gone_when_the_job_has_ended() {
    let fixture = fixture();
    let body =
        "(cd /; env -i setsid sh -c 'echo $1/$$ >> \"$0\"; exec /bin/sleep 1000' $PIDS $NS &)
                while [ ! -s $PIDS ]; do sleep 0.01; done; echo done";
    let report = fixture.run(script(&fixture, body), b"").await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().starts_with("done\n"));
    assert!(!exists(&pids(&fixture, 1).await[0]));
}

/// The same on a machine without cells: it stays, but nobody waits for it.
#[tokio::test]
async fn without_cells_a_process_that_hid_completely_cannot_delay_the_end_of_the_job() {
    let fixture = bare_fixture();
    let body =
        "(cd /; env -i setsid sh -c 'echo $1/$$ >> \"$0\"; exec /bin/sleep 1000' $PIDS $NS &)
                while [ ! -s $PIDS ]; do sleep 0.01; done; echo done";
    let report = fixture.run(script(&fixture, body), b"").await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().starts_with("done\n"));
    let hidden = number_here(&pids(&fixture, 1).await[0]).unwrap();
    let hidden = rustix::process::Pid::from_raw(hidden.cast_signed()).unwrap();
    let _ = rustix::process::kill_process(hidden, rustix::process::Signal::KILL);
}

#[tokio::test]
async fn orphans_that_died_by_themselves_are_reaped() {
    for fixture in [fixture(), bare_fixture()] {
        let body = "(setsid sh -c 'echo $1/$$ >> \"$0\"' $PIDS $NS &)
                while [ ! -s $PIDS ]; do sleep 0.01; done; exit 3";
        let report = fixture.run(script(&fixture, body), b"").await;
        check_ended(&report, 500, None);
        assert!(!exists(&pids(&fixture, 1).await[0]));
    }
}

#[tokio::test]
async fn processes_of_one_job_survive_the_end_of_another() {
    for fixture in [fixture(), bare_fixture()] {
        let body = format!("{DAEMON}while [ ! -s $PIDS ]; do sleep 0.01; done; sleep 1000");
        let mut run = fixture.begin(script(&fixture, &body), vec![job(b"")]);
        let pids = pids(&fixture, 1).await;
        check_ended(&fixture.sh("exit 0").await, 200, None);
        assert!(exists(&pids[0]));
        fixture.runner.stop(run.attempts[0], Stop::Cancelled);
        check_ended(&run.ended().await.1, 500, Some(Stop::Cancelled));
        assert!(!exists(&pids[0]));
    }
}

#[tokio::test]
async fn children_of_the_daemon_that_are_no_handlers_are_left_alone() {
    for fixture in [fixture(), bare_fixture()] {
        let mut other = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        check_ended(&fixture.sh("(setsid true &); exit 0").await, 200, None);
        assert_eq!(other.wait().unwrap().code(), Some(7));
    }
}

#[tokio::test]
async fn a_stop_ends_the_job_with_its_reason() {
    let fixture = fixture();
    for why in [Stop::Expired, Stop::Cancelled, Stop::LeaseLost, Stop::Shutdown] {
        let mut run = fixture.begin(spec(Lang::Sh, "sleep 1000"), vec![job(b"")]);
        let id = run.started().await;
        fixture.runner.stop(run.attempts[0], why);
        fixture.runner.stop(run.attempts[0], Stop::TimedOut);
        let (ended, report) = run.ended().await;
        assert_eq!(ended, id);
        check_ended(&report, 500, Some(why));
        assert_eq!(report.log.to_string(), format!("[windlass] {}\n", why.as_str()));
        assert_eq!(run.rest().await, []);
    }
    assert!(fixture.scratch_is_empty());
}

#[tokio::test]
async fn a_stop_ends_the_attempt_that_it_names_and_no_other_of_the_same_job() {
    let fixture = fixture();
    for lang_and_body in [(Lang::Sh, "sleep 1000"), (Lang::Python, "import time; time.sleep(1000)")]
    {
        let handler = || spec(lang_and_body.0, lang_and_body.1);
        let first = job(b"");
        let second = next_claim(&first);
        let mut older = fixture.begin(handler(), vec![first]);
        older.started().await;
        let mut newer = fixture.begin(handler(), vec![second]);
        newer.started().await;
        fixture.runner.stop(older.attempts[0], Stop::LeaseLost);
        check_ended(&older.ended().await.1, 500, Some(Stop::LeaseLost));
        assert_eq!(older.rest().await, []);
        fixture.runner.stop(newer.attempts[0], Stop::Cancelled);
        check_ended(&newer.ended().await.1, 500, Some(Stop::Cancelled));
        assert_eq!(newer.rest().await, []);
    }
}

#[tokio::test]
async fn a_stop_of_an_unknown_job_is_ignored() {
    let fixture = fixture();
    fixture.runner.stop(job(b"").id, Stop::Cancelled);
    check_ended(&fixture.sh("exit 0").await, 200, None);
}

#[tokio::test]
async fn after_a_shutdown_the_jobs_that_wait_go_back_unharmed() {
    let fixture = fixture();
    let jobs = vec![job(b""), job(b""), job(b"")];
    let mut run = fixture.begin(spec(Lang::Sh, "sleep 1000"), jobs);
    let ids = run.ids.clone();
    run.started().await;
    fixture.runner.stop(run.attempts[0], Stop::Shutdown);
    check_ended(&run.ended().await.1, 500, Some(Stop::Shutdown));
    assert_eq!(run.rest().await, [Event::Returned(ids[1]), Event::Returned(ids[2])]);
}

#[tokio::test]
async fn a_job_that_is_stopped_before_its_turn_is_reported_and_the_next_one_runs() {
    let fixture = fixture();
    let jobs = vec![job(b"1000"), job(b"1000"), job(b"0")];
    let mut run = fixture.begin(spec(Lang::Sh, "read t; sleep $t"), jobs);
    let ids = run.ids.clone();
    run.started().await;
    fixture.runner.stop(run.attempts[1], Stop::Expired);
    fixture.runner.stop(run.attempts[0], Stop::Cancelled);
    for (id, status, why) in [
        (ids[0], 500, Some(Stop::Cancelled)),
        (ids[1], 500, Some(Stop::Expired)),
        (ids[2], 200, None),
    ] {
        let (ended, report) = run.ended().await;
        assert_eq!(ended, id);
        check_ended(&report, status, why);
    }
}

#[tokio::test]
async fn a_run_whose_caller_goes_away_leaves_no_process_and_no_directory() {
    for fixture in [fixture(), bare_fixture()] {
        let body = "echo $NS/$$ >> $PIDS; sleep 1000 & echo $NS/$! >> $PIDS; wait";
        let mut run = fixture.begin(script(&fixture, body), vec![job(b"")]);
        run.started().await;
        let pids = pids(&fixture, 2).await;
        run.abandon().await;
        std::fs::remove_file(fixture.scratch.path().join("pids")).unwrap();
        assert!(fixture.scratch_is_empty());
        // Killed processes are reaped when a later job ends.
        let mut jobs_left = 100;
        while pids.iter().any(|pid| exists(pid)) {
            check_ended(&fixture.sh("exit 0").await, 200, None);
            jobs_left -= 1;
            assert!(jobs_left > 0, "{pids:?}");
        }
    }
}

#[tokio::test]
async fn an_orphan_in_the_middle_of_an_exec_is_known_by_its_environment() {
    for fixture in [fixture(), bare_fixture()] {
        let looping = fixture.scratch.path().join("loop");
        std::fs::write(&looping, "#!/bin/sh\nexec \"$0\"\n").unwrap();
        std::fs::set_permissions(&looping, Permissions::from_mode(0o755)).unwrap();
        let body = "rm -f $PIDS
                (cd /; setsid sh -c 'echo $2/$$ >> \"$0\"; exec \"$1\"' $PIDS $LOOP $NS &)
                while [ ! -s $PIDS ]; do sleep 0.01; done";
        let body = format!("LOOP={}\n{body}", looping.display());
        for _ in 0..20 {
            let report = fixture.run(script(&fixture, &body), b"").await;
            check_ended(&report, 200, None);
            assert!(!exists(&pids(&fixture, 1).await[0]));
        }
    }
}

#[tokio::test]
async fn an_orphan_that_takes_its_time_to_die_is_gone_when_the_job_has_ended() {
    for fixture in [fixture(), bare_fixture()] {
        // It loses its memory before anything else, and with it its environment.
        let body = "(cd /; setsid python3 -c 'import os, sys, time
held = bytearray(400 << 20)
open(sys.argv[1], \"a\").write(f\"{sys.argv[2]}/{os.getpid()}\\n\")
time.sleep(1000)' $PIDS $NS &)
while [ ! -s $PIDS ]; do sleep 0.01; done";
        let report = fixture.run(script(&fixture, body), b"").await;
        check_ended(&report, 200, None);
        assert!(!exists(&pids(&fixture, 1).await[0]));
    }
}

#[tokio::test]
async fn an_orphan_known_by_where_it_works_that_takes_its_time_to_die_is_gone_too() {
    for fixture in [fixture(), bare_fixture()] {
        // The last unlinked file takes its contents along, after the process has lost its place.
        let body = "(env -i setsid /usr/bin/python3 -c 'import os, sys, time
held = open(\"held\", \"wb\")
os.unlink(\"held\")
for _ in range(300): held.write(bytes(1 << 20))
held.flush()
open(sys.argv[1], \"a\").write(f\"{sys.argv[2]}/{os.getpid()}\\n\")
time.sleep(1000)' $PIDS $NS &)
while [ ! -s $PIDS ]; do sleep 0.01; done";
        let mut handler = script(&fixture, body);
        handler.options.limits.scratch = Some(1 << 30);
        let report = fixture.run(handler, b"").await;
        check_ended(&report, 200, None);
        assert!(!exists(&pids(&fixture, 1).await[0]));
    }
}
