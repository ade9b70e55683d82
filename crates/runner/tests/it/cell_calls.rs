//! System calls that no handler needs and that have led out of sandboxes are refused.

use windlass_core::Lang;
use windlass_runner::{Landlock, Level};

use crate::cell::said;
use crate::confine::with_isolation;
use crate::harness::{bare_fixture, check_ended, fixture, spec};

/// Makes the calls that the payload names, or all, and prints how each went: `allowed`, or the
/// name of the error.
const TRY_CALLS: &str = include_str!("cell_calls.py");

/// Errors with which a filter refuses; others come from the call itself.
const REFUSALS: [&str; 6] =
    ["EPERM", "ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENOTSUP", "EACCES"];

#[tokio::test]
async fn calls_that_no_handler_needs_are_refused() {
    // Landlock would refuse some of them, too.
    let run = async |level: Level, names: &str| {
        let fixture = with_isolation(|isolation| {
            (isolation.level, isolation.landlock) = (level, Landlock::Off);
        });
        fixture.run(spec(Lang::Python, TRY_CALLS), names.as_bytes()).await
    };
    let report = run(Level::Auto, "").await;
    check_ended(&report, 200, None);
    let lines = said(&report);
    assert_eq!(lines.last().unwrap(), "end", "{}", report.log);
    assert_eq!(lines.len(), 73, "{lines:?}");
    let passed: Vec<&String> = lines[..lines.len() - 1]
        .iter()
        .filter(|line| !REFUSALS.iter().any(|refusal| line.ends_with(refusal)))
        .collect();
    assert!(passed.is_empty(), "{passed:?}");
    let names = [
        "unshare",
        "ptrace",
        "keyctl",
        "netlink",
        "name_to_handle_at",
        "process_vm_readv",
        "broadcast",
        "inotify-open",
        "dnotify",
        "lease",
        "mq_open",
        "mq_unlink",
    ];
    let control = said(&run(Level::Off, &names.join(" ")).await);
    assert_eq!(control.len(), names.len() + 1, "{control:?}");
    let refused = |line: &&String| REFUSALS.iter().any(|refusal| line.ends_with(refusal));
    assert_eq!(control.iter().find(refused), None, "without a cell they are not");
}

/// What the C library and the runtimes of languages need works: the filter refuses no more.
#[tokio::test]
async fn threads_children_pipes_and_memory_work_as_usual() {
    let body = "import concurrent.futures, mmap, multiprocessing, os, subprocess, tempfile
with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(int, range(100))))
print(subprocess.run(['sh', '-c', 'echo a | tr a b'], capture_output=True).stdout.decode().strip())
with multiprocessing.get_context('fork').Pool(2) as pool: print(sum(pool.map(abs, [-1, -2])))
with tempfile.NamedTemporaryFile() as f:
    f.truncate(4096)
    mmap.mmap(f.fileno(), 0)
q = multiprocessing.get_context('fork').Queue(); q.put('queue'); print(q.get())
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)
print(len(os.urandom(3)), os.cpu_count() > 0)
";
    let report = fixture().run(spec(Lang::Python, body), b"").await;
    check_ended(&report, 200, None);
    assert_eq!(said(&report), ["4950", "b", "3", "queue", "3 True"], "{}", report.log);
}

/// Changes of files can be watched, but not what others read and run.
#[tokio::test]
async fn changes_of_files_can_be_watched() {
    let body = "const fs = require('fs')
await new Promise(done => {
  const watcher = fs.watch('.', (_, name) => { watcher.close(); console.log(name); done() })
  fs.writeFileSync('made', 'x')
})";
    let report = fixture().run(spec(Lang::Node, body), b"").await;
    check_ended(&report, 200, None);
    assert_eq!(said(&report), ["made"], "{}", report.log);
}

/// The daemon has its turn before its handlers, which cannot change that.
#[tokio::test]
async fn handlers_come_after_the_daemon() {
    let body = "import os
print(os.nice(0))
try: os.nice(-1); print('raised')
except OSError: print('no')";
    let report = fixture().run(spec(Lang::Python, body), b"").await;
    let control = bare_fixture().run(spec(Lang::Python, body), b"").await;
    let usual: i32 = said(&control)[0].parse().unwrap();
    assert_eq!(said(&report), [(usual + 10).min(19).to_string(), "no".into()], "{}", report.log);
}
