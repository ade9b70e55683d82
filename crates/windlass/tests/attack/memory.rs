//! Code of a tenant tries to get more memory than its handler has, in every way that the limit of
//! one process does not see; under a daemon of root, which has control groups here, and under one
//! of nobody, which has none.

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant};
use crate::users::{IN, as_root_and_as_nobody, strict};

/// Of the handlers here. Scratch space is memory, too, and counts on its own.
const MEMORY: &str = "48MB";
const SCRATCH: &str = "8MB";
/// Far more than both, and less than half of either, in MB.
const TOO_MUCH: u32 = 160;
const ENOUGH: u32 = 16;

/// Ways to fill `mb` megabytes; each returns what has to be kept.
const WAYS: [(&str, &str); 7] = [
    (
        "a file in memory",
        "f = os.memfd_create('x')\nfor _ in range(mb): os.write(f, bytes(1 << 20))\nkept = f",
    ),
    (
        "many files in memory",
        "kept = [os.memfd_create(str(n)) for n in range(mb)]\n\
         for f in kept: os.write(f, bytes(1 << 20))",
    ),
    (
        "a shared map",
        "kept = mmap.mmap(-1, mb << 20)\nfor n in range(mb): kept[n << 20:(n + 1) << 20] = \
         bytes(1 << 20)",
    ),
    (
        "a shared map of zeros",
        "z = os.open('/dev/zero', os.O_RDWR)\nkept = mmap.mmap(z, mb << 20)\n\
         for n in range(mb): kept[n << 20:(n + 1) << 20] = bytes(1 << 20)",
    ),
    (
        "a segment of System V",
        "c = ctypes.CDLL(None, use_errno=True); c.shmat.restype = ctypes.c_void_p\n\
         kept = c.shmget(0, mb << 20, 0o1600)\nif kept < 0: raise OSError('refused')\n\
         at = c.shmat(kept, None, 0)\nctypes.memset(at, 1, mb << 20); c.shmdt(ctypes.c_void_p(at))",
    ),
    (
        "many processes",
        "kept = []\nfor n in range(mb // 8):\n  r, w = os.pipe()\n  if os.fork() == 0:\n    \
         own = b'x' * (8 << 20); os.write(w, b'1'); time.sleep(100); os._exit(len(own))\n  \
         os.close(w); kept.append(r)\n\
         for r in kept:\n  if os.read(r, 1) != b'1': raise OSError('refused')",
    ),
    (
        // A map that is only read has no pages of its own. 0x4000 does not reserve any.
        "page tables",
        "kept = mmap.mmap(-1, mb << 29, 0x4000 | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 1)\n\
         kept.madvise(mmap.MADV_NOHUGEPAGE)\nfor n in range(mb << 8): kept[n << 21]",
    ),
];

/// The program: says that it got in when all of it is there at once.
fn body(way: &str, mb: u32) -> String {
    format!(
        "import ctypes, mmap, os, time\nmb = {mb}\n\
         try:\n{}\n  time.sleep(0.7)\n  print('{IN}')\nexcept OSError as e: print('refused', e)\n",
        way.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    )
}

fn run(tenant: &Tenant, lang: &str, body: &str) -> (Value, String) {
    let options = json!({"memory": MEMORY, "scratch": SCRATCH});
    tenant.handler("hog", &json!({"lang": lang, "body": body, "options": options}));
    let id = tenant.add_one("hog", "x");
    let job = tenant.until_end(&id);
    (job, tenant.log(&id))
}

#[test]
fn b11_memory_that_no_process_shows_is_bounded() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let in_both = |way: &str, mb: u32| {
            let body = body(way, mb);
            // That of the system: a wrapper of a version manager cannot run in a cell.
            let path = "PATH=/usr/local/bin:/usr/bin:/bin";
            let shell = format!("{path}\nexec python3 -c \"$(cat <<'END'\n{body}END\n)\"");
            [("python", body), ("sh", shell)]
        };
        for (name, way) in WAYS {
            for (lang, body) in in_both(way, TOO_MUCH) {
                let (job, log) = run(&tenant, lang, &body);
                assert!(!log.contains(IN), "{name}, {lang}: {log}");
                let over = log.contains("used up their memory (options.memory)");
                assert!(over || log.contains("refused"), "{name}, {lang}: {log}");
                assert_eq!(job["state"] == "failed", over, "{name}, {lang}: {job}");
            }
        }
        // The control: what a process or a file can have is there, and so is the next job.
        for (name, way) in [WAYS[5], ("own memory", "kept = b'x' * (mb << 20)")] {
            for (lang, body) in in_both(way, ENOUGH) {
                let (_, log) = run(&tenant, lang, &body);
                assert!(log.contains(IN), "{name}, {lang}: {log}");
            }
        }
        let shared = "f = open('/dev/shm/x', 'wb+'); f.truncate(mb << 18)\n\
                      kept = mmap.mmap(f.fileno(), mb << 18)\nkept[:] = bytes(mb << 18)";
        let (_, log) = run(&tenant, "python", &body(shared, ENOUGH));
        assert!(log.contains(IN), "shared memory with a file: {log}");
    });
}

/// Where the kernel bounds memory, ordinary ways to share it need not be refused.
#[test]
fn with_control_groups_memory_may_be_shared_without_a_file() {
    let daemon = Daemon::start(strict(Config::new()));
    let tenant = daemon.tenant("a");
    for (name, way) in WAYS {
        let (_, log) = run(&tenant, "python", &body(way, ENOUGH));
        assert!(log.contains(IN), "{name}: {log}");
    }
}

#[test]
fn b11_threads_and_processes_together_are_bounded() {
    let hog = "import threading\nthreading.stack_size(65536)\n\
               stop = threading.Event()\nmade = []\n\
               try:\n  for n in range(int(payload)):\n    \
               t = threading.Thread(target=stop.wait)\n    t.start()\n    made.append(t)\n\
               except RuntimeError: pass\n\
               stop.set()\nfor t in made: t.join()\nprint('made', len(made), '.')";
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let options = json!({"processes": 8});
        tenant.handler("threads", &json!({"lang": "python", "body": hog, "options": options}));
        let made = |wanted: &str| {
            let id = tenant.add_one("threads", wanted);
            tenant.until_end(&id);
            let log = tenant.log(&id);
            let number = log.split("made ").nth(1).and_then(|rest| rest.split(' ').next());
            number.unwrap_or_else(|| panic!("{log}")).parse::<u32>().unwrap()
        };
        // Sixteen for each process that it may have, and those that look after the cell.
        assert!(made("1000") < 8 * 16 + 128);
        assert_eq!(made("50"), 50, "the control");
        // Nor all numbers of processes that the machine has, however many its handler asks for.
        let most = json!({"processes": 4096, "memory": "4GB"});
        tenant.handler("threads", &json!({"lang": "python", "body": hog, "options": most}));
        assert!(made("5000") < 4096 + 128);
    });
}
