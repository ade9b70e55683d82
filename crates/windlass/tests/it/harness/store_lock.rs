//! Another program that blocks the store: takes SQLite's write lock and keeps it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use windlass_test_kit::process::{Tied, run};
use windlass_test_kit::wait::PATIENCE;

const HOLD_LOCK: &str = "
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=int(sys.argv[2]))
store.execute('BEGIN EXCLUSIVE')
print('locked', flush=True)
sys.stdin.read()
";

/// While it exists, no other process can write to the store. The lock ends with its process.
pub(crate) struct StoreLock {
    _holder: Tied,
}

impl StoreLock {
    pub(crate) fn take(store: &Path) -> StoreLock {
        let mut command = Command::new("python3");
        command.args(["-c", HOLD_LOCK]).arg(store).arg(PATIENCE.as_secs().to_string());
        let mut holder = Tied::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut said = String::new();
        let stdout = holder.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut said).expect("python3 says something");
        assert_eq!(said.trim(), "locked", "the store can be locked");
        StoreLock { _holder: holder }
    }
}

/// Runs a small Python program; returns what it prints.
pub(crate) fn python(program: &str, arguments: &[&str]) -> String {
    run(Command::new("python3").args(["-c", program]).args(arguments), b"").ok()
}
