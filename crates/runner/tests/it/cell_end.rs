//! Nothing of a cell outlives its job, its context or the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use windlass_core::{Lang, Runner};
use windlass_runner::LocalRunner;
use windlass_test_kit::process::{Tied, is_alive, number_here};

use crate::harness::{
    Fixture, PYTHON_NS, check_ended, exists, fixture, job, lines_of, options, spec, until_gone,
};

/// Starts a process that nothing ties to its job but the cell, and writes down its name.
fn hidden_process(pids: &Path) -> String {
    format!(
        "import os, time\n\
         ns = {PYTHON_NS}\n\
         if os.fork() == 0:\n    \
             os.setsid(); os.chdir('/')\n    \
             if os.fork() == 0:\n        \
                 os.closerange(0, 100)\n        \
                 out = os.open({pids:?} + '.part', os.O_WRONLY | os.O_CREAT)\n        \
                 os.write(out, f'{{ns}}/{{os.getpid()}}\\n'.encode()); os.close(out)\n        \
                 os.rename({pids:?} + '.part', {pids:?})\n        \
                 os.execve('/bin/sleep', ['sleep', '1000'], {{}})\n    \
             os._exit(0)\n"
    )
}

#[tokio::test]
async fn a_process_that_hides_lives_as_long_as_its_job_and_no_longer() {
    let fixture = fixture();
    let (pids, release) =
        (fixture.scratch.path().join("pids"), fixture.scratch.path().join("release"));
    let body = format!(
        "{}while not os.path.exists({release:?}): time.sleep(0.01)\n",
        hidden_process(&pids)
    );
    let script = format!("exec python3 -c \"$(cat <<'END'\n{body}END\n)\"");
    let mut run = fixture.begin(spec(Lang::Sh, &script), vec![job(b"")]);
    let hidden = lines_of(&pids, 1).await.remove(0);
    assert!(is_alive(&hidden), "the control");
    fs::write(&release, "").unwrap();
    check_ended(&run.ended().await.1, 200, None);
    assert!(!exists(&hidden), "{hidden}");
}

#[tokio::test]
async fn a_process_that_hides_from_its_context_ends_with_it() {
    let fixture = fixture();
    let pids = fixture.scratch.path().join("pids");
    // What a job leaves is ended after its batch: it ends when the process has written its name.
    let wait = format!("while not os.path.exists({pids:?}): time.sleep(0.01)\n");
    let body = hidden_process(&pids) + &wait;
    let mut run = fixture.begin(spec(Lang::Python, &body), vec![job(b"")]);
    check_ended(&run.ended().await.1, 200, None);
    let hidden = lines_of(&pids, 1).await.remove(0);
    fixture.runner.close().await;
    assert!(!exists(&hidden), "{hidden}");
}

/// Where the daemon that is killed works; set only by its test.
const SCRATCH_OF_KILLED: &str = "WINDLASS_TEST_SCRATCH_OF_KILLED";

/// Handlers that try to outlive the daemon: by signals that they ignore, and by connections that
/// wait for ever, which the cell has to carry out.
const SURVIVORS: [(&str, &str); 5] = [
    ("plain", ""),
    ("ignores", "for number in (1, 2, 3, 13, 15): signal.signal(number, signal.SIG_IGN)"),
    ("streams", "connect_often(socket.SOCK_STREAM, 100)"),
    ("packets", "connect_often(socket.SOCK_SEQPACKET, 10)"),
    // As many as are carried out at a time, and then one less, and no further call.
    ("freed", "fill_and_free(64, 20)"),
];

/// Not a test of its own: the test below starts this program again to run it, and kills it.
#[test]
fn a_daemon_that_is_killed() {
    let Some(place) = std::env::var_os(SCRATCH_OF_KILLED) else { return };
    let scratch = tempfile::tempdir_in(&place).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut options = options(&scratch);
        options.isolation.write = vec![place.clone().into()];
        let fixture = Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch };
        let begin = |(name, body)| {
            let body = survivor(&Path::new(&place).join(name), body);
            fixture.begin(spec(Lang::Python, &body), vec![job(b"")])
        };
        let _runs = SURVIVORS.map(begin);
        std::future::pending::<()>().await;
    });
}

/// A handler that writes its name into the file when it is ready to outlive the daemon.
fn survivor(file: &Path, body: &str) -> String {
    format!(
        "import os, signal, socket, threading, time
def ready():
    with open({file:?}, 'a') as f: f.write({PYTHON_NS} + f'/{{os.getpid()}}\\n')
def connecting():
    tasks = '/proc/self/task/'
    calls = [open(tasks + task + '/syscall').read() for task in os.listdir(tasks)]
    return sum(call.startswith('42 ') for call in calls)
def connect_often(kind, threads):
    server = socket.socket(socket.AF_UNIX, kind); server.bind('s'); server.listen(0)
    connect = lambda: socket.socket(socket.AF_UNIX, kind).connect('s')
    for _ in range(threads): threading.Thread(target=connect, daemon=True).start()
    while connecting() < threads - 2: time.sleep(0.01)
def fill_and_free(most, rounds):
    server = socket.socket(socket.AF_UNIX); server.bind('s'); server.listen(0)
    kept = [socket.socket(socket.AF_UNIX)]; kept[0].connect('s')
    def connect():
        client = socket.socket(socket.AF_UNIX); client.connect('s'); time.sleep(1000)
    for _ in range(rounds):
        for _ in range(most - connecting()): threading.Thread(target=connect, daemon=True).start()
        while connecting() < most: time.sleep(0.01)
        kept.append(server.accept()[0])
        while connecting() >= most: time.sleep(0.01)
{body}
ready()
time.sleep(1000)"
    )
}

/// Ends what the test has found to be alive, whatever comes of the test.
struct Survivors(Vec<(&'static str, String)>);

impl Drop for Survivors {
    fn drop(&mut self) {
        for (_, process) in &self.0 {
            let number = number_here(process).map(u32::cast_signed);
            if let Some(number) = number.and_then(Pid::from_raw) {
                let _ = kill_process(number, Signal::KILL);
            }
        }
    }
}

#[tokio::test]
async fn nothing_outlives_a_daemon_that_is_killed() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cell_end::a_daemon_that_is_killed"]);
    command.env(SCRATCH_OF_KILLED, place.path());
    let mut daemon = Tied::spawn(&mut command);
    let mut survivors = Survivors(Vec::new());
    for (name, _) in SURVIVORS {
        let process = lines_of(&place.path().join(name), 1).await.remove(0);
        assert!(is_alive(&process), "{name} is the control");
        survivors.0.push((name, process));
    }
    daemon.kill();
    for (name, process) in &survivors.0 {
        println!("{name} is waited for");
        until_gone(process).await;
    }
}
