//! The node's side of a fence: starts the fence, sends ticks, reads its reports, and starts another
//! fence when it dies.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use windlass_core::launch::{BootTime, Fence};
use windlass_core::sync::lock;

use super::guard::Mark;
use super::{FIRED, MARK, Order, READY, boot_time, to_ms};
use crate::{Error, os};

/// How long a fence may take to become ready.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause between attempts to restart a fence.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Reports read at once.
const REPORTS_MAX: usize = 64;

/// A fence in its own process. Dropping this kills everything that carries its mark.
pub struct ProcessFence {
    supervisor: Arc<GuardSupervisor>,
}

struct GuardSupervisor {
    program: PathBuf,
    boot: String,
    limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// Absent while none is ready.
    guard: Option<Guard>,
    tick: BootTime,
    fired: u64,
    /// Whether no other one may be started.
    closed: bool,
}

impl ProcessFence {
    /// Starts the fence, and returns when it is ready. `program` is our own binary, which becomes a
    /// fence by its first word; `limit` is how long programs may run on after a tick.
    pub fn start(program: &Path, boot: &str, limit: Duration) -> Result<Arc<ProcessFence>, Error> {
        // The fence must see its pipe close, and must not hold descriptors that we inherited.
        os::keep_inherited_descriptors().map_err(Error::System)?;
        let tick = boot_time();
        let supervisor = Arc::new(GuardSupervisor {
            program: program.to_owned(),
            boot: boot.to_owned(),
            limit,
            state: Mutex::new(State { guard: None, tick, fired: 0, closed: false }),
        });
        let reports = supervisor.start_guard().map_err(Error::Fence)?;
        let for_thread = Arc::clone(&supervisor);
        let thread = std::thread::Builder::new().name("fence".into());
        thread.spawn(move || for_thread.keep(reports)).map_err(Error::Fence)?;
        Ok(Arc::new(ProcessFence { supervisor }))
    }
}

impl Fence for ProcessFence {
    fn mark(&self) -> (String, String) {
        (MARK.to_owned(), self.supervisor.boot.clone())
    }

    fn tick(&self, at: BootTime) {
        let mut state = self.supervisor.lock();
        state.tick = state.tick.max(at);
        state.send_tick();
    }

    fn fired(&self) -> u64 {
        let mut state = self.supervisor.lock();
        state.read_reports();
        state.fired
    }

    fn allows(&self) -> bool {
        boot_time().0 < self.supervisor.lock().tick.0 + self.supervisor.limit
    }

    fn process_id(&self) -> Option<u32> {
        let mut state = self.supervisor.lock();
        state.read_reports();
        state.guard.as_ref().map(|guard| guard.child.id())
    }

    fn end_left_by(&self, value: &str) {
        if let Err(reason) = Mark::new(value).end_all(|_| {}) {
            tracing::error!(%reason, "the search for what a dead node left was incomplete");
        }
    }
}

impl Drop for ProcessFence {
    fn drop(&mut self) {
        let mut state = self.supervisor.lock();
        state.closed = true;
        state.leave();
    }
}

impl GuardSupervisor {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Starts a fence and waits until it is ready. Returns its report pipe, to wait on.
    fn start_guard(&self) -> io::Result<OwnedFd> {
        let tick = self.lock().tick;
        let order = Order { boot: self.boot.clone(), limit: self.limit, tick };
        let guard = Guard::start(&order, &self.program)?;
        let reports = guard.reports.as_fd().try_clone_to_owned()?;
        let mut state = self.lock();
        state.guard = Some(guard);
        // The start takes a while, and a newer tick may have come.
        state.send_tick();
        Ok(reports)
    }

    /// Keeps a fence alive until it is closed.
    fn keep(&self, mut reports: OwnedFd) {
        loop {
            wait(&reports, None);
            let mut state = self.lock();
            state.read_reports();
            if state.guard.is_some() {
                continue;
            }
            if state.closed {
                return;
            }
            drop(state);
            tracing::error!("the fence died; starting another one");
            match self.restart() {
                Some(new) => reports = new,
                None => return,
            }
        }
    }

    /// Retries until a fence is ready or none is wanted.
    fn restart(&self) -> Option<OwnedFd> {
        while !self.lock().closed {
            match self.start_guard() {
                Ok(reports) => return Some(reports),
                Err(reason) => {
                    tracing::error!(%reason, "cannot start a fence; nothing more is run");
                    std::thread::sleep(RESTART_PAUSE);
                }
            }
        }
        None
    }
}

impl State {
    fn send_tick(&mut self) {
        let tick = to_ms(self.tick.0).to_le_bytes();
        if let Some(guard) = &mut self.guard {
            // A full pipe has newer ticks than the fence has read. A closed one is noticed by the
            // thread that waits for reports.
            let _ = guard.ticks.write(&tick);
        }
    }

    /// Counts the fence's reports, and forgets the fence if it is dead.
    fn read_reports(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        let mut reports = [0; REPORTS_MAX];
        loop {
            match guard.reports.read(&mut reports) {
                Ok(0) => return self.leave(),
                Ok(count) => {
                    let fired = reports[..count].iter().filter(|report| **report == FIRED);
                    self.fired += fired.count() as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.leave(),
            }
        }
    }

    /// Closes the fence's pipes, which ends it if it is alive, and has it reaped.
    fn leave(&mut self) {
        if let Some(Guard { mut child, .. }) = self.guard.take() {
            // It keeps looking for a while; waiting for it here would delay the node.
            let _ =
                std::thread::Builder::new().name("fence-end".into()).spawn(move || child.wait());
        }
    }
}

/// A fence that is ready.
struct Guard {
    child: Child,
    ticks: ChildStdin,
    reports: ChildStdout,
}

impl Guard {
    fn start(order: &Order, program: &Path) -> io::Result<Guard> {
        let mut child = order.command(program).spawn()?;
        let piped = "its input and output are piped";
        let ticks = child.stdin.take().expect(piped);
        let mut reports = child.stdout.take().expect(piped);
        let mut ready = [0];
        let watches = wait(&reports, Some(READY_TIME_MAX))
            && matches!(reports.read(&mut ready), Ok(1))
            && ready == [READY];
        if !watches {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other("the fence did not become ready"));
        }
        // A fence that hangs or stays silent must not delay the node.
        for pipe in [ticks.as_fd(), reports.as_fd()] {
            let flags = rustix::fs::fcntl_getfl(pipe)?;
            rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
        }
        Ok(Guard { child, ticks, reports })
    }
}

/// Whether data, or the end, can be read within this time.
fn wait(pipe: &impl AsFd, time: Option<Duration>) -> bool {
    let mut pipe = [PollFd::new(pipe, PollFlags::IN)];
    let time = time.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: 0 });
    rustix::event::poll(&mut pipe, time.as_ref()).is_ok_and(|ready| ready > 0)
}
