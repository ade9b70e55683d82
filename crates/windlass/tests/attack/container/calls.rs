//! System calls that lead out, and what all processes of a machine share, without namespaces.

use std::process::Command;

use super::{ends, in_containers};
use crate::harness::run;

/// Calls that would succeed without the filter, by their numbers on this kind of machine.
const CALLS: &str = "import ctypes, errno, os\n\
    c = ctypes.CDLL(None, use_errno=True)\n\
    c.syscall.restype = ctypes.c_long\n\
    buffer = ctypes.create_string_buffer(4096)\n\
    counter = ctypes.create_string_buffer(bytes([1, 0, 0, 0, 112]) + bytes(107))\n\
    piece = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)\n\
    for name, *words in (('user namespace', 272, 0x10000000), ('trace', 101, 0, 0, 0, 0),\n  \
    ('ring', 425, 1, buffer), ('keyring', 250, 0, -3, 1),\n  \
    ('key', 248, b'user', b'x', b'y', 1, -2),\n  \
    ('counter', 298, counter, 0, -1, -1, 0), ('faults', 323, 1),\n  \
    ('memory', 310, os.getpid(), piece, 1, piece, 1, 0),\n  \
    ('handle', 303, -100, b'/', buffer, buffer, 0),\n  \
    ('compare', 312, os.getpid(), os.getpid(), 0, 0, 0)):\n    \
    ctypes.set_errno(0)\n    \
    made = c.syscall(*words)\n    \
    print(name, 'made' if made >= 0 else errno.errorcode[ctypes.get_errno()])\n";

#[test]
fn without_namespaces_system_calls_that_lead_out_are_refused() {
    in_containers(|daemon| {
        let (_, log) = ends(&daemon.tenant("a"), "python", &format!("{CALLS}return 200"));
        assert_eq!(log.matches(" EPERM\n").count(), 10, "{log}");
    });
}

/// Memory, a semaphore and a message queue of the machine, which everybody may use.
struct Shared {
    /// As `ipcrm` takes them: the letter of the kind, and a number.
    made: Vec<(&'static str, String)>,
}

impl Shared {
    fn make() -> Shared {
        let make = |kind: &'static str, words: &[&str]| {
            let finished = run(Command::new("ipcmk").args(words).args(["-p", "0666"]), b"");
            let number = finished.stdout.trim().rsplit(' ').next().unwrap().to_owned();
            assert!(number.parse::<u32>().is_ok(), "{finished:?}");
            (kind, number)
        };
        let made = vec![make("-m", &["-M", "4096"]), make("-s", &["-S", "1"]), make("-q", &["-Q"])];
        Shared { made }
    }

    /// Uses them, and queues and memory with a name, and says what could be done.
    fn uses(&self, name: &str) -> String {
        let [memory, semaphore, queue] = [0, 1, 2].map(|kind: usize| &self.made[kind].1);
        format!(
            "import ctypes, errno, os\n\
             c = ctypes.CDLL(None, use_errno=True)\n\
             c.syscall.restype = ctypes.c_long\n\
             up, state = bytes([0, 0, 1, 0, 0, 0]), ctypes.create_string_buffer(4096)\n\
             ends = {{'make memory': 31, 'make a semaphore': 66, 'make a queue': 71}}\n\
             word = ctypes.create_string_buffer(bytes([1, 0, 0, 0, 0, 0, 0, 0]) + b'word')\n\
             for name, *words in (('make memory', 29, 0, 4096, 0o1600),\n  \
             ('map', 30, {memory}, 0, 0),\n  \
             ('make a semaphore', 64, 0, 1, 0o1600), ('raise', 65, {semaphore}, up, 1),\n  \
             ('raise in time', 220, {semaphore}, up, 1, 0), ('set', 66, {semaphore}, 0, 16, 1),\n  \
             ('make a queue', 68, 0, 0o1600), ('send', 69, {queue}, word, 4, 0o4000),\n  \
             ('receive', 70, {queue}, word, 4, 0, 0o4000), ('look', 71, {queue}, 2, state),\n  \
             ('named queue', 240, b'{name}', 0o102, 0o600, 0),\n  \
             ('remove it', 241, b'{name}')):\n    \
             ctypes.set_errno(0)\n    \
             made = c.syscall(*words)\n    \
             print(name, 'made' if made >= 0 else errno.errorcode[ctypes.get_errno()])\n    \
             if made >= 0 and name in ends: c.syscall(ends[name], made, 0, 0)\n\
             place = '/dev/shm/{name}'\n\
             try: open(place, 'w'); os.unlink(place); print('file', 'made')\n\
             except OSError as e: print('file', errno.errorcode[e.errno])\n"
        )
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for (kind, number) in &self.made {
            // Whatever comes of it: the test may be failing already.
            drop(Command::new("ipcrm").args([kind, number.as_str()]).status());
        }
    }
}

/// They are the machine's own there.
#[test]
fn b13_b18_without_namespaces_memory_queues_and_semaphores_of_the_machine_are_out_of_reach() {
    in_containers(|daemon| {
        let shared = Shared::make();
        let name = format!("windlass-{}", daemon.pid());
        let uses = shared.uses(&name);
        let (_, log) = ends(&daemon.tenant("a"), "python", &format!("{uses}return 200"));
        // Without control groups, new memory is refused in another way.
        let refused = log.matches(" EPERM\n").count() + log.matches(" ENOSYS\n").count();
        assert_eq!(refused, 12, "{log}");
        assert!(log.contains("file EACCES"), "{log}");
        let control = run(Command::new("python3").args(["-c", &uses]), b"");
        assert_eq!(control.stdout.matches(" made\n").count(), 13, "{control:?}");
    });
}
