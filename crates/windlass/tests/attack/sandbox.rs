//! Code of a tenant tries to leave its sandbox, under a daemon of root and under one of nobody.
//! What each attack did before there was a sandbox is in its name; what must hold is asserted
//! outside.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant, until};

pub(crate) const NOBODY: u32 = 65534;
/// Printed by an attack that got somewhere.
pub(crate) const IN: &str = "GOT IN";

/// The attack, under a daemon of each user.
pub(crate) fn as_root_and_as_nobody(attack: impl Fn(&Daemon)) {
    assert!(rustix::process::geteuid().is_root(), "these tests start daemons of two users");
    attack(&Daemon::start(config()));
    let config = config();
    for dir in [config.home.dir().to_owned(), config.home.files()] {
        chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut command = config.command();
    command.uid(NOBODY).gid(NOBODY);
    attack(&Daemon::start_command(config, &mut command));
}

pub(crate) fn config() -> Config {
    Config::new().set("retry.attempts", "1").set("isolation.level", "\"required\"")
}

/// Runs a job of a handler with this body; returns it and its log.
fn run(tenant: &Tenant, lang: &str, body: &str, payload: &str) -> (Value, String) {
    tenant.handler("attack", &json!({"lang": lang, "body": body}));
    let id = tenant.add_one("attack", payload);
    let job = tenant.until_end(&id);
    (job, tenant.log(&id))
}

/// Runs the attack, which must not print that it got in.
#[track_caller]
fn fails(tenant: &Tenant, lang: &str, body: &str, payload: &str) -> String {
    let (_, log) = run(tenant, lang, body, payload);
    assert!(!log.contains(IN), "{body}: {log}");
    log
}

#[track_caller]
fn works(tenant: &Tenant, lang: &str, body: &str) -> String {
    let (job, log) = run(tenant, lang, body, "x");
    assert_eq!(job["state"], "finished", "{body}: {log}");
    log
}

/// Whether some process has this word among its arguments.
pub(crate) fn runs(word: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let of = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    all.map(of).any(|words| words.split(|byte| *byte == 0).any(|found| found == word.as_bytes()))
}

#[test]
fn b1_a_link_among_the_payloads_leads_the_daemon_nowhere() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let target = daemon.home().dir().join("written-by-the-daemon");
        let body = format!(
            "for dir in .. /job /job/in \"$WINDLASS_DIR\"; do
               ln -s {0} $dir/payload-1 && echo link in $dir; mkfifo $dir/payload-2; done
             echo x > /job/in/script && echo {IN}; rm -f /job/in/script && echo {IN}; true",
            target.display()
        );
        fails(&tenant, "sh", &body, "x");
        assert!(!target.exists());
        let large = "x".repeat(3 << 20);
        tenant.handler("large", &json!({"lang": "python", "body": "return str(len(payload))"}));
        let id = tenant.add_one("large", &large);
        assert_eq!(tenant.until_end(&id)["state"], "finished");
    });
}

#[test]
fn b3_b18_a_handler_does_not_reach_the_doors_nor_other_servers_of_the_machine() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        for port in [daemon.address.port(), other.local_addr().unwrap().port()] {
            let python = format!(
                "import socket\n\
                 for host in ('127.0.0.1', '0.0.0.0', '::1', '::ffff:127.0.0.1'):\n  \
                 try:\n    socket.create_connection((host, {port}), 2)\n    print('{IN}', host)\n  \
                 except OSError as e: print(host, e)\nreturn 200"
            );
            let log = fails(&tenant, "python", &python, "x");
            assert!(log.contains("refused: connection to 127.0.0.1"), "{log}");
            let node = format!(
                "try {{ await fetch('http://127.0.0.1:{port}/'); console.log('{IN}') }} catch {{}}"
            );
            fails(&tenant, "node", &node, "x");
            fails(
                &tenant,
                "sh",
                &format!("bash -c ': < /dev/tcp/127.0.0.1/{port}' && echo {IN}"),
                "x",
            );
        }
    });
    let open = Daemon::start(config().loopback());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    works(&open.tenant("a"), "sh", &format!("bash -c ': < /dev/tcp/127.0.0.1/{port}'"));
}

#[test]
fn b4_unix_sockets_with_a_path_or_without_lead_nowhere_outside() {
    let word = format!("windlass-attack-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(&word).unwrap();
    let _abstract = UnixListener::bind_addr(&name).unwrap();
    as_root_and_as_nobody(|daemon| {
        let path = daemon.home().dir().join("socket");
        let _listening = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let body = format!(
            "import socket\nfor name in ({path:?}, '\\0{word}'):\n  \
             s = socket.socket(socket.AF_UNIX)\n  \
             try:\n    s.connect(name)\n    print('{IN}', name)\n  except OSError as e: print(e)\n\
             return 200"
        );
        let tenant = daemon.tenant("a");
        fails(&tenant, "python", &body, "x");
        let own = "import socket\nl = socket.socket(socket.AF_UNIX)\nl.bind('own')\nl.listen()\n\
                   c = socket.socket(socket.AF_UNIX)\nc.connect('own')\nc.send(b'x')\n\
                   assert l.accept()[0].recv(1) == b'x'\nreturn 200";
        works(&tenant, "python", own);
    });
}

#[test]
fn b5_processes_that_leave_everything_behind_end_with_their_job() {
    as_root_and_as_nobody(|daemon| {
        let word = format!("{}.{}", 90_000 + daemon.pid(), std::process::id());
        let body = format!(
            "i=0; while [ $i -lt 30 ]; do
               (cd /; setsid env -i sh -c '(sleep {word} &) &' < /dev/null > /dev/null 2>&1 &)
               i=$((i + 1)); done; sleep 0.2; echo begun"
        );
        let (_, log) = run(&daemon.tenant("a"), "sh", &body, "x");
        assert!(log.contains("begun"), "{log}");
        assert!(!runs(&word), "processes of the job are still there");
        let (_, log) =
            run(&daemon.tenant("a"), "python", &format!("import os\nos.system('''{body}''')"), "x");
        assert!(log.contains("begun"), "{log}");
        until("they are gone", || runs(&word), |runs| !runs);
    });
}

#[test]
fn b6_the_daemons_limits_and_priority_are_out_of_reach() {
    as_root_and_as_nobody(|daemon| {
        let pid = daemon.pid();
        let state = || {
            let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
            let stat = of("stat");
            let fields: Vec<String> =
                stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
            // Priority, nice value, policy.
            (of("limits"), fields[15].clone(), fields[16].clone(), fields[38].clone())
        };
        let before = state();
        let body = format!(
            "import os, resource\n\
             for act in (lambda: resource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1)),\n\
             \x20           lambda: os.setpriority(os.PRIO_PROCESS, {pid}, 19),\n\
             \x20           lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),\n\
             \x20           lambda: os.sched_setscheduler({pid}, os.SCHED_IDLE,\n\
             \x20               os.sched_param(0)),\n\
             \x20           lambda: os.kill({pid}, 19), lambda: os.kill(-1, 19)):\n  \
             try: act()\n  except OSError as e: print(e)\nreturn 200"
        );
        run(&daemon.tenant("a"), "python", &body, "x");
        assert_eq!(state(), before);
    });
}

#[test]
fn b7_b14_files_outside_keep_their_mode_owner_time_and_contents() {
    as_root_and_as_nobody(|daemon| {
        let file = daemon.home().dir().join("of-the-operator");
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let state = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.mode(), meta.uid(), meta.mtime(), meta.ctime_nsec(), meta.len())
        };
        let (own, data) = (state(&file), daemon.home().data());
        let mode = fs::metadata(&data).unwrap().mode();
        let body = format!(
            "for file in {0} {1} {1}/store.db; do cat $file && echo {IN}
             chmod 4777 $file && echo {IN}
             chown $(id -u) $file && echo {IN}; [ -e $file ] && touch $file && echo {IN}
             setfattr -n user.x -v y $file && echo {IN}; done; true",
            file.display(),
            data.display()
        );
        fails(&daemon.tenant("a"), "sh", &body, "x");
        assert_eq!((state(&file), fs::metadata(&data).unwrap().mode()), (own, mode));
        works(&daemon.tenant("a"), "sh", "echo x > own; chmod 700 own; touch own; cat own");
    });
}

#[test]
fn b11_a_full_scratch_space_is_the_jobs_own() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let fill = "for dir in . /tmp /dev/shm; do
                      head -c 300000000 /dev/zero > $dir/fill && echo GOT IN; done; true";
        fails(&tenant, "sh", fill, "x");
        works(&tenant, "sh", "head -c 100000000 /dev/zero > fill");
    });
}

/// Calls by their numbers on this kind of machine, with arguments that would succeed for some.
#[cfg(target_arch = "x86_64")]
#[test]
fn b13_b18_system_calls_that_lead_out_of_sandboxes_are_refused() {
    let calls = [
        ("unshare user", "272, 0x10000000"),
        ("clone3", "435, 0, 0"),
        ("mount", "165, b'none', b'/job', b'tmpfs', 0, 0"),
        ("ptrace", "101, 0, 0, 0, 0"),
        ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0"),
        ("bpf", "321, 0, 0, 0"),
        ("perf_event_open", "298, 0, 0, -1, -1, 0"),
        ("keyctl", "250, 0, -3, 1"),
        ("add_key", "248, b'user', b'x', b'y', 1, -3"),
        ("io_uring_setup", "425, 1, 0"),
        ("userfaultfd", "323, 1"),
        ("netlink", "41, 16, 3, 0"),
        ("packet", "41, 17, 3, 0"),
        ("raw", "41, 2, 3, 1"),
        ("mptcp", "41, 2, 1, 262"),
        ("vsock", "41, 40, 1, 0"),
        ("setns", "308, 0, 0"),
        ("chroot", "161, b'/'"),
        ("open_by_handle_at", "304, -100, 0, 0"),
    ];
    let list: Vec<String> =
        calls.iter().map(|(name, arguments)| format!("({name:?}, ({arguments},))")).collect();
    let body = format!(
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nfor name, words in ({},):\n  \
         said = '{IN}' if c.syscall(*words) >= 0 else 'refused'\n  \
         print(said, name, ctypes.get_errno())\n\
         return 200",
        list.join(", ")
    );
    as_root_and_as_nobody(|daemon| {
        let log = fails(&daemon.tenant("a"), "python", &body, "x");
        assert_eq!(log.matches("refused ").count(), calls.len(), "{log}");
    });
}

#[test]
fn b15_arguments_of_another_tenants_processes_are_not_seen() {
    as_root_and_as_nobody(|daemon| {
        let word = format!("{}.{}", 80_000 + daemon.pid(), std::process::id());
        let (victim, attacker) = (daemon.tenant("b"), daemon.tenant("a"));
        victim.sh("sleeper", &format!("sleep {word}"));
        let id = victim.add_one("sleeper", "x");
        until("the victim runs", || runs(&word), |runs| *runs);
        let log = works(&attacker, "sh", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ps aux");
        assert!(!log.contains(&word), "{log}");
        assert!(log.contains("/job/in/script"), "its own are there: {log}");
        victim.post(&format!("jobs/{id}/cancel")).expect(200);
    });
}

/// A cell of `sh` is used again. The place that it is shown lies below `/tmp`, where a job can move
/// the directories above it and put others there.
#[test]
fn what_a_job_puts_in_place_of_a_shown_directory_is_gone_for_the_next_one() {
    as_root_and_as_nobody(|daemon| {
        let files = daemon.home().files();
        fs::write(files.join("f"), "as it was\n").unwrap();
        let (files, above) = (files.display(), files.parent().unwrap().display());
        assert!(files.to_string().starts_with("/tmp/"), "the scratch space is there: {files}");
        let body = format!(
            "cat {files}/f\n\
             mv {above} /tmp/moved && mkdir -p {files} && echo {IN} > {files}/f\n\
             true"
        );
        let tenant = daemon.tenant("a");
        tenant.handler("t", &json!({"lang": "sh", "body": body}));
        for _ in 0..3 {
            let id = tenant.add_one("t", "x");
            assert_eq!(tenant.until_end(&id)["state"], "finished");
            let log = tenant.log(&id);
            assert!(log.contains("as it was") && !log.contains(IN), "{log}");
        }
    });
}
