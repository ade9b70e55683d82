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

/// How long a fence may take until it watches.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// Between two tries to start a fence anew.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Reports that are read at once.
const REPORTS_MAX: usize = 64;

/// A fence in a process of its own. When this is dropped, all that carries its mark is ended.
pub struct ProcessFence {
    shared: Arc<Shared>,
}

struct Shared {
    program: PathBuf,
    boot: String,
    limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// Absent while none watches.
    guard: Option<Guard>,
    tick: BootTime,
    fired: u64,
    /// No other one is to be started.
    closed: bool,
}

impl ProcessFence {
    /// Starts the fence, and returns when it watches. `program` is our own binary, which becomes a
    /// fence by its first word; `limit` is how long things may go on from one tick.
    pub fn start(program: &Path, boot: &str, limit: Duration) -> Result<Arc<ProcessFence>, Error> {
        // The fence must not be kept from seeing its pipe end, nor hold what others gave us.
        os::keep_inherited_descriptors().map_err(Error::System)?;
        let tick = boot_time();
        let shared = Arc::new(Shared {
            program: program.to_owned(),
            boot: boot.to_owned(),
            limit,
            state: Mutex::new(State { guard: None, tick, fired: 0, closed: false }),
        });
        let reports = shared.start_guard().map_err(Error::Fence)?;
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("fence".into());
        thread.spawn(move || for_thread.keep(reports)).map_err(Error::Fence)?;
        Ok(Arc::new(ProcessFence { shared }))
    }
}

impl Fence for ProcessFence {
    fn mark(&self) -> (String, String) {
        (MARK.to_owned(), self.shared.boot.clone())
    }

    fn tick(&self, at: BootTime) {
        let mut state = self.shared.lock();
        state.tick = state.tick.max(at);
        state.send_tick();
    }

    fn fired(&self) -> u64 {
        let mut state = self.shared.lock();
        state.hear();
        state.fired
    }

    fn allows(&self) -> bool {
        boot_time().0 < self.shared.lock().tick.0 + self.shared.limit
    }

    fn process_id(&self) -> Option<u32> {
        let mut state = self.shared.lock();
        state.hear();
        state.guard.as_ref().map(|guard| guard.child.id())
    }

    fn end_left_by(&self, value: &str) {
        if let Err(reason) = Mark::new(value).end_all(|_| {}) {
            tracing::error!(%reason, "what a dead node left could not all be looked for");
        }
    }
}

impl Drop for ProcessFence {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.leave();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Starts a fence and waits until it watches. Returns its reports, to wait for them.
    fn start_guard(&self) -> io::Result<OwnedFd> {
        let tick = self.lock().tick;
        let order = Order { boot: self.boot.clone(), limit: self.limit, tick };
        let guard = Guard::start(&order, &self.program)?;
        let reports = guard.reports.as_fd().try_clone_to_owned()?;
        let mut state = self.lock();
        state.guard = Some(guard);
        // The start takes a while, in which a newer one may have come.
        state.send_tick();
        Ok(reports)
    }

    /// Keeps a fence alive until it is no longer wanted.
    fn keep(&self, mut reports: OwnedFd) {
        loop {
            wait(&reports, None);
            let mut state = self.lock();
            state.hear();
            if state.guard.is_some() {
                continue;
            }
            if state.closed {
                return;
            }
            drop(state);
            tracing::error!("the fence is gone; starting another one");
            match self.restart() {
                Some(new) => reports = new,
                None => return,
            }
        }
    }

    /// Tries until it has one, or none is wanted any more.
    fn restart(&self) -> Option<OwnedFd> {
        while !self.lock().closed {
            match self.start_guard() {
                Ok(reports) => return Some(reports),
                Err(reason) => {
                    tracing::error!(%reason, "no fence can be started; nothing more is run");
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
            // A pipe that is full has newer ticks than the fence has read; one that is closed is
            // noticed by whoever waits for the reports.
            let _ = guard.ticks.write(&tick);
        }
    }

    /// Counts what the fence has reported, and forgets it when it is dead.
    fn hear(&mut self) {
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

    /// Closes the fence's pipes, by which it ends if it lives, and has it reaped.
    fn leave(&mut self) {
        if let Some(Guard { mut child, .. }) = self.guard.take() {
            // It looks on for a while; waiting for it here would hold up the node.
            let _ =
                std::thread::Builder::new().name("fence-end".into()).spawn(move || child.wait());
        }
    }
}

/// A fence that watches.
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
            return Err(io::Error::other("the fence does not come to watch"));
        }
        // Neither a fence that hangs nor one that is silent may hold up the node.
        for pipe in [ticks.as_fd(), reports.as_fd()] {
            let flags = rustix::fs::fcntl_getfl(pipe)?;
            rustix::fs::fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
        }
        Ok(Guard { child, ticks, reports })
    }
}

/// Whether something can be read, or the end, within this time.
fn wait(pipe: &impl AsFd, time: Option<Duration>) -> bool {
    let mut pipe = [PollFd::new(pipe, PollFlags::IN)];
    let time = time.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: 0 });
    rustix::event::poll(&mut pipe, time.as_ref()).is_ok_and(|ready| ready > 0)
}
