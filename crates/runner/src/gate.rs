//! The end of a runner: after it nothing is started, and nothing that was started remains.
//!
//! Processes are stopped before they are killed, so that they start nothing meanwhile. A daemon
//! that exited between the two would leave them frozen for good. So both happen within the gate,
//! and closing it waits for them. Then the group of each remaining main process is killed. After
//! that, processes are killed without being stopped first.

use std::collections::HashSet;
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use rustix::process::{Pid, Signal};

use windlass_core::sync::{lock, read, write};

use crate::kill::{signal_all, stop_all};

#[derive(Default)]
pub(crate) struct Gate {
    is_closed: RwLock<bool>,
    /// Main processes that are not reaped yet.
    mains: Mutex<HashSet<Pid>>,
}

/// Keeps the gate from closing. Do not enter twice.
pub(crate) struct GateGuard<'a> {
    is_closed: RwLockReadGuard<'a, bool>,
}

impl Gate {
    pub(crate) fn enter(&self) -> GateGuard<'_> {
        GateGuard { is_closed: read(&self.is_closed) }
    }

    /// Blocks until everything that is stopped now is killed, which takes a few walks through the
    /// process table.
    pub(crate) fn close(&self) {
        *write(&self.is_closed) = true;
        for main in lock(&self.mains).iter() {
            let _ = rustix::process::kill_process_group(*main, Signal::KILL);
        }
    }

    pub(crate) fn add(&self, main: Pid) {
        lock(&self.mains).insert(main);
    }

    /// Call it before the process is reaped: afterwards its id may belong to another.
    pub(crate) fn forget(&self, main: Pid) {
        lock(&self.mains).remove(&main);
    }
}

impl GateGuard<'_> {
    pub(crate) fn is_closed(&self) -> bool {
        *self.is_closed
    }

    /// Stops these processes; they must be killed before this is dropped.
    pub(crate) fn stop(&self, pids: &[Pid]) {
        if !self.is_closed() {
            signal_all(pids, Signal::STOP);
        }
    }

    /// Stops and kills what is found, until nothing new is found.
    pub(crate) fn kill(&self, find: impl Fn() -> Vec<Pid>) {
        let found = if self.is_closed() { find() } else { stop_all(find) };
        signal_all(&found, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn closing_waits_until_what_was_stopped_is_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (gate, was_killed) = (Gate::default(), AtomicBool::new(false));
        let (stopped, was_stopped) = channel();
        let (go_on, may_go_on) = channel();
        std::thread::scope(|threads| {
            let (gate, was_killed) = (&gate, &was_killed);
            threads.spawn(move || {
                let inside = gate.enter();
                inside.stop(&[pid]);
                stopped.send(()).unwrap();
                may_go_on.recv().unwrap();
                inside.kill(|| vec![pid]);
                was_killed.store(true, Ordering::SeqCst);
            });
            was_stopped.recv().unwrap();
            threads.spawn(move || {
                go_on.send(()).unwrap();
                gate.close();
                assert!(was_killed.load(Ordering::SeqCst));
            });
        });
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn what_is_killed_after_the_end_is_not_stopped_first() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let gate = Gate::default();
        gate.close();
        gate.enter().stop(&[Pid::from_child(&child)]);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "it went on to its end");
    }
}
