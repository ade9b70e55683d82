//! The memory of a whole cell, and the control groups that bound it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass_core::{HandlerSpec, Lang, Limits, Runner};
use windlass_runner::LocalRunner;
use windlass_test_kit::process::Tied;
use windlass_test_kit::wait::eventually;

use crate::harness::{Fixture, check_ended, fixture, job, lines_of, options, spec};

const OVER: &str = "killed: all its processes together used up their memory (options.memory)";

/// Where the control groups of the runner on this scratch directory are.
fn groups_of(scratch: &Path) -> Vec<PathBuf> {
    let record = fs::read_to_string(scratch.join(".groups")).unwrap();
    assert!(!record.is_empty(), "this machine has control groups for root");
    record.lines().map(PathBuf::from).collect()
}

/// The groups of cells that exist now.
fn cells(parents: &[PathBuf]) -> Vec<PathBuf> {
    let entries = parents.iter().flat_map(fs::read_dir).flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

fn with_memory(lang: Lang, body: &str) -> HandlerSpec {
    let mut spec = spec(lang, body);
    let (memory, scratch) = (Some(48 << 20), Some(8 << 20));
    spec.options.limits = Limits { memory, scratch, ..Limits::default() };
    spec
}

/// Fills files in memory that no process has mapped, in a child; the job itself goes on.
const HOG: &str = "import os\nif os.fork() == 0:\n  f = os.memfd_create('x')\n  \
                   while True: os.write(f, bytes(1 << 20))\nos.wait()\n";

#[tokio::test]
async fn a_job_whose_child_uses_up_the_memory_ends_with_an_error_that_says_so() {
    let fixture = fixture();
    let script = format!("python3 -c \"{HOG}\"; sleep 1000");
    let report = fixture.run(with_memory(Lang::Sh, &script), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains(OVER), "{}", report.log);
    let report = fixture.run(with_memory(Lang::Python, &format!("{HOG}\nreturn 200")), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains(OVER), "{}", report.log);
    check_ended(&fixture.run(with_memory(Lang::Python, "return 200"), b"").await, 200, None);
}

/// Fills sockets with messages that the outer process sends.
const MESSAGES: &str = "import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
kept, piece = [], [bytes(1 << 16)]
for _ in range(400):
    pair = socket.socketpair()
    kept.append(pair)
    for end in pair:
        try:
            while True: end.sendmsg(piece, [], socket.MSG_DONTWAIT)
        except BlockingIOError: pass
";

/// Holds sockets that the outer process makes.
const SOCKETS: &str = "import os, resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
made, done = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        kept = [socket.socket(socket.AF_INET6) for _ in range(4000)]
        os.write(done, b'x')
        time.sleep(1000)
for _ in range(8): os.read(made, 1)
";

#[tokio::test]
async fn what_the_outer_process_makes_for_a_handler_counts_as_its_memory() {
    let fixture = fixture();
    for body in [MESSAGES, SOCKETS] {
        let report = fixture.run(with_memory(Lang::Python, body), b"").await;
        check_ended(&report, 500, None);
        assert!(report.log.to_string().contains(OVER), "{}", report.log);
    }
}

/// The first child of a process.
fn child_of(process: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

/// How willingly the kernel ends a process if memory is used up.
fn oom_score_adj(process: u32) -> PathBuf {
    format!("/proc/{process}/oom_score_adj").into()
}

#[tokio::test]
async fn a_cell_whose_outer_process_is_ended_for_lack_of_memory_ends_and_says_so() {
    let fixture = fixture();
    let (begun, release) =
        (fixture.scratch.path().join("begun"), fixture.scratch.path().join("release"));
    let body = format!(
        "import os, time
with open({begun:?}, 'w') as f: f.write(f'{{os.getpid()}}\\n')
while not os.path.exists({release:?}): time.sleep(0.01)
f = os.memfd_create('x')
while True: os.write(f, bytes(1 << 20))
"
    );
    let mut run = fixture.begin(with_memory(Lang::Python, &body), vec![job(b"")]);
    // Inside, the handler's process has the number of its outer process.
    let outer: u32 = lines_of(&begun, 1).await[0].parse().unwrap();
    let inside = [child_of(outer), child_of(child_of(outer))];
    for process in inside {
        let before = fs::read_to_string(oom_score_adj(process)).unwrap();
        assert_eq!(before.trim(), "1000", "the kernel ends the handler's processes first");
        fs::write(oom_score_adj(process), "0").unwrap();
    }
    fs::write(oom_score_adj(outer), "1000").unwrap();
    fs::write(&release, "").unwrap();
    let (_, report) = run.ended().await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains(OVER), "{}", report.log);
    for process in inside {
        eventually("it has ended", || (!oom_score_adj(process).exists()).then_some(())).await;
    }
}

#[tokio::test]
async fn a_control_group_lives_as_long_as_its_cell() {
    let fixture = fixture();
    let parents = groups_of(fixture.scratch.path());
    let (file, release) =
        (fixture.scratch.path().join("begun"), fixture.scratch.path().join("release"));
    let wait = format!(
        "cat /proc/self/cgroup; echo x > {}; while [ ! -e {} ]; do sleep 0.01; done",
        file.display(),
        release.display()
    );
    let mut run = fixture.begin(spec(Lang::Exec, &format!("sh -c '{wait}'")), vec![job(b"")]);
    lines_of(&file, 1).await;
    assert!(!cells(&parents).is_empty(), "the control");
    fs::write(&release, "").unwrap();
    let (_, report) = run.ended().await;
    check_ended(&report, 200, None);
    // It does not see where its group is.
    let log = report.log.to_string();
    assert!(log.contains("memory:/\n") && !log.contains("windlass-"), "{log}");
    fixture.runner.close().await;
    eventually("its groups are gone", || cells(&parents).is_empty().then_some(())).await;
    drop(fixture);
    assert!(parents.iter().all(|parent| !parent.exists()), "{parents:?}");
}

/// Where the daemon that is killed works; set only by its test.
const PLACE: &str = "WINDLASS_TEST_GROUPS_OF_KILLED";

/// Not a test of its own: the test below starts this program again to run it, and kills it.
#[test]
fn a_daemon_with_groups_that_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let scratch = tempfile::tempdir_in(&place).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut options = options(&scratch);
        options.isolation.write = vec![place.clone().into()];
        let fixture = Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch };
        let begun = Path::new(&place).join("begun");
        let body = format!("echo x > {}; sleep 1000", begun.display());
        let _run = fixture.begin(spec(Lang::Sh, &body), vec![job(b"")]);
        std::future::pending::<()>().await;
    });
}

#[tokio::test]
async fn groups_of_a_daemon_that_was_killed_are_removed_by_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(place.path(), everybody).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cell_memory::a_daemon_with_groups_that_is_killed"]);
    command.env(PLACE, place.path());
    let mut daemon = Tied::spawn(&mut command);
    lines_of(&place.path().join("begun"), 1).await;
    daemon.kill();
    let scratch = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
    let scratch = scratch.into_iter().find(|path| path.is_dir()).unwrap();
    let parents = groups_of(&scratch);
    assert!(!cells(&parents).is_empty(), "the control");
    let of_test = tempfile::tempdir().unwrap();
    let options = windlass_runner::Options { scratch_dir: scratch.clone(), ..options(&of_test) };
    let runner = LocalRunner::new(options).unwrap();
    assert_eq!(cells(&parents), Vec::<PathBuf>::new());
    assert_eq!(groups_of(&scratch), parents, "the next one uses the same place");
    drop(runner);
    assert!(parents.iter().all(|parent| !parent.exists()));
}
