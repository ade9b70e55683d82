//! What a process sees of the daemon: only its job.

use windlass_core::Lang;

use crate::harness::{check_ended, fixture, job, spec, with_env};

#[tokio::test]
async fn the_environment_has_the_job_and_nothing_of_the_daemon() {
    let fixture = fixture();
    let assignment = job(b"");
    let id = assignment.job.id;
    let handler = with_env(spec(Lang::Exec, "env"), "MINE", "a value");
    let (_, report) = fixture.begin(handler, vec![assignment]).ended().await;
    let mut names = Vec::new();
    let log = report.log.to_string();
    for line in log.lines().filter(|line| !line.starts_with('[')) {
        let (name, value) = line.split_once('=').unwrap();
        names.push(name);
        match name {
            "PATH" => assert_eq!(value, "/usr/local/bin:/usr/bin:/bin"),
            "HOME" => assert!(value.ends_with("/work")),
            "TMPDIR" => assert!(value.ends_with("/tmp")),
            "LANG" => assert_eq!(value, "C.UTF-8"),
            "MINE" => assert_eq!(value, "a value"),
            "WINDLASS_JOB_ID" => assert_eq!(value, id.to_string()),
            "WINDLASS_TENANT" => assert_eq!(value, "acme"),
            "WINDLASS_TYPE" => assert_eq!(value, "mail/send"),
            "WINDLASS_ATTEMPT" => assert_eq!(value, "3"),
            "WINDLASS_DIR" => assert!(value.contains(&format!("/job-{id}-"))),
            other => panic!("{other} comes from somewhere else"),
        }
    }
    assert_eq!(names.len(), 10, "{names:?}");
}

#[tokio::test]
async fn a_handler_may_choose_its_own_path() {
    let handler = with_env(spec(Lang::Sh, "echo $PATH; ls"), "PATH", "/nowhere:/usr/bin:/bin");
    let report = fixture().run(handler, b"").await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().starts_with("/nowhere:/usr/bin:/bin\n"), "{}", report.log);
}

#[tokio::test]
async fn a_process_has_three_descriptors() {
    // The fourth is the descriptor that ls uses to read the list.
    for handler in [spec(Lang::Exec, "ls /proc/self/fd"), spec(Lang::Sh, "ls /proc/self/fd")] {
        let report = fixture().run(handler, b"").await;
        assert_eq!(report.log.to_string(), "0\n1\n2\n3\n[windlass] exit code 0\n");
    }
    let script = "for fd in 0 1 2; do readlink /proc/self/fd/$fd; done";
    let report = fixture().sh(script).await;
    let pipes = report.log.to_string().lines().filter(|line| line.starts_with("pipe:")).count();
    assert_eq!(pipes, 3, "{}", report.log);
}

#[tokio::test]
async fn a_process_leads_a_session_and_a_group_of_its_own() {
    let fixture = fixture();
    // After the name in parentheses: state, parent, group, session.
    let report = fixture.sh("read -r line < /proc/$$/stat; echo $$ ${line##*) }").await;
    let log = report.log.to_string();
    let fields: Vec<_> = log.split_whitespace().collect();
    assert_eq!((fields[0], fields[0]), (fields[3], fields[4]), "{}", report.log);
}

#[tokio::test]
async fn the_working_directory_is_private_empty_and_removed() {
    let fixture = fixture();
    let script = "pwd; echo $HOME; ls -A | wc -l; stat -c %a .. ; touch x; mkdir -p a/b/c; \
                  chmod 0 a/b; echo text > $TMPDIR/y; pwd";
    let report = fixture.sh(script).await;
    check_ended(&report, 200, None);
    let log = report.log.to_string();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines[0], lines[1]);
    assert_eq!(lines[2..4], ["0", "700"]);
    assert!(!std::path::Path::new(lines[0]).exists());
    assert!(fixture.scratch_is_empty());
    let again = fixture.sh(script).await;
    assert_ne!(again.log.to_string().lines().next(), Some(lines[0]));
}
