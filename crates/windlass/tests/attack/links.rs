//! Links and pipes that a job puts where the daemon writes or removes files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use serde_json::json;

use crate::harness::{Daemon, until};
use crate::users::{as_both_users, strict};

/// Plants something under every name that the file of the next payload could have, in every place
/// that the handler can name, and goes on with that while the next job begins.
const PLANTER: &str = r#"
import os, threading, time
if len(payload) > 1000: return {'data': len(payload)}
if payload == 'more': return 200
way, place = payload.split()
while not os.path.exists(place + '/next'): time.sleep(0.01)
next = open(place + '/next').read()
home = os.environ['WINDLASS_DIR']
dirs = ['.', '..', '/job', '/job/in', '/job/work', '/tmp', home, home + '/in', home + '/..',
        os.environ['HOME'], os.environ.get('TMPDIR', '/tmp')]
names = ['payload', 'payload-' + next, 'payload-' + next + '.part', '.payload-' + next, next]
def plant(path):
  try:
    if os.path.lexists(path) and not os.path.islink(path): os.unlink(path)
    if way == 'link': os.symlink(place + '/../victim', path)
    else: os.mkfifo(path)
    return True
  except OSError: return False
planted = sum(plant(dir + '/' + name) for dir in dirs for name in names)
def again():
  while True:
    for dir in dirs:
      try: found = os.listdir(dir)
      except OSError: continue
      for name in found:
        if name.startswith('payload-'): plant(dir + '/' + name)
    time.sleep(0.001)
threading.Thread(target=again, daemon=True).start()
print('planted', planted)
return 200
"#;

/// Runs the planter, and behind it a job of the same context with a large payload.
pub(crate) fn plants_among_the_payloads(daemon: &Daemon) {
    let tenant = daemon.tenant("a");
    let victim = daemon.home().dir().join("victim");
    fs::write(&victim, "as it was").unwrap();
    // Handlers may not write to it, but the daemon may.
    let owner = fs::metadata(daemon.home().data()).unwrap();
    chown(&victim, Some(owner.uid()), None).unwrap();
    for way in ["link", "pipe"] {
        let options = json!({"batch": 1, "contexts": 1});
        tenant.handler(way, &json!({"lang": "python", "body": PLANTER, "options": options}));
        let place = daemon.home().files();
        let first = tenant.add_one(way, &format!("{way} {}", place.display()));
        let second = tenant.add_one(way, &"x".repeat(3 << 20));
        daemon.home().write("next", &second);
        let planted = tenant.until_end(&first);
        let log = tenant.log(&first);
        assert_eq!(planted["state"], "finished", "{log}");
        assert!(log.contains("planted ") && !log.contains("planted 0"), "{log}");
        let large = tenant.until_end(&second);
        assert_eq!((&large["state"], &large["result"]), (&json!("finished"), &json!(3 << 20)));
        let more = tenant.add_one(way, "more");
        assert_eq!(tenant.until_end(&more)["state"], "finished", "its place is free again");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        fs::remove_file(daemon.home().path("next")).unwrap();
    }
}

#[test]
fn b1_links_and_pipes_among_the_payloads_mislead_and_stop_nobody() {
    as_both_users(|config| {
        // With few slots, one that hangs is missed; and while one hangs, the daemon does not stop.
        let mut daemon = Daemon::start(strict(config).one_slot().set("stop_grace", "\"1h\""));
        plants_among_the_payloads(&daemon);
        assert!(daemon.terminate().success());
    });
}

/// Swaps directories of a job with a link to the victim, each until it is gone, in the order in
/// which they are removed: as they are, and under the names that they get then. The link is
/// elsewhere, where the daemon does not remove it; one that it removes is made again. It is ready
/// once it has swapped them there and back.
const SWAPPER: &str = r#"
import ctypes, os, sys
home, victim, files, ready = sys.argv[1:]
swap, here, exchange = ctypes.CDLL(None).renameat2, -100, 2
work, link = home + '/work', files + '/link-%d' % os.getpid()
os.symlink(victim, link)
words = ctypes.c_char_p(link.encode())
names = [work + '/' + name for name in os.listdir(work)]
names += [home + '/.removed-%d' % n for n in reversed(range(2 * len(names)))]
names = [(name, ctypes.c_char_p(name.encode())) for name in names]
for there_and_back in range(2): assert swap(here, words, here, names[0][1], exchange) == 0
os.write(int(ready), b'1'); os.close(int(ready))
while os.path.exists(home):
  for path, name in names:
    while os.path.lexists(path):
      while swap(here, words, here, name, exchange) == 0: pass
      if not os.path.islink(link):
        os.rename(link, link + '-%d' % len(os.listdir(files)))
        os.symlink(victim, link)
"#;

/// Fills the working directory and leaves the swapper behind, which gives up everything by which it
/// could be known.
const LEAVES_SWAPPER: &str = r#"PATH=/usr/local/bin:/usr/bin:/bin
python3 - "$WINDLASS_DIR" VICTIM FILES <<'END'
import os, sys
for n in range(60): os.makedirs('d%d/e/f' % n)
r, w = os.pipe()
os.set_inheritable(w, True)
if os.fork() == 0:
  os.setsid()
  if os.fork(): os._exit(0)
  os.chdir('/')
  for fd in range(3): os.close(fd)
  for fd in range(3): os.open('/dev/null', os.O_RDWR)
  code = '''SWAPPER'''
  os.execve(sys.executable, ['python3', '-c', code, *sys.argv[1:], str(w)], {})
os.close(w)
assert os.read(r, 1) == b'1'
print('it swaps')
END"#;

/// The private directories of jobs.
fn private_dirs(daemon: &Daemon) -> Vec<PathBuf> {
    let all = fs::read_dir(daemon.home().data().join("scratch")).unwrap().flatten();
    let inside = all.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
    inside.map(|entry| entry.path()).filter(|path| path.join("work/d0").exists()).collect()
}

/// Runs jobs whose directories are removed while a process still changes them.
pub(crate) fn swaps_while_the_daemon_removes(daemon: &Daemon, rounds: usize) {
    let victim = daemon.home().dir().join("precious");
    fs::create_dir_all(victim.join("x")).unwrap();
    fs::write(victim.join("file"), "as it was").unwrap();
    let owner = fs::metadata(daemon.home().data()).unwrap();
    for path in [victim.clone(), victim.join("x"), victim.join("file")] {
        chown(&path, Some(owner.uid()), None).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    let tenant = daemon.tenant("a");
    let body = LEAVES_SWAPPER.replace("SWAPPER", SWAPPER);
    let body = body.replace("VICTIM", victim.to_str().unwrap());
    tenant.sh("swaps", &body.replace("FILES", daemon.home().files().to_str().unwrap()));
    tenant.sh("plain", "mkdir -p d0/e; true");
    for _ in 0..rounds {
        let id = tenant.add_one("swaps", "x");
        let job = tenant.until_end(&id);
        let log = tenant.log(&id);
        assert!(job["state"] == "finished" && log.contains("it swaps"), "{log}");
    }
    // What could not be removed at once is removed after a later job.
    let removed = || {
        tenant.until_end(&tenant.add_one("plain", "x"));
        private_dirs(daemon)
    };
    until("the directories are removed", removed, |left| left.is_empty());
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "as it was");
    for path in [victim.clone(), victim.join("x"), victim.join("file")] {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755, "{}", path.display());
    }
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 2, "nothing was moved in or out");
}

/// Without isolation, such a process is not found, and lives as long as the directory.
#[test]
fn b2_a_directory_that_is_swapped_while_it_is_removed_leads_nowhere() {
    as_both_users(|config| {
        let config = config.set("retry.attempts", "1").set("isolation.level", "\"off\"");
        swaps_while_the_daemon_removes(&Daemon::start(config), 25);
    });
}
