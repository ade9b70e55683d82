//! What a process sees of the daemon: only its job.

use windlass_core::Lang;

use crate::harness::{bare_fixture, check_ended, fixture, job, spec, with_env};

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
            "HOME" => assert_eq!(value, "/job/work"),
            "TMPDIR" => assert_eq!(value, "/tmp"),
            "LANG" => assert_eq!(value, "C.UTF-8"),
            "MINE" => assert_eq!(value, "a value"),
            "WINDLASS_JOB_ID" => assert_eq!(value, id.to_string()),
            "WINDLASS_TENANT" => assert_eq!(value, "acme"),
            "WINDLASS_TYPE" => assert_eq!(value, "mail/send"),
            "WINDLASS_ATTEMPT" => assert_eq!(value, "3"),
            "WINDLASS_DIR" => assert_eq!(value, "/job"),
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
    for _ in 0..2 {
        // The second job finds nothing of the first one, although its directory has the same name.
        let report = fixture.sh(script).await;
        check_ended(&report, 200, None);
        let log = report.log.to_string();
        let lines: Vec<_> = log.lines().collect();
        assert_eq!(lines[..5], ["/job/work", "/job/work", "0", "700", "/job/work"]);
        assert!(!std::path::Path::new("/job/work").exists());
        assert!(fixture.scratch_is_empty());
    }
}

#[tokio::test]
async fn two_jobs_that_run_at_once_do_not_share_their_directories() {
    let fixture = fixture();
    let [first, second] = ["first", "second"].map(|name| fixture.scratch.path().join(name));
    let body = |own: &std::path::Path, other: &std::path::Path| {
        format!(
            "echo x > of-a-job; echo x > /tmp/of-a-job; echo x > /dev/shm/of-a-job
             echo ready > {}; while [ ! -s {} ]; do sleep 0.01; done
             ls -A . /tmp /dev/shm | grep -c of-a-job
             rm of-a-job /tmp/of-a-job /dev/shm/of-a-job",
            own.display(),
            other.display()
        )
    };
    let mut runs = [(&first, &second), (&second, &first)]
        .map(|(own, other)| fixture.begin(spec(Lang::Sh, &body(own, other)), vec![job(b"")]));
    for run in &mut runs {
        let (_, report) = run.ended().await;
        check_ended(&report, 200, None);
        assert_eq!(report.log.to_string(), "3\n[windlass] exit code 0\n");
    }
}

#[tokio::test]
async fn without_a_cell_a_job_has_a_directory_of_the_machine() {
    let fixture = bare_fixture();
    let assignment = job(b"");
    let id = assignment.job.id;
    let script = spec(Lang::Sh, "echo $WINDLASS_DIR; pwd; echo $HOME; echo $TMPDIR; echo x > x");
    let (_, report) = fixture.begin(script, vec![assignment]).ended().await;
    check_ended(&report, 200, None);
    let log = report.log.to_string();
    let lines: Vec<_> = log.lines().collect();
    let [dir, work, home, tmp] = lines[..4] else { panic!("{log}") };
    assert!(dir.contains(&format!("/job-{id}-")), "{dir}");
    assert_eq!((work, home), (home, work));
    assert_eq!((home, tmp), (&*format!("{dir}/work"), &*format!("{dir}/tmp")));
    assert!(fixture.scratch_is_empty());
}
