//! Two tenants that want to pass something on to each other, or one that looks for what another has
//! left: nothing of one job is there for another tenant's.

use std::process::Command;

use serde_json::json;

use crate::harness::{run, until};
use crate::users::{IN, TRIED, as_root_and_as_nobody, fails};

/// Leaves a word wherever a process can, and says where it could. Named queues are refused to every
/// handler; the kernel can make one although it does not let its maker have it.
const LEAVE: &str = r#"
import ctypes, os, socket
c = ctypes.CDLL(None, use_errno=True)
c.shmat.restype = ctypes.c_void_p
def leaves(name, act):
  try:
    act(); print('left in', name)
  except OSError as e: print(name, e)
def refused(result):
  if result < 0: raise OSError(ctypes.get_errno(), 'refused')
  return result
def shared():
  n = refused(c.shmget(4711, 4096, 0o1666))
  ctypes.memmove(c.shmat(n, None, 0), b'word', 5)
def queue():
  n = refused(c.msgget(4711, 0o1666))
  refused(c.msgsnd(n, ctypes.c_char_p(b'\1\0\0\0\0\0\0\0word'), 4, 0))
leaves('shared memory', shared)
leaves('message queue', queue)
leaves('semaphore', lambda: refused(c.semget(4711, 1, 0o1666)))
leaves('named queue', lambda: refused(c.syscall(240, b'windlass-word', 0o102, 0o666, 0)))
for dir in ('/tmp', '/dev/shm', '.', os.environ['HOME']):
  leaves('file in ' + dir, lambda: open(dir + '/word', 'w').write('word'))
s = socket.socket(socket.AF_UNIX)
leaves('socket', lambda: (s.bind('\0windlass-word'), s.listen()))
leaves('keyring', lambda: refused(c.syscall(248, b'user', b'word', b'word', 4, -4)))
"#;

/// Looks for it in all of these.
const LOOK: &str = r#"
import ctypes, os, socket
c = ctypes.CDLL(None, use_errno=True)
def found(name, number):
  if number >= 0: print('GOT IN', name)
found('shared memory', c.shmget(4711, 0, 0))
found('message queue', c.msgget(4711, 0))
found('semaphore', c.semget(4711, 0, 0))
found('named queue', c.syscall(240, b'windlass-word', 2, 0, 0))
found('keyring', c.syscall(249, b'user', b'word', 0, 0))
for dir in ('/tmp', '/dev/shm', '.', os.environ['HOME']):
  if os.path.exists(dir + '/word'): print('GOT IN file in', dir)
l = socket.socket(socket.AF_UNIX)
try:
  l.connect('\0windlass-word')
  print('GOT IN socket')
except OSError: pass
print('tried all', flush=True)
"#;

/// Ways that are open to every handler, but lead nowhere outside of it.
const OPEN: [&str; 4] = ["message queue", "semaphore", "file in /tmp", "socket"];

#[test]
fn b13_b18_nothing_that_a_tenant_leaves_is_there_for_another() {
    as_root_and_as_nobody(|daemon| {
        let (one, other) = (daemon.tenant("a"), daemon.tenant("b"));
        // It looks for everything itself, and stays while the other one looks.
        let stay = format!("{LEAVE}{LOOK}import time\ntime.sleep(1000)\n");
        one.handler("t", &json!({"lang": "python", "body": stay}));
        let staying = one.add_one("t", "x");
        let left = until("it is left", || one.log(&staying), |log| log.contains(TRIED));
        for place in OPEN {
            assert!(left.contains(&format!("{IN} {place}\n")), "the control, {place}: {left}");
        }
        for refused in ["named queue", "keyring"] {
            assert!(!left.contains(&format!("left in {refused}")), "{left}");
        }
        for tenant in [&other, &one] {
            fails(tenant, "python", LOOK);
        }
        // Nor is it there for the machine.
        let told = run(Command::new("python3").args(["-c", LOOK]).current_dir("/"), b"").ok();
        assert!(told.ends_with(&format!("{TRIED}\n")) && !told.contains(IN), "{told}");
        one.post(&format!("jobs/{staying}/cancel")).expect(200);
    });
}
