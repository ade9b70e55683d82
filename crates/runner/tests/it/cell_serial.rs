//! Cells that run one job after another: the next job finds nothing of the one before.

use std::time::Duration;

use windlass_core::{HandlerSpec, Lang, Limits, Runner, TypeKey};

use crate::cell::said;
use crate::harness::{Fixture, check_ended, fixture, handler, job, limited, lines_of, spec};

/// Says in which cell it runs: a namespace has the same number only there.
const WHERE: &str = "readlink /proc/self/ns/pid";

/// Runs the same handler twice, with another payload each time, and returns what both said.
async fn twice(fixture: &Fixture, spec: &HandlerSpec) -> [Vec<String>; 2] {
    let first = fixture.run(spec.clone(), b"first\n").await;
    check_ended(&first, 200, None);
    let second = fixture.run(spec.clone(), b"second\n").await;
    check_ended(&second, 200, None);
    [said(&first), said(&second)]
}

#[tokio::test]
async fn jobs_of_one_handler_run_in_the_same_cell_and_those_of_others_do_not() {
    let fixture = fixture();
    let [first, second] = twice(&fixture, &spec(Lang::Sh, WHERE)).await;
    assert_eq!(first, second);
    let other = spec(Lang::Sh, &format!("{WHERE}; true"));
    assert_ne!(said(&fixture.run(other, b"").await), first, "another source");
    let mut less = spec(Lang::Sh, WHERE);
    less.options.limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    assert_ne!(said(&fixture.run(less, b"").await), first, "other limits");
    let mut of_other = handler(spec(Lang::Sh, WHERE));
    of_other.key = TypeKey::new("other", "mail/send").unwrap();
    assert_ne!(said(&fixture.begin_of(of_other).ended().await.1), first, "another tenant");
    assert_eq!(said(&fixture.run(spec(Lang::Sh, WHERE), b"").await), first, "the control");
}

#[tokio::test]
async fn two_jobs_at_once_have_two_cells() {
    let fixture = fixture();
    let (pids, release) =
        (fixture.scratch.path().join("pids"), fixture.scratch.path().join("release"));
    let body = format!(
        "{WHERE} >> {}; while [ ! -e {} ]; do sleep 0.01; done",
        pids.display(),
        release.display()
    );
    let mut runs = [(); 2].map(|()| fixture.begin(spec(Lang::Sh, &body), vec![job(b"")]));
    let cells = lines_of(&pids, 2).await;
    assert_ne!(cells[0], cells[1]);
    std::fs::write(&release, "").unwrap();
    for run in &mut runs {
        check_ended(&run.ended().await.1, 200, None);
    }
}

#[tokio::test]
async fn nothing_of_a_job_is_there_for_the_next_one() {
    let fixture = fixture();
    let body = "import ctypes, os, socket, sys, time
c = ctypes.CDLL(None, use_errno=True)
which = sys.stdin.readline().strip()
print(os.readlink('/proc/self/ns/pid'))
print('priority', os.getpriority(os.PRIO_PROCESS, 0), len(os.sched_getaffinity(0)))
if which == 'first':
    for dir in ('.', '/tmp', '/dev/shm', '/job', '/job/tmp'):
        try: open(dir + '/of-a-job', 'w').write('x')
        except OSError: pass
    os.chmod('.', 0o777); os.chmod('/tmp', 0o700); os.umask(0)
    assert c.shmget(77, 4096, 0o1666) >= 0 and c.semget(77, 1, 0o1666) >= 0
    assert c.msgget(77, 0o1666) >= 0
    if os.fork() == 0:
        os.setsid()
        s = socket.socket(socket.AF_UNIX); s.bind('\\0of-a-job'); s.listen()
        os.closerange(0, 3)
        time.sleep(1000)
    while True:
        try: socket.socket(socket.AF_UNIX).connect('\\0of-a-job'); break
        except OSError: time.sleep(0.01)
    for act in (lambda: os.setpriority(os.PRIO_PROCESS, 1, 5), lambda: os.nice(5),
                lambda: os.sched_setaffinity(1, {0}), lambda: os.kill(1, 9),
                lambda: os.setpriority(os.PRIO_USER, os.getuid(), 5)):
        try: act()
        except OSError: pass
else:
    found = [dir for dir in ('.', '/tmp', '/dev/shm', '/job', '/job/tmp')
             if os.path.exists(dir + '/of-a-job')]
    modes = [oct(os.stat(dir).st_mode & 0o7777) for dir in ('.', '/tmp')]
    print('found', found, modes, oct(os.umask(0o22)))
    print(c.shmget(77, 0, 0), c.semget(77, 0, 0), c.msgget(77, 0))
    try: socket.socket(socket.AF_UNIX).connect('\\0of-a-job'); print('connected')
    except OSError: pass
    print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()) == [1, os.getpid()])
    print(os.environ['WINDLASS_JOB_ID'] != '', open('/job/in/script').read(3))
    open('of-a-job', 'w').write('x')
";
    let script = format!("exec python3 -c \"$(cat <<'END'\n{body}END\n)\"");
    let [first, second] = twice(&fixture, &spec(Lang::Sh, &script)).await;
    assert_eq!(second[..2], first[..2], "both ran in one cell, with the same priority");
    let expected = ["found [] ['0o700', '0o1777'] 0o22", "-1 -1 -1", "True", "True exe"];
    assert_eq!(second[2..], expected);
}

#[tokio::test]
async fn each_job_has_its_own_variables_streams_and_status() {
    let fixture = fixture();
    let body = "read line; echo $line $WINDLASS_JOB_ID $WINDLASS_ATTEMPT $UNSET; export UNSET=set
                echo to stderr >&2; exit $(( ${#line} - 5 ))";
    let mut ids = Vec::new();
    for (line, status) in [("first", 200), ("second", 500), ("third", 200)] {
        let assignment = job(format!("{line}\n").as_bytes());
        let id = assignment.job.id;
        let (_, report) = fixture.begin(spec(Lang::Sh, body), vec![assignment]).ended().await;
        check_ended(&report, status, None);
        assert_eq!(said(&report), [format!("{line} {id} 3")]);
        assert!(report.log.to_string().contains("[stderr] to stderr"), "{}", report.log);
        ids.push(id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

/// A cell whose job was stopped is not used again.
#[tokio::test]
async fn a_job_that_is_stopped_takes_its_cell_with_it() {
    let fixture = fixture();
    let body = format!("{WHERE}; read line; if [ $line = hang ]; then sleep 1000; fi");
    let first = said(&fixture.run(spec(Lang::Sh, &body), b"go\n").await);
    let hang = limited(job(b"hang\n"), Duration::from_secs(1));
    let (_, report) = fixture.begin(spec(Lang::Sh, &body), vec![hang]).ended().await;
    assert!(report.stopped.is_some());
    assert_eq!(said(&report), first, "it ran in the same cell");
    assert_ne!(said(&fixture.run(spec(Lang::Sh, &body), b"go\n").await), first);
}

#[tokio::test]
async fn a_closed_runner_leaves_no_waiting_cell() {
    let fixture = fixture();
    fixture.sh("true").await;
    let waiting = |fixture: &Fixture| {
        let names = std::fs::read_dir(fixture.scratch.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("job-cell-")).count()
    };
    assert_eq!(waiting(&fixture), 1, "the control");
    fixture.runner.close().await;
    assert_eq!(waiting(&fixture), 0);
}
