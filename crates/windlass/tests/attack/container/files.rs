//! Files of others, and files of its own, without namespaces: handlers are the daemon's own user.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, XattrFlags, getxattr, ioctl_getflags, setxattr};

use super::{ends, in_containers, in_containers_with};
use crate::harness::Config;
use crate::links::{plants_among_the_payloads, swaps_while_the_daemon_removes};
use crate::users::IN;

/// Later than the attack would set it.
#[cfg(target_arch = "x86_64")]
const LONG_AGO: i64 = 1_500_000_000;

/// Handlers are the daemon's own user there, and Landlock does not cover these changes.
#[cfg(target_arch = "x86_64")]
#[test]
fn b7_without_namespaces_files_outside_keep_their_mode_owner_and_time() {
    in_containers(|daemon| {
        let data = daemon.home().data();
        let state = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.mode(), meta.uid(), meta.gid(), meta.atime() > LONG_AGO)
        };
        let all = [data.clone(), data.join("store.db"), data.join("admin.key")];
        let before: Vec<_> = all.iter().map(|path| state(path)).collect();
        let tenant = daemon.tenant("a");
        let body = format!(
            "ln -s {0}/admin.key link; echo made > own
             for file in {0} {0}/store.db {0}/admin.key link ../../../../store.db; do
               chmod 4777 $file && echo {IN} chmod $file; chmod 777 $file && echo {IN} chmod $file
               chown $(id -u):$(id -g) $file && echo {IN} chown $file
               touch -d 2001-01-01 -a $file && echo {IN} touch $file; done
             cat own",
            data.display()
        );
        let (_, log) = ends(&tenant, "sh", &body);
        assert!(log.contains("made") && !log.contains(IN), "{log}");
        let calls = format!(
            "import ctypes, os\n\
             c = ctypes.CDLL(None, use_errno=True)\n\
             key, home = b'{0}/admin.key', os.open('{0}', os.O_PATH)\n\
             fd = os.open(key, os.O_PATH)\n\
             shown = os.open('/usr/bin/env', os.O_RDONLY)\n\
             for words in ((91, shown, os.stat(shown).st_mode), (90, key, 0o777),\n  \
             (268, -100, key, 0o777), (268, home, b'admin.key', 0o777),\n  \
             (452, fd, b'', 0o777, 0x1000),\n  \
             (452, -100, key, 0o777, 0), (91, fd, 0o777),\n  \
             (452, home, b'admin.key', 0o777, 0x100), (132, key, 0), (235, key, 0),\n  \
             (261, -100, key, 0), (280, -100, key, 0, 0), (280, fd, b'', 0, 0x1000),\n  \
             (280, fd, 0, 0, 0), (188, key, b'user.x', b'y', 1, 0),\n  \
             (189, key, b'user.x', b'y', 1, 0), (92, key, os.getuid(), 0),\n  \
             (94, key, os.getuid(), 0), (260, fd, b'', os.getuid(), 0, 0x1000),\n  \
             (469, -100, key, 0, 0, 0)):\n    \
             said = '{IN}' if c.syscall(*words) >= 0 else 'refused'\n    \
             print(said, words, ctypes.get_errno())\n\
             return 200",
            data.display()
        );
        let (_, log) = ends(&tenant, "python", &calls);
        assert_eq!(log.matches("refused ").count(), 20, "{log}");
        let after: Vec<_> = all.iter().map(|path| state(path)).collect();
        assert_eq!(after, before);
        let own = "set -e; mkdir d; echo x > d/f; chmod 640 d/f; (cd d; chmod u+x f)
                   touch -d 2001-02-03 d/f
                   cp -p d/f copy; stat -c '%a %y' d/f copy; chmod -R 700 d; touch d/f
                   mktemp";
        let (job, log) = ends(&tenant, "sh", own);
        assert_eq!(job["state"], "finished", "{log}");
        assert_eq!(log.matches("740 2001-02-03 ").count(), 2, "{log}");
        let own = "import os\nopen('f', 'w').close()\nd = os.open('.', 0)\n\
                   os.chmod('f', 0o640, dir_fd=d)\nos.utime('f', (1, 2))\n\
                   print(os.stat('f').st_mtime, oct(os.stat('f').st_mode))\n\
                   os.fchmod(os.open('f', 0), 0o600)\nprint(oct(os.stat('f').st_mode))\n\
                   return 200";
        let (_, log) = ends(&tenant, "python", own);
        assert!(log.contains("2.0 0o100640") && log.contains("0o100600"), "{log}");
    });
}

/// A directory of the handlers' user, with a file, that handlers may read.
fn shown(config: &Config) -> PathBuf {
    config.home.dir().join("shown")
}

/// What handlers could change of these with a descriptor.
fn marks(path: &Path) -> (u32, i64, [bool; 2], IFlags) {
    let (meta, flags) = (fs::metadata(path).unwrap(), ioctl_getflags(File::open(path).unwrap()));
    let has = |name: &str| getxattr(path, name, &mut [0_u8; 8]).is_ok();
    (meta.mode(), meta.mtime(), [has(KEPT), has("user.new")], flags.unwrap())
}

/// An attribute that these have.
const KEPT: &str = "user.kept";

/// Changes of what is open for reading alone, which Landlock does not cover either.
#[test]
fn b7_without_namespaces_what_is_open_for_reading_is_not_changed() {
    let show = |config: Config| {
        let (dir, owner) = (shown(&config), fs::metadata(config.home.dir()).unwrap());
        fs::create_dir(&dir).unwrap();
        fs::copy("/bin/true", dir.join("file")).unwrap();
        for path in [&dir, &dir.join("file")] {
            chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o6755)).unwrap();
            setxattr(path, KEPT, b"x", XattrFlags::empty()).unwrap();
        }
        config.set("isolation.read", &format!("[{dir:?}]"))
    };
    in_containers_with(show, |daemon| {
        let dir = shown(&daemon.config);
        let all = [dir.clone(), dir.join("file")];
        let before = all.clone().map(|path| marks(&path));
        let changes = format!(
            "import fcntl, os, struct\n\
             def changes(path):\n  \
             fd = os.open(path, os.O_RDONLY)\n  \
             request = lambda *words: fcntl.ioctl(fd, *words)\n  \
             for name, act in (('mode', lambda: os.fchmod(fd, 0o700)),\n    \
             ('times', lambda: os.utime(fd, (1, 1))),\n    \
             ('owner', lambda: os.fchown(fd, -1, -1)),\n    \
             ('attribute', lambda: os.setxattr(fd, 'user.new', b'x')),\n    \
             ('no attribute', lambda: os.removexattr(fd, '{KEPT}')),\n    \
             ('flags', lambda: request(0x40086602, struct.pack('q', 0x40))),\n    \
             ('more flags', lambda: request(0x401c5820, struct.pack('I24x', 0x80))),\n    \
             ('version', lambda: request(0x40087602, struct.pack('q', 7)))):\n    \
             try: act(); print('done', name)\n    \
             except OSError as e: print('refused', name, e)\n"
        );
        let body = format!("{changes}for path in {all:?}: changes(path)\nreturn 200");
        let tenant = daemon.tenant("a");
        let (_, log) = ends(&tenant, "python", &body);
        assert_eq!(log.matches("refused ").count(), 16, "{log}");
        assert_eq!(all.map(|path| marks(&path)), before);
        let own = format!(
            "{changes}own = os.open('own', os.O_CREAT | os.O_RDONLY)\n\
             os.setxattr(own, '{KEPT}', b'x')\n\
             changes('own')\nprint(os.stat('own').st_mtime, os.listxattr('own'))\nreturn 200"
        );
        let (_, log) = ends(&tenant, "python", &own);
        assert_eq!(log.matches("done ").count(), 5, "{log}");
        assert!(log.contains("1.0 ['user.new']"), "{log}");
    });
}

/// Their real names are others than those that the daemon was given.
#[test]
fn without_namespaces_handlers_use_their_own_sockets_below_a_linked_data_directory() {
    let link = |config: Config| {
        let (real, owner) =
            (config.home.dir().join("real"), fs::metadata(config.home.dir()).unwrap());
        fs::create_dir(&real).unwrap();
        chown(&real, Some(owner.uid()), Some(owner.gid())).unwrap();
        symlink(&real, config.home.data()).unwrap();
        config
    };
    in_containers_with(link, |daemon| {
        let body = "import os, socket\n\
                    server = socket.socket(socket.AF_UNIX)\nserver.bind('own'); server.listen()\n\
                    socket.socket(socket.AF_UNIX).connect('own')\n\
                    os.chmod('own', 0o700)\nprint('connected')\nreturn 200";
        let (_, log) = ends(&daemon.tenant("a"), "python", body);
        assert!(log.contains("connected"), "{log}");
    });
}

#[test]
fn b1_b2_without_namespaces_links_and_pipes_lead_the_daemon_nowhere() {
    in_containers(|daemon| {
        plants_among_the_payloads(daemon);
        swaps_while_the_daemon_removes(daemon, 5);
    });
}
