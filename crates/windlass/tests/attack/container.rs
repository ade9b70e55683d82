//! A machine that allows no namespaces, as containers often do not. Handlers run there all the
//! same, and the layers that are left hold: Landlock, the network policy, the filter, the limits.

#[cfg(target_arch = "x86_64")]
mod calls;
mod files;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant, run, until, windlass};
use crate::processes::{DISTURBS, disturbs, hide_when_the_daemon_is_killed, standing, word};
use crate::users::{IN, NOBODY, runs, with_argument, wrapped};

/// Of an ordinary user; the second, of root without the right to make namespaces.
const AS_NOBODY: &str = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \
    unshare -U --map-current-user --keep-caps sh -c \
    'echo 0 > /proc/sys/user/max_user_namespaces && \
     exec setpriv --inh-caps -all --ambient-caps -all -- \"$@\"' sh \"$@\"";
const AS_ROOT: &str = "exec unshare -U --map-root-user --keep-caps sh -c \
    'echo 0 > /proc/sys/user/max_user_namespaces && \
     exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin --ambient-caps -all -- \"$@\"' \
    sh \"$@\"";

/// The same command, where nothing can make a namespace.
fn without_namespaces(command: &Command, script: &str) -> Command {
    wrapped(command, script, "sh")
}

/// The attack, under a daemon of each user, both at once.
fn in_containers(attack: impl Fn(&mut Daemon) + Sync) {
    in_containers_with(|config| config, attack);
}

/// The same with a configuration for it, made when the home has its owner.
fn in_containers_with(
    configured: impl Fn(Config) -> Config + Sync,
    attack: impl Fn(&mut Daemon) + Sync,
) {
    let (configured, attack) = (&configured, &attack);
    thread::scope(|scope| {
        for script in [AS_NOBODY, AS_ROOT] {
            scope.spawn(move || {
                let config = Config::new().set("retry.attempts", "1");
                if script == AS_NOBODY {
                    config.home.give_to(NOBODY);
                }
                let config = configured(config);
                let mut command = without_namespaces(&config.command(), script);
                attack(&mut Daemon::start_command(config, &mut command));
            });
        }
    });
}

fn ends(tenant: &Tenant, lang: &str, body: &str) -> (Value, String) {
    tenant.handler(lang, &json!({"lang": lang, "body": body}));
    let id = tenant.add_one(lang, "payload");
    (tenant.until_end(&id), tenant.log(&id))
}

#[test]
fn without_namespaces_every_language_runs() {
    in_containers(|daemon| {
        let missing = daemon.status()["layers_missing"].to_string();
        assert!(missing.contains("namespaces ("), "there are none here: {missing}");
        let tenant = daemon.tenant("a");
        for (lang, body) in [
            ("sh", "cat; echo x > own; cat own"),
            ("exec", "/bin/cat"),
            ("python", "print(payload); return 200"),
            ("node", "console.log(payload); return 200"),
            ("php", "echo $payload; return 200;"),
        ] {
            let (job, log) = ends(&tenant, lang, body);
            assert_eq!(job["state"], "finished", "{lang}: {log}");
            assert!(log.contains("payload"), "{lang}: {log}");
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn without_namespaces_the_other_layers_hold() {
    in_containers(|daemon| {
        let tenant = daemon.tenant("a");
        let (tcp, udp) = (TcpListener::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
        let port = tcp.as_ref().unwrap().local_addr().unwrap().port();
        let udp = udp.unwrap();
        udp.set_nonblocking(true).unwrap();
        let place = daemon.home().dir().join("socket");
        let _listening = UnixListener::bind(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        let body = format!(
            "import ctypes, os, resource, socket\n\
             c = ctypes.CDLL(None, use_errno=True)\n\
             def tries(name, act):\n  \
             try:\n    act(); print('{IN}', name)\n  except OSError as e: print(name, e)\n\
             def watch(path):\n  \
             made = c.inotify_add_watch(c.inotify_init(), path.encode(), 0x302)\n  \
             if made < 0: raise OSError(ctypes.get_errno(), 'watch')\n  \
             return made\n\
             d, home, pid = {data:?}, {home:?}, {pid}\n\
             tries('read', lambda: open(d + '/admin.key').read())\n\
             tries('list', lambda: os.listdir(d))\n\
             tries('write', lambda: open(home + '/x', 'w'))\n\
             tries('secret', lambda: open('/etc/shadow').read())\n\
             tries('memory', lambda: open(f'/proc/{{pid}}/mem').read(1))\n\
             tries('environment', lambda: open(f'/proc/{{pid}}/environ').read())\n\
             for port in ({port}, {door}):\n  \
             tries('tcp', lambda: socket.create_connection(('127.0.0.1', port), 2))\n\
             tries('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    \
             .sendto(b'x', ('127.0.0.1', {udp})))\n\
             tries('unix', lambda: socket.socket(socket.AF_UNIX).connect({place:?}))\n\
             tries('limit', lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))\n\
             tries('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n\
             tries('stop', lambda: os.kill(pid, 19))\n\
             tries('watch', lambda: watch(d))\n\
             tries('watch a file', lambda: watch(d + '/store.db'))\n\
             print('watches', watch('.') > 0)\n\
             return 200",
            data = daemon.home().data(),
            home = daemon.home().dir(),
            pid = daemon.pid(),
            door = daemon.address.port(),
            udp = udp.local_addr().unwrap().port(),
        );
        let (job, log) = ends(&tenant, "python", &body);
        assert_eq!(job["state"], "finished", "{log}");
        assert!(!log.contains(IN), "{log}");
        assert!(log.contains("watches True"), "the control: {log}");
        assert!(udp.recv(&mut [0]).is_err(), "nothing has arrived");
    });
}

#[test]
fn without_namespaces_a_process_that_leaves_its_session_ends_with_its_job() {
    in_containers(|daemon| {
        let word = word(70_000, daemon.pid());
        // Not a word of the one that looks for it.
        let (first, rest) = word.split_at(1);
        let body = format!(
            "(setsid sleep {word} &)
             until cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' '\\n' |
               grep -qx '[{first}]{rest}'; do :; done
             echo seen"
        );
        let (_, log) = ends(&daemon.tenant("a"), "sh", &body);
        assert!(log.contains("seen"), "the control: {log}");
        until("what it left is gone", || runs(&word), |runs| !runs);
    });
}

#[test]
fn b5_without_namespaces_processes_that_hide_end_with_a_daemon_that_is_killed() {
    in_containers(hide_when_the_daemon_is_killed);
}

/// Handlers of all tenants are the daemon's own user there.
#[test]
fn b18_without_namespaces_limits_and_priority_of_others_are_out_of_reach() {
    in_containers(|daemon| {
        let word = word(50_000, daemon.pid());
        let (victim, attacker) = (daemon.tenant("b"), daemon.tenant("a"));
        victim.sh("sleeper", &format!("exec sleep {word}"));
        let id = victim.add_one("sleeper", "x");
        let found = || with_argument(&word);
        let sleeper = until("the victim runs", found, |found| found.len() == 1)[0];
        let before = standing(sleeper);
        let own = "tries('own', lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))";
        let body = format!(
            "import os, resource\n{}{own}\nprint('tried all')\nreturn 200",
            disturbs(sleeper)
        );
        let (_, log) = ends(&attacker, "python", &body);
        assert_eq!(log.matches("refused ").count(), DISTURBS, "{log}");
        assert!(log.contains("done own\ntried all"), "the control: {log}");
        assert_eq!(standing(sleeper), before);
        assert_eq!(victim.job(&id)["state"], "running");
        victim.post(&format!("jobs/{id}/cancel")).expect(200);
    });
}

#[test]
fn without_namespaces_a_daemon_that_requires_isolation_refuses_to_start() {
    for script in [AS_NOBODY, AS_ROOT] {
        let start = |level: &str| {
            let config = Config::new().set("isolation.level", level);
            config.home.give_to(if script == AS_NOBODY { NOBODY } else { 0 });
            let mut command = without_namespaces(&config.command(), script);
            Daemon::try_start_command(config, &mut command)
        };
        let why = start("\"required\"").err().unwrap();
        let sentence = "isolation.level is required, and a layer is missing: namespaces (";
        let help = "allow unprivileged user namespaces";
        assert!(why.contains(sentence) && why.contains(help), "{why}");
        assert!(start("\"auto\"").is_ok(), "the control");
    }
}

/// The doctor names what is missing, and what works in spite of it.
#[test]
fn without_namespaces_the_doctor_names_what_is_missing() {
    let mut command = windlass();
    command.args(["doctor", "--json"]).current_dir("/");
    for script in [AS_NOBODY, AS_ROOT] {
        let finished = run(&mut without_namespaces(&command, script), b"");
        assert_eq!(finished.code, Some(1), "{finished:?}");
        let told: Value = serde_json::from_str(&finished.stdout).unwrap();
        let missing: Vec<&Value> = told["layers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|layer| layer["standing"] == "not in force")
            .collect();
        let names: Vec<&str> = missing.iter().filter_map(|layer| layer["layer"].as_str()).collect();
        assert_eq!(names, ["namespaces", "user", "scratch space"], "{missing:?}");
        for layer in [missing[0], missing[2]] {
            let help = layer["detail"].as_str().unwrap();
            assert!(help.contains("allow unprivileged user namespaces"), "{help}");
        }
    }
}
