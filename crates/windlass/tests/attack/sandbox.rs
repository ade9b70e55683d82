//! Code of a tenant tries to leave its sandbox, under a daemon of root and under one of nobody.
//! What each attack did before there was a sandbox is in its name; what must hold is asserted
//! outside.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use serde_json::json;

use crate::harness::{Config, Daemon};
use crate::users::{IN, as_root_and_as_nobody, fails, strict, works};

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
            let log = fails(&tenant, "python", &python);
            assert!(log.contains("refused: connection to 127.0.0.1"), "{log}");
            let node = format!(
                "try {{ await fetch('http://127.0.0.1:{port}/'); console.log('{IN}') }} catch {{}}"
            );
            fails(&tenant, "node", &node);
            let shell = format!("bash -c ': < /dev/tcp/127.0.0.1/{port}' && echo {IN}");
            fails(&tenant, "sh", &shell);
        }
    });
    let open = Daemon::start(strict(Config::new()).loopback());
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
        fails(&tenant, "python", &body);
        let own = "import socket\nl = socket.socket(socket.AF_UNIX)\nl.bind('own')\nl.listen()\n\
                   c = socket.socket(socket.AF_UNIX)\nc.connect('own')\nc.send(b'x')\n\
                   assert l.accept()[0].recv(1) == b'x'\nreturn 200";
        works(&tenant, "python", own);
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
            "import os\n\
             def tries(name, act):\n  \
             try:\n    act(); print('{IN}', name)\n  \
             except OSError as e: print('refused', name, e)\n\
             own = ({file:?}, {data:?}, {data:?} + '/store.db')\n\
             for f in own: tries('read', lambda: os.open(f, os.O_RDONLY))\n\
             for f in own:\n  \
             tries('write', lambda: os.open(f, os.O_WRONLY))\n  \
             tries('mode', lambda: os.chmod(f, 0o4777))\n  \
             tries('owner', lambda: os.chown(f, os.getuid(), -1))\n  \
             tries('time', lambda: os.utime(f, (1, 2)))\n  \
             tries('attribute', lambda: os.setxattr(f, 'user.x', b'y'))\n\
             f = '/usr/bin/env'\n\
             tries('same mode', lambda: os.chmod(f, os.stat(f).st_mode))\n\
             tries('same owner', lambda: os.chown(f, os.stat(f).st_uid, -1))\n\
             tries('same time', lambda: os.utime(f, ns=(os.stat(f).st_mtime_ns,) * 2))\n\
             print('tried all')\nreturn 200"
        );
        let log = fails(&daemon.tenant("a"), "python", &body);
        assert_eq!(log.matches("refused ").count(), 3 + 3 * 5 + 3, "{log}");
        assert!(log.contains("tried all"), "{log}");
        assert_eq!((state(&file), fs::metadata(&data).unwrap().mode()), (own, mode));
        let own = "import os\nopen('own', 'w').write('x')\nos.chmod('own', 0o700)\n\
                   os.chown('own', os.getuid(), -1)\nos.utime('own', (1, 2))\n\
                   os.setxattr('own', 'user.x', b'y')\nreturn 200";
        works(&daemon.tenant("a"), "python", own);
    });
}

#[test]
fn b11_a_full_scratch_space_is_the_jobs_own() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let fill = "for dir in . /tmp /dev/shm; do
                      head -c 300000000 /dev/zero > $dir/fill && echo GOT IN; done; true";
        fails(&tenant, "sh", fill);
        works(&tenant, "sh", "head -c 100000000 /dev/zero > fill");
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
