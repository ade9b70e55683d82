//! Daemons started in unusual environments: containers, careless parents.

use std::process::Command;

/// Tests that deal with children, orphans and zombies, to run in other environments.
const TESTS: [&str; 5] = [
    "confine::no_privilege_is_left_or_gained_and_no_signal_is_blocked_or_ignored",
    "end::s0_32_an_exit_code_becomes_a_status_and_is_in_the_log",
    "stop::s2_30_a_hung_job_is_killed_at_its_time_limit_with_its_children",
    "stop::orphans_that_died_by_themselves_are_reaped",
    "stop::children_of_the_daemon_that_are_no_handlers_are_left_alone",
];

/// `docker exec` and `unshare --pid` start processes whose session has no number in their own
/// namespace.
#[test]
fn a_daemon_runs_handlers_in_a_pid_namespace_that_its_session_is_outside_of() {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
    run_tests(&mut command, "unshare (util-linux) with user and pid namespaces");
}

/// An ignored signal stays ignored across exec, and with SIGCHLD ignored the kernel itself reaps
/// children and forgets how they ended.
#[test]
fn a_daemon_reads_exit_codes_although_its_parent_ignored_the_end_of_children() {
    let mut command = Command::new("env");
    command.args(["--ignore-signal=CHLD,HUP,INT,USR1", "--block-signal=USR2,TERM"]);
    run_tests(&mut command, "env --ignore-signal (coreutils)");
}

/// Runs `TESTS` of this very program, started by the command.
fn run_tests(command: &mut Command, needed: &str) {
    command.arg(std::env::current_exe().unwrap()).arg("--exact").args(TESTS);
    let output = command.output().unwrap_or_else(|why| panic!("{needed} is needed: {why}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let all_passed = format!("test result: ok. {} passed", TESTS.len());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains(&all_passed),
        "{needed} is needed, and the tests to pass:\n{text}{errors}"
    );
}
