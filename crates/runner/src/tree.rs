//! Kills everything that an attempt started, wherever it is in the process table.
//!
//! ```text
//! daemon (adopts orphans)
//! ├─ main                 session and group of its own; known in MAINS
//! │   └─ children         in main's group: one signal ends them
//! │       └─ setsid …     left the group: found as descendants while their parents live,
//! └─ orphans              and here, as children of the daemon, when their parents are gone
//! ```
//! An orphan belongs to an attempt if it is in the session of its main process, carries the
//! attempt's directory in its environment, or works in that directory. A process that has given up
//! all three, and whose parents are gone, cannot be identified and is left alone.
//!
//! Two kinds of processes show nothing for a moment: one in the middle of an exec has no
//! environment yet, and a dying one gives up its environment and its directory before it is a
//! zombie. Neither is taken for a foreign one: an attempt has ended when a look finds nothing of it
//! and nothing unclear.
//!
//! Reaping: a main process is reaped through its `Main`. Every other zombie that is our child and
//! not in our own session is an orphan, and is reaped here.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, TryLockError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use windlass_core::sync::{lock, read};

use crate::cell::OVER_MEMORY;
use crate::gate::Gate;
use crate::isolate::Group;
use crate::kill::{descendants, with_descendants};
use crate::proc::{self, Entry, Match};

/// Names the attempt's directory in its environment, which identifies its processes.
pub(crate) const MARKER: &str = "WINDLASS_DIR";
/// The same for a command, which has no directory: a unique number.
const COMMAND_MARKER: &str = "WINDLASS_COMMAND";
/// The outer process of a cell, and its init.
const CELL_HELPERS: u32 = 2;
/// Rounds of looking for and killing the processes of an attempt before giving up.
const ROUNDS_MAX: u32 = 100;
const ROUND_PAUSE_MIN: Duration = Duration::from_millis(1);
const ROUND_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Held for reading from before a fork until the new process is in `MAINS`.
static SPAWNING: RwLock<()> = RwLock::new(());
/// Processes that the runners of this daemon have started and not reaped yet.
static MAINS: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// Makes orphans of our processes our children, so that they can be found.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    ADOPTING.store(true, Ordering::Relaxed);
    Ok(())
}

/// A main process that is not reaped yet. Dropping it kills everything that belongs to the attempt.
pub(crate) struct Main {
    pid: Pid,
    /// The handler's own process, if the main one is the outer process of a cell.
    pub(crate) inner: Option<Pid>,
    /// Orders to that outer process, and its answers.
    pub(crate) control: Option<OwnedFd>,
    /// The control group of its cell, which is removed after it.
    pub(crate) group: Option<Group>,
    pub(crate) child: Child,
    pub(crate) tree: Tree,
    reaped: bool,
}

impl Main {
    /// Starts the process of the attempt that has this directory.
    pub(crate) fn start(command: &mut Command, dir: &Path, gate: &Arc<Gate>) -> io::Result<Main> {
        Main::start_marked(command, marker(dir), Some(dir.to_owned()), Arc::clone(gate))
    }

    /// Starts a command that has its own group, but no directory.
    pub(crate) fn start_command(command: &mut Command) -> io::Result<Main> {
        let number = fastrand::u64(..).to_string();
        command.env(COMMAND_MARKER, &number);
        let marker = format!("{COMMAND_MARKER}={number}").into();
        Main::start_marked(command, marker, None, Arc::default())
    }

    fn start_marked(
        command: &mut Command,
        marker: OsString,
        dir: Option<PathBuf>,
        gate: Arc<Gate>,
    ) -> io::Result<Main> {
        let inside = gate.enter();
        if inside.is_closed() {
            return Err(Errno::AGAIN.into());
        }
        let _spawning = read(&SPAWNING);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed()).expect("a process has an id above 0");
        mains().get_or_insert_default().insert(pid);
        gate.add(pid);
        drop(inside);
        let tree = Tree { main: pid, dir, marker, gate, helpers: 0, closed: false };
        Ok(Main { pid, inner: None, control: None, group: None, child, tree, reaped: false })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The main process is the outer process of a cell, which now runs the handler's. If the cell
    /// has its own process namespace (`closed`), everything in it ends with its init.
    pub(crate) fn has_cell(&mut self, closed: bool) {
        (self.tree.helpers, self.tree.closed) = (CELL_HELPERS, closed);
        let init = proc::only_child(self.pid);
        self.inner = init.and_then(proc::only_child);
    }

    /// Waits for the process, which must be dead or about to die. An outer process that the kernel
    /// ended for lack of memory counts as one that told of it.
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.tree.gate.forget(self.pid);
        let status = self.child.wait()?;
        self.reaped = true;
        forget(self.pid);
        let was_used_up = |group: &Group| group.of_cell().was_used_up();
        let is_over =
            status.signal() == Some(libc::SIGKILL) && self.group.as_ref().is_some_and(was_used_up);
        Ok(if is_over { ExitStatus::from_raw(OVER_MEMORY) } else { status })
    }
}

impl Drop for Main {
    fn drop(&mut self) {
        if !self.reaped {
            self.tree.kill();
            self.tree.gate.forget(self.pid);
            // If it is not dead yet, it is reaped like an orphan later.
            let _ = self.child.try_wait();
            forget(self.pid);
        }
    }
}

/// The process was reaped, or is an orphan like others from now on.
fn forget(main: Pid) {
    mains().get_or_insert_default().remove(&main);
}

/// The processes of one attempt, or of one command.
pub(crate) struct Tree {
    main: Pid,
    /// Absent for a command.
    dir: Option<PathBuf>,
    marker: OsString,
    gate: Arc<Gate>,
    /// Processes that are ours, not the handler's.
    helpers: u32,
    /// None of its processes can outlive the main one.
    closed: bool,
}

impl Tree {
    /// Kills everything that belongs to the main process. Call it before that is reaped.
    ///
    /// All of it is stopped first, so that nothing new is started during the search, unless nothing
    /// has to be searched for: a daemon that dies in between leaves what it has stopped frozen.
    pub(crate) fn kill(&self) {
        if self.closed {
            let _ = rustix::process::kill_process_group(self.main, Signal::KILL);
            return;
        }
        let inside = self.gate.enter();
        let first = if inside.is_closed() { Signal::KILL } else { Signal::STOP };
        let _ = rustix::process::kill_process_group(self.main, first);
        inside.kill(|| self.members());
        let _ = rustix::process::kill_process_group(self.main, Signal::KILL);
    }

    /// The number of living processes of the attempt.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.members().len()).unwrap_or(u32::MAX).saturating_sub(self.helpers)
    }

    /// The living processes of the attempt: its session, its identifiable orphans, and all their
    /// descendants.
    fn members(&self) -> Vec<Pid> {
        let table = proc::table();
        let known = mains().clone().unwrap_or_default();
        let (us, session) = (rustix::process::getpid(), self.main.as_raw_pid());
        let adopting = ADOPTING.load(Ordering::Relaxed);
        let is_member = |entry: &Entry| entry.session == session || entry.pid == self.main;
        // An orphan that is not adopted may have any parent.
        let is_stray =
            |entry: &Entry| !known.contains(&entry.pid) && (entry.parent == Some(us) || !adopting);
        let mut roots = Vec::new();
        let mut strays = Vec::new();
        for entry in &table {
            if is_member(entry) {
                roots.push(entry.pid);
            } else if !entry.leaving && is_stray(entry) {
                strays.push(entry.pid);
            }
        }
        roots.extend(proc::match_each(strays, |entry| self.owns(entry)).yes);
        let dead: HashSet<Pid> = table.iter().filter(|e| e.dead).map(|e| e.pid).collect();
        let mut members = with_descendants(roots, &table);
        members.retain(|pid| !dead.contains(pid));
        members
    }

    /// Kills and reaps what is left of the attempt while its main process is dead but not reaped,
    /// until nothing is left.
    pub(crate) async fn end(&self) {
        let _ = rustix::process::kill_process_group(self.main, Signal::KILL);
        let mut pause = ROUND_PAUSE_MIN;
        let mut others = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            if self.sweep(&HashSet::new(), &mut others) == 0 {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ROUND_PAUSE_MAX);
        }
        tracing::warn!(of = %self.marker.display(), "processes of an attempt do not die");
    }

    /// All descendants of the main process now.
    pub(crate) fn descendants(&self) -> HashSet<Pid> {
        descendants(self.main).into_iter().collect()
    }

    /// Kills the descendants and orphans of the main process, except `kept`.
    pub(crate) fn end_leftovers(&self, kept: &HashSet<Pid>) {
        self.gate.enter().kill(|| {
            let mut left = descendants(self.main);
            left.retain(|pid| !kept.contains(pid));
            left
        });
        self.sweep(kept, &mut HashSet::new());
    }

    /// One look at our children: kills the attempt's orphans, reaps zombies. Returns how many need
    /// another look: those killed, those dying, and those that did not show their owner. `others`
    /// showed theirs in an earlier look, so no other attempt can delay the end of this one.
    fn sweep(&self, kept: &HashSet<Pid>, others: &mut HashSet<(Pid, u64)>) -> usize {
        let Ok(pids) = proc::pids() else {
            return 1;
        };
        let known = mains().clone().unwrap_or_default();
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let mut unfinished = 0;
        let mut living = Vec::new();
        for pid in pids {
            if known.contains(&pid) || kept.contains(&pid) {
                continue;
            }
            // Peeking at its exit is the cheapest way to learn whether a process is our child.
            match rustix::process::waitid(WaitId::Pid(pid), peek) {
                Err(_) => {}
                Ok(Some(_)) => unfinished += usize::from(reap_orphan(pid)),
                Ok(None) => living.push(pid),
            }
        }
        let inside = self.gate.enter();
        let orphans = proc::match_each(living, |entry| {
            if others.contains(&entry.identity()) {
                return Match::No;
            }
            let answer = self.owns(entry);
            match answer {
                // A process that forks and exits is hard to hit: it must not run on meanwhile.
                Match::Yes => inside.stop(&[entry.pid]),
                Match::No => drop(others.insert(entry.identity())),
                Match::Unclear | Match::Leaving => {}
            }
            answer
        });
        if !orphans.yes.is_empty() {
            inside.kill(|| with_descendants(orphans.yes.clone(), &proc::table()));
        }
        drop(inside);
        unfinished += orphans.yes.len() + orphans.unclear + orphans.leaving;
        if unfinished == 0 {
            // A process that another sweep is reaping is no longer our child, but not gone yet.
            // That sweep holds this lock for writing.
            drop(read(&SPAWNING));
        }
        unfinished
    }

    /// A dying process gives up its environment first, then its directory, and exists for a while
    /// without either.
    fn owns(&self, entry: &Entry) -> Match {
        let works_here = |dir: &PathBuf| proc::works_below(entry.pid, dir);
        if entry.session == self.main.as_raw_pid() {
            Match::Yes
        } else if entry.leaving {
            Match::Leaving
        } else if self.dir.as_ref().is_some_and(works_here) {
            Match::Yes
        } else {
            proc::environ_has(entry, |variable| variable == self.marker.as_bytes())
        }
    }
}

/// Reaps the zombie if it is an orphan. Returns whether to look again: if that is undecided, or if
/// it was one, because it may have left a child after this look.
fn reap_orphan(pid: Pid) -> bool {
    // A process that is being started is not in MAINS yet, and might be this zombie.
    let _nothing_starts = match SPAWNING.try_write() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
        Err(TryLockError::WouldBlock) => return true,
    };
    // Without descriptors there is no answer.
    let entries = (proc::entry(pid), proc::entry(rustix::process::getpid()));
    let (Some(its), Some(ours)) = entries else {
        return true;
    };
    let is_orphan = !mains().get_or_insert_default().contains(&pid) && its.session != ours.session;
    if is_orphan {
        let reap = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = rustix::process::waitid(WaitId::Pid(pid), reap);
    }
    is_orphan
}

pub(crate) fn marker(dir: &Path) -> OsString {
    let mut marker = OsString::from(MARKER);
    marker.push("=");
    marker.push(dir);
    marker
}

fn mains() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    lock(&MAINS)
}
