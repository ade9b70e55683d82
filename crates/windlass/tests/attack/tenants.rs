//! Two tenants that want to pass something on to each other, or one that looks for what another has
//! left: nothing of one job is there for another tenant's.

use serde_json::json;

use crate::users::{IN, as_root_and_as_nobody};

/// Leaves a word wherever a process can, and says where it could.
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
for name, number in (('shared memory', c.shmget(4711, 0, 0)), ('message queue', c.msgget(4711, 0)),
                     ('semaphore', c.semget(4711, 0, 0)),
                     ('named queue', c.syscall(240, b'windlass-word', 2, 0, 0)),
                     ('keyring', c.syscall(249, b'user', b'word', 0, 0))):
  if number >= 0: print('GOT IN', name)
for dir in ('/tmp', '/dev/shm', '.', os.environ['HOME']):
  if os.path.exists(dir + '/word'): print('GOT IN', dir)
s = socket.socket(socket.AF_UNIX)
try:
  s.connect('\0windlass-word')
  print('GOT IN socket')
except OSError: pass
print('looked')
"#;

#[test]
fn b13_b18_nothing_that_a_tenant_leaves_is_there_for_another() {
    as_root_and_as_nobody(|daemon| {
        let (one, other) = (daemon.tenant("a"), daemon.tenant("b"));
        // It stays while the other one looks.
        let stay = format!("{LEAVE}import time\nprint('ready', flush=True)\ntime.sleep(1000)\n");
        one.handler("t", &json!({"lang": "python", "body": stay}));
        other.handler("t", &json!({"lang": "python", "body": LOOK}));
        one.handler("after", &json!({"lang": "python", "body": LOOK}));
        let staying = one.add_one("t", "x");
        let ready = || one.log(&staying);
        let left = crate::harness::until("it is left", ready, |log| log.contains("ready"));
        for place in ["message queue", "semaphore", "file in /tmp", "socket"] {
            assert!(left.contains(&format!("left in {place}")), "the control, {place}: {left}");
        }
        assert!(!left.contains("left in keyring"), "{left}");
        for (tenant, kind) in [(&other, "t"), (&one, "after")] {
            let id = tenant.add_one(kind, "x");
            tenant.until_end(&id);
            let log = tenant.log(&id);
            assert!(log.contains("looked") && !log.contains(IN), "{kind}: {log}");
        }
        one.post(&format!("jobs/{staying}/cancel")).expect(200);
    });
}
