//! Carries out the calls of a cell that reach out: the kernel makes them wait, and this process
//! makes them in place of the caller, with its own copy of what was asked for. So nothing can
//! change between the decision and the connection.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::{PipeFlags, pipe_with};

use super::address::{OwnPlaces, Rules};
use super::call::{self, Answer, Carried};
use super::ports::Ports;
use super::sys::notify;
use super::target::Target;
use crate::network::{KernelRoutes, Policy};

/// Calls that may wait at the same time, such as connections to a slow server; further ones wait
/// for their turn.
const WAITING_MAX: usize = 64;

pub(super) struct Watch {
    listener: Arc<OwnedFd>,
    rules: Rules,
    /// Calls that wait, each in a thread.
    waiting: Arc<AtomicUsize>,
    /// Gets a byte from each thread that ends.
    ended: OwnedFd,
    end: Arc<OwnedFd>,
}

impl Watch {
    /// `own` is present if it has no root of its own. A policy that cannot be read allows nothing.
    pub(super) fn new(
        listener: OwnedFd,
        policy: &str,
        own: Option<OwnPlaces>,
    ) -> io::Result<Watch> {
        let (policy, routes) = (policy.parse::<Policy>().ok(), KernelRoutes::open().ok());
        let rules = Rules { policy, routes, ports: Ports::new(), own };
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (listener, end) = (Arc::new(listener), Arc::new(end));
        Ok(Watch { listener, rules, waiting: Arc::default(), ended, end })
    }

    /// What to wait for: threads that end, and calls, unless too many wait.
    pub(super) fn events(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let is_full = self.waiting.load(Ordering::Acquire) >= WAITING_MAX;
        (self.ended.as_fd(), (!is_full).then(|| self.listener.as_fd()))
    }

    /// Whether no call waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Forgets which threads have ended.
    pub(super) fn drain_ended(&self) {
        let _ = rustix::io::read(&self.ended, &mut [0; WAITING_MAX]);
    }

    /// Carries out one call, or leaves it to a thread if it has to wait. There must be a call:
    /// otherwise it waits for one.
    pub(super) fn next_call(&self) {
        // The caller may be gone by now.
        let listener = self.listener.as_fd();
        let Ok(waits) = notify::next_call(listener) else { return };
        let id = waits.id;
        let target = Target::open(Arc::clone(&self.listener), id, waits.pid);
        let carried = target.and_then(|target| {
            target.confirm()?;
            Ok(call::carry_out(&self.rules, target, &waits.data))
        });
        match carried.unwrap_or_else(|reason| Carried::Done(Answer::failed(&reason))) {
            Carried::Done(answer) => give(listener, id, answer),
            Carried::Waits(work) => self.leave_to_thread(id, work),
        }
    }

    fn leave_to_thread(&self, id: u64, work: Box<dyn FnOnce() -> Answer + Send>) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let (listener, waiting) = (Arc::clone(&self.listener), Arc::clone(&self.waiting));
        let end = Arc::clone(&self.end);
        let begun = thread::Builder::new().spawn(move || {
            give(listener.as_fd(), id, work());
            waiting.fetch_sub(1, Ordering::AcqRel);
            let _ = rustix::io::write(&*end, &[0]);
        });
        if begun.is_err() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            give(self.listener.as_fd(), id, Answer::Value(Err(libc::EAGAIN)));
        }
    }
}

fn give(listener: BorrowedFd<'_>, id: u64, answer: Answer) {
    match answer {
        Answer::Value(result) => notify::answer_call(listener, id, result),
        Answer::Socket(socket, flags) => {
            if let Err(reason) = notify::answer_with(listener, id, socket.as_fd(), flags) {
                let errno = reason.raw_os_error().unwrap_or(libc::EMFILE);
                notify::answer_call(listener, id, Err(errno));
            }
        }
    }
}

/// Writes a line to the log of the job, unless that cannot take it now.
pub(super) fn log(line: &str) {
    let stderr = std::io::stderr();
    let mut pipe = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut pipe, Some(&now)).is_ok_and(|ready| ready > 0) {
        let _ = (&stderr).write_all(format!("{line}\n").as_bytes());
    }
}
