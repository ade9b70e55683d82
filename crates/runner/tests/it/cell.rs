//! Cells: what a handler sees, leaves behind and uses up, whatever it tries. Each refusal has its
//! control, which shows that the same thing can succeed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::runner::Report;
use windlass_core::{HandlerSpec, Lang, Limits, TypeKey};
use windlass_runner::LocalRunner;

use crate::harness::{Fixture, bare_fixture, check_ended, fixture, handler, options, spec};

/// The lines of the handler, without those of the runner and of its errors.
pub(crate) fn said(report: &Report) -> Vec<String> {
    let lines = report.log.to_string();
    lines.lines().filter(|line| !line.starts_with('[')).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_handler_sees_and_signals_no_process_but_its_own() {
    let us = std::process::id();
    let script = format!(
        "for p in /proc/[0-9]*; do echo ${{p#/proc/}}; done; echo $$ >&2
         kill -0 {us} && echo reached"
    );
    let report = fixture().sh(&script).await;
    let log = report.log.to_string();
    let own = log.lines().find_map(|line| line.strip_prefix("[stderr] ")).unwrap();
    assert_eq!(said(&report), ["1", own], "the first process of the cell, and itself");
    assert!(log.contains("No such process"), "{log}");
    let control = said(&bare_fixture().sh(&script).await);
    assert!(control.contains(&us.to_string()), "{control:?}");
}

#[tokio::test]
async fn a_handler_sees_no_file_of_the_data_directory() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    for dir in [place.path(), &data] {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("file"), "text\n").unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir, everybody).unwrap();
    }
    let script =
        format!("cat {0}/file; cat {1}/file; ls -A {1}", place.path().display(), data.display());
    for (hidden, expected) in
        [(vec![data.clone()], &["text"][..]), (Vec::new(), &["text", "text", "file"])]
    {
        let scratch = tempfile::tempdir().unwrap();
        let mut options = options(&scratch);
        options.path = format!("{}:{}", place.path().display(), options.path);
        options.isolation.write = Vec::new();
        options.isolation.hidden = hidden;
        let fixture = Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch };
        let report = fixture.sh(&script).await;
        assert_eq!(said(&report), expected, "{}", report.log);
    }
}

fn with_scratch(body: &str, bytes: u64) -> HandlerSpec {
    let mut spec = spec(Lang::Sh, body);
    spec.options.limits = Limits { scratch: Some(bytes), ..Limits::default() };
    spec
}

#[tokio::test]
async fn a_handler_writes_no_more_than_its_scratch_space_and_the_next_one_has_all_of_it() {
    let fixture = fixture();
    let fill = "head -c 1500000 /dev/zero > file";
    let spread =
        "for dir in . /tmp /dev/shm; do head -c 500000 /dev/zero > $dir/file || exit 1; done";
    let many = "for i in $(seq 1 1000); do : > file-$i || exit 1; done";
    for body in [fill, spread, many] {
        for _ in 0..2 {
            let report = fixture.run(with_scratch(body, 1 << 20), b"").await;
            check_ended(&report, 500, None);
            assert!(report.log.to_string().contains("No space left"), "{body}: {}", report.log);
            let next = with_scratch("head -c 900000 /dev/zero > file && echo wrote", 1 << 20);
            assert_eq!(said(&fixture.run(next, b"").await), ["wrote"]);
        }
        check_ended(&fixture.run(with_scratch(body, 8 << 20), b"").await, 200, None);
    }
}

#[tokio::test]
async fn a_context_writes_no_more_than_its_scratch_space() {
    let fixture = fixture();
    let mut handler = spec(Lang::Python, "open('file', 'wb').write(bytes(int(payload)))");
    handler.options.limits.scratch = Some(1 << 20);
    let report = fixture.run(handler.clone(), b"1500000").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("No space left"), "{}", report.log);
    check_ended(&fixture.run(handler, b"900000").await, 200, None);
}

#[tokio::test]
async fn a_handler_cannot_change_files_that_are_not_its_own() {
    let fixture = fixture();
    let theirs = fixture.scratch.path().join("of-the-test");
    fs::write(&theirs, "text").unwrap();
    let before = [Path::new("/etc/passwd"), Path::new("/usr/bin/env"), &theirs]
        .map(|path| (path.to_owned(), fs::metadata(path).unwrap()));
    let body = format!(
        "import os
attempts = {{
    'chmod': lambda path: os.chmod(path, 0o777),
    'chown': lambda path: os.chown(path, os.getuid(), os.getgid()),
    'utime': lambda path: os.utime(path, (1, 1)),
    'xattr': lambda path: os.setxattr(path, 'user.of_a_handler', b'1'),
    'append': lambda path: open(path, 'a'),
    'truncate': lambda path: os.truncate(path, 0),
}}
def tried(name, path):
    try:
        attempts[name](path)
        print(name, path)
    except OSError:
        pass
for path in ['/etc/passwd', '/usr/bin/env', {theirs:?}, '/proc/1/root/etc/passwd', '/proc/1/cwd']:
    for name in attempts: tried(name, path)
open('own', 'w').close()
for name in ['chmod', 'chown', 'utime', 'append', 'truncate']: tried(name, 'own')"
    );
    let report = fixture.run(spec(Lang::Python, &body), b"").await;
    check_ended(&report, 200, None);
    let own = ["chmod own", "chown own", "utime own", "append own", "truncate own"];
    assert_eq!(said(&report), own, "its own file is the control");
    for (path, before) in before {
        let now = fs::metadata(&path).unwrap();
        let shown = |meta: &fs::Metadata| (meta.mode(), meta.uid(), meta.mtime(), meta.len());
        assert_eq!(shown(&now), shown(&before), "{}", path.display());
    }
}

/// What was handed over belongs to the daemon: a handler reads it and can neither change nor
/// replace it.
#[tokio::test]
async fn a_handler_cannot_change_what_it_was_handed() {
    let script =
        "test -s /job/in/script && echo seen; echo '# more' >> /job/in/script && echo changed
                  chmod 777 /job/in/script && echo changed; rm -f /job/in/script && echo changed
                  mv /job/in /job/of-a-handler && echo changed; mkdir /job/in/x && echo changed
                  touch /job/in/new && echo changed; exit 0";
    let report = fixture().sh(script).await;
    check_ended(&report, 200, None);
    assert_eq!(said(&report), ["seen"], "{}", report.log);
}

#[tokio::test]
async fn every_tenant_has_a_user_of_its_own() {
    assert!(rustix::process::geteuid().is_root(), "only root can start other users");
    let fixture = fixture();
    let mut users = Vec::new();
    for tenant in ["acme", "acme", "other"] {
        let mut of_tenant = handler(spec(Lang::Sh, "echo $(id -u) $(id -g) $(id -G)"));
        of_tenant.key = TypeKey::new(tenant, "mail/send").unwrap();
        let (_, report) = fixture.begin_of(of_tenant).ended().await;
        let line = said(&report).remove(0);
        let numbers: Vec<u32> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(numbers.iter().all(|number| *number == numbers[0] && *number >= 1 << 16), "{line}");
        users.push(numbers[0]);
    }
    assert!(users[0] == users[1] && users[1] != users[2], "{users:?}");
    let control = bare_fixture().sh("id -u").await;
    assert_eq!(said(&control), ["0"], "without cells there is one user");
}

/// The kernel's limit of CPU time is a signal that a process can ignore.
#[tokio::test]
async fn a_context_that_ignores_the_end_of_its_cpu_time_is_killed() {
    let mut endless = spec(
        Lang::Python,
        "import resource, signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n\
         while True: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    );
    endless.options.limits.cpu = Some(Duration::from_secs(1));
    let report = fixture().run(endless, b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("CPU time is used up"), "{}", report.log);
}

/// Threads are no processes, and still a machine has a limited number of them.
#[tokio::test]
async fn a_handler_starts_no_more_threads_than_its_cell_may_have() {
    let body = "import threading\nthreading.stack_size(65536)\nstop = threading.Event()\n\
                made = []\n\
                try:\n  for n in range(THREADS):\n    t = threading.Thread(target=stop.wait)\n    \
                t.start()\n    made.append(t)\n\
                except RuntimeError: pass\n\
                stop.set()\nfor t in made: t.join()\nprint(len(made))\nreturn 200";
    // The threads of a tenant's user are counted together, so it is one of its own.
    let threads = |most: &str| {
        let mut of_tenant = handler(spec(Lang::Python, &body.replace("THREADS", most)));
        of_tenant.key = TypeKey::new("many-threads", "mail/send").unwrap();
        of_tenant
    };
    let (_, report) = fixture().begin_of(threads("6000")).ended().await;
    let made: u32 = said(&report)[0].parse().unwrap();
    assert!(made < 4096, "{made} threads");
    let (_, control) = fixture().begin_of(threads("100")).ended().await;
    assert_eq!(said(&control), ["100"]);
}
