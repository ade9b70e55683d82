//! Another program's hand on the store: takes SQLite's write lock and keeps it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::command::run;

const HOLD_LOCK: &str = "
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
store.execute('BEGIN EXCLUSIVE')
print('locked', flush=True)
sys.stdin.read()
store.execute('ROLLBACK')
";

/// While it lives, nobody else can write to the store.
pub(crate) struct StoreLock {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl StoreLock {
    pub(crate) fn take(store: &Path) -> StoreLock {
        let mut child = Command::new("python3")
            .args(["-c", HOLD_LOCK])
            .arg(store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let stdin = child.stdin.take();
        let mut said = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut said).expect("python3 says something");
        let lock = StoreLock { child, stdin };
        assert_eq!(said.trim(), "locked", "the store can be locked");
        lock
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs a small Python program; what it prints.
pub(crate) fn python(program: &str, arguments: &[&str]) -> String {
    run(Command::new("python3").args(["-c", program]).args(arguments), b"").ok()
}
