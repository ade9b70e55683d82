//! Code of a tenant tries to leave its sandbox, under a daemon of root and under one of nobody.
//! What each attack did before there was a sandbox is in its name; what must hold is asserted
//! outside.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Daemon, Peer};
use crate::users::{
    IN, TRIED, as_both_users, as_root_and_as_nobody, bare, fails, strict, tries, works,
};

/// Ways to connect to a port of this machine, in three languages.
fn connects(port: u16) -> [(&'static str, String); 3] {
    [
        (
            "python",
            format!(
                "import socket\n\
                 for host in ('127.0.0.1', '0.0.0.0', '::1', '::ffff:127.0.0.1'):\n  \
                 try:\n    socket.create_connection((host, {port}), 2)\n    print('{IN}', host)\n  \
                 except OSError as e: print('refused', host, e)\nprint('{TRIED}')"
            ),
        ),
        (
            "node",
            format!(
                "try {{ await fetch('http://127.0.0.1:{port}/'); console.log('{IN}') }}\n\
                 catch (e) {{ console.log('refused', e.cause) }}\nconsole.log('{TRIED}')"
            ),
        ),
        ("sh", format!("bash -c ': < /dev/tcp/127.0.0.1/{port}' && echo {IN}; echo '{TRIED}'")),
    ]
}

#[test]
fn b3_b18_a_handler_does_not_reach_the_doors_nor_other_servers_of_the_machine() {
    let server = || Peer::start(|_| (200, "text/plain", "hello".to_owned()));
    let port_of = |server: &Peer| server.url("").rsplit(':').next().unwrap().parse().unwrap();
    as_root_and_as_nobody(|daemon| {
        let (tenant, other) = (daemon.tenant("a"), server());
        for port in [daemon.address.port(), port_of(&other)] {
            for (lang, body) in connects(port) {
                let log = fails(&tenant, lang, &body);
                let refusal = format!("refused: connection to 127.0.0.1:{port} ");
                assert!(log.contains(&refusal), "{lang}: {log}");
            }
        }
        assert!(other.received().is_empty(), "nothing has arrived");
    });
    as_both_users(|config| {
        let (open, other) = (Daemon::start(strict(config).loopback()), server());
        for (lang, body) in connects(port_of(&other)) {
            let log = tries(&open.tenant("a"), lang, &body);
            assert!(log.contains(IN), "the control, {lang}: {log}");
        }
    });
}

#[test]
fn b4_unix_sockets_with_a_path_or_without_lead_nowhere_outside() {
    let word = format!("windlass-attack-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(&word).unwrap();
    let _abstract = UnixListener::bind_addr(&name).unwrap();
    let body = |path: &Path| {
        format!(
            "import socket\nfor name in ({path:?}, '\\0{word}'):\n  \
             s = socket.socket(socket.AF_UNIX)\n  \
             try:\n    s.connect(name)\n    print('{IN}', name)\n  \
             except OSError as e: print('refused', e)\nprint('{TRIED}')"
        )
    };
    let listen = |daemon: &Daemon| {
        let path = daemon.home().dir().join("socket");
        let listening = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        (listening, path)
    };
    as_root_and_as_nobody(|daemon| {
        let (_listening, path) = listen(daemon);
        let tenant = daemon.tenant("a");
        let log = fails(&tenant, "python", &body(&path));
        assert_eq!(log.matches("refused ").count(), 2, "{log}");
        let own = "import socket\nl = socket.socket(socket.AF_UNIX)\nl.bind('own')\nl.listen()\n\
                   c = socket.socket(socket.AF_UNIX)\nc.connect('own')\nc.send(b'x')\n\
                   assert l.accept()[0].recv(1) == b'x'\nreturn 200";
        works(&tenant, "python", own);
    });
    as_both_users(|config| {
        let open = Daemon::start(bare(config));
        let (_listening, path) = listen(&open);
        let log = tries(&open.tenant("a"), "python", &body(&path));
        assert_eq!(log.matches(IN).count(), 2, "the control: {log}");
    });
}

/// Reads and changes files and directories of others, and sets what `shown`, a file that handlers
/// may read, has already.
fn changes(outside: &[PathBuf; 3], shown: &Path) -> String {
    format!(
        "import os\n\
         def tries(name, act):\n  \
         try:\n    act(); print('{IN}', name)\n  \
         except OSError as e: print('refused', name, e)\n\
         own = {outside:?}\n\
         for f in own: tries('read', lambda: os.open(f, os.O_RDONLY))\n\
         for f in own:\n  \
         tries('write', lambda: os.open(f, os.O_WRONLY))\n  \
         tries('mode', lambda: os.chmod(f, 0o4777))\n  \
         tries('owner', lambda: os.chown(f, os.getuid(), -1))\n  \
         tries('time', lambda: os.utime(f, (1, 2)))\n  \
         tries('attribute', lambda: os.setxattr(f, 'user.x', b'y'))\n\
         f = {shown:?}\n\
         tries('same mode', lambda: os.chmod(f, os.stat(f).st_mode))\n\
         tries('same owner', lambda: os.chown(f, os.stat(f).st_uid, -1))\n\
         tries('same time', lambda: os.utime(f, ns=(os.stat(f).st_mtime_ns,) * 2))\n\
         print('{TRIED}')"
    )
}

const CHANGES: usize = 3 + 3 * 5 + 3;

#[test]
fn b7_b14_files_outside_keep_their_mode_owner_time_and_contents() {
    let files = |daemon: &Daemon| {
        let file = daemon.home().dir().join("of-the-operator");
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let data = daemon.home().data();
        [file, data.clone(), data.join("store.db")]
    };
    as_root_and_as_nobody(|daemon| {
        let [file, data, store] = files(daemon);
        let state = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.mode(), meta.uid(), meta.mtime(), meta.ctime_nsec(), meta.len())
        };
        let (own, mode) = (state(&file), fs::metadata(&data).unwrap().mode());
        let body = changes(&[file.clone(), data.clone(), store], Path::new("/usr/bin/env"));
        let log = fails(&daemon.tenant("a"), "python", &body);
        assert_eq!(log.matches("refused ").count(), CHANGES, "{log}");
        assert_eq!((state(&file), fs::metadata(&data).unwrap().mode()), (own, mode));
        let own = "import os\nopen('own', 'w').write('x')\nos.chmod('own', 0o700)\n\
                   os.chown('own', os.getuid(), -1)\nos.utime('own', (1, 2))\n\
                   os.setxattr('own', 'user.x', b'y')\nreturn 200";
        works(&daemon.tenant("a"), "python", own);
    });
    as_both_users(|config| {
        let open = Daemon::start(bare(config));
        let files = files(&open);
        let owner = Some(fs::metadata(&files[1]).unwrap().uid());
        chown(&files[0], owner, None).unwrap();
        let log = tries(&open.tenant("a"), "python", &changes(&files, &files[0]));
        // A directory cannot be opened for writing.
        assert_eq!(log.matches(IN).count(), CHANGES - 1, "the control: {log}");
    });
}

#[test]
fn b11_a_full_scratch_space_is_the_jobs_own() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let fill = format!(
            "for dir in . /tmp /dev/shm; do
               head -c 300000000 /dev/zero > $dir/fill && echo {IN}; done; echo '{TRIED}'"
        );
        let log = fails(&tenant, "sh", &fill);
        assert_eq!(log.matches("No space left on device").count(), 3, "{log}");
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
             mv {above} /tmp/moved && mkdir -p {files} && echo {IN} > {files}/f && echo put\n\
             true"
        );
        let tenant = daemon.tenant("a");
        tenant.handler("t", &json!({"lang": "sh", "body": body}));
        for _ in 0..3 {
            let id = tenant.add_one("t", "x");
            assert_eq!(tenant.until_end(&id)["state"], "finished");
            let log = tenant.log(&id);
            assert!(log.contains("as it was\nput\n") && !log.contains(IN), "{log}");
        }
    });
}
