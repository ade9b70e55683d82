//! What goes on when an operation has ended: threads and processes that it started and that nobody
//! waits for. Known are those that made a call.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// Threads of all processes that made a call, by number.
#[derive(Debug, Default)]
pub(crate) struct Callers(BTreeSet<u32>);

impl Callers {
    pub(crate) fn note(&mut self, thread: u32) {
        self.0.insert(thread);
    }

    /// Those that have not ended.
    pub(crate) fn rest(&self) -> Rest {
        Rest(self.0.iter().filter_map(|thread| named(*thread)).collect())
    }
}

/// The names of threads that have not ended.
#[derive(Debug)]
pub(crate) struct Rest(Vec<String>);

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => f.write_str("something that has made no call to the file system"),
            names => f.write_str(&names.join(", ")),
        }
    }
}

/// `None` if there is no such thread.
fn named(thread: u32) -> Option<String> {
    let of = |name: &str| fs::read_to_string(PathBuf::from(format!("/proc/{thread}/{name}"))).ok();
    let (status, name) = (of("status")?, of("comm")?);
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let (process, name) = (field("Tgid:")?, name.trim());
    // It has ended, and its parent has not asked for its status.
    if field("State:")?.starts_with('Z') {
        return None;
    }
    Some(match process.parse() == Ok(std::process::id()) {
        true => format!("thread {thread} '{name}' of this process"),
        false => format!("process {process} '{name}'"),
    })
}
