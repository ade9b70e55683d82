//! Ends a server and removes its files when this process is gone, even if it was killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt;

/// Waits for the end of its input, which means that we are gone; then kills the server and removes
/// its folder. `$0` is the folder, with the process id in `pid`. The server's children end by
/// themselves when it is gone, unless a test has stopped them, so they are continued. A dead
/// process may remain a zombie where nothing reaps orphans, as in a container; one that the kernel
/// does not end is left to it.
const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT
while read -r line; do :; done
if read -r pid < "$0/pid"; then
    read -r children < "/proc/$pid/task/$pid/children"
    left=1000
    while kill -9 "$pid" 2>&- && ! grep -q '^State:.Z' "/proc/$pid/status"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || break
        sleep 0.05
    done
    [ -z "$children" ] || kill -CONT $children
fi
rm -rf "$0"
"#;

/// A small process that outlives us for a moment. Dropping it lets it finish and waits for it.
pub(crate) struct Guard {
    watcher: Child,
}

impl Guard {
    /// In its own process group, so that interrupting the tests does not interrupt it.
    pub(crate) fn of(folder: &Path) -> Self {
        let watcher = Command::new("sh")
            .args(["-c", SCRIPT])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self { watcher: watcher.expect("sh can be started") }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}
