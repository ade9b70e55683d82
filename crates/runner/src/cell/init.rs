//! The first process of a cell. It builds the root, starts the handler's process, adopts what that
//! leaves behind, and is gone when it has ended; the kernel then ends everything else.
//!
//! Without namespaces it ends what is left by itself: orphans become its children.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Gid, Signal, Uid, WaitOptions};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::account::{self, Look};
use super::order::{self, Order, Variables};
use super::plan::{Memory, Plan, Room, User};
use super::root::Renewal;
use super::sys::NextEnd;
use super::{REPORT, filter, root, sys};
use crate::{isolate, kill, proc};

/// Exit code of a cell that did not work.
pub(super) const FAILED: i32 = 70;
/// The signal by which a cell ends whose processes together have used up their memory. No program
/// uses it for anything else.
pub(crate) const OVER_MEMORY: i32 = 63;
/// Whom the kernel ends first if memory is used up: this process and those that it starts, before
/// the outer process and the daemon. No right is needed to ask for that.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
const FIRST_TO_END: &str = "1000";
const HOST_NAME: &str = "windlass";
/// Size of what the kernel writes about a signal, and how many are read at once.
const SIGNAL_BYTES: usize = 128 * 8;
/// Where copies of descriptors are: those that get other numbers, and those that keep none of the
/// numbers that are handed over.
const COPIES_FROM: i32 = 20;
const NANOS_PER_S: u128 = 1_000_000_000;
/// Rounds of ending what is left, without namespaces.
const ROUNDS_MAX: u32 = 200;
const ROUND_PAUSE: Duration = Duration::from_millis(5);

/// Its ends of the pipes to the outer process.
pub(super) struct Ties {
    /// Ends with the outer process.
    pub(super) alive: OwnedFd,
    pub(super) tell: OwnedFd,
    /// Gets a byte when the handler's process may start.
    pub(super) go: OwnedFd,
    /// Orders, if it runs one process after another.
    pub(super) orders: Option<OwnedFd>,
    /// Number of the outer process.
    pub(super) outer: i32,
}

pub(super) fn run(plan: &Plan, ties: Ties) -> ! {
    let has_room = plan.room.is_some();
    let failed = |(stage, reason): Failed| -> ! {
        if let Ok(report) = sys::inherited(REPORT) {
            self::tell(report, stage, &reason);
        }
        sys::exit(FAILED)
    };
    let (orders, outer) = (ties.orders.as_ref().map(OwnedFd::try_clone), ties.outer);
    let ready = prepare(plan, ties).unwrap_or_else(|reason| failed(reason));
    match (orders, plan.room.as_ref()) {
        (Some(Ok(orders)), Some(room)) => {
            // The daemon sees the end of this as the beginning.
            drop(sys::inherited(REPORT));
            Serve { plan, room, ready, outer }.run(&orders)
        }
        (Some(_), _) => failed(("start", io::ErrorKind::Unsupported.into())),
        (None, room) => {
            let main = match fork_main(room.is_some(), outer) {
                Ok(0) => become_main(plan, &Variables::new()),
                Ok(main) => main,
                Err(reason) => failed(("process", reason)),
            };
            sys::close_range(0, 5);
            drop(sys::inherited(REPORT));
            let status = ready.watched.wait_for(main);
            if !has_room {
                end_all();
            }
            ready.tell_status(status);
            sys::exit(0)
        }
    }
}

/// At which stage something failed, and why.
type Failed = (&'static str, io::Error);

/// Everything before the handler's process.
struct Ready {
    tell: File,
    watched: Watched,
    /// Absent without a private root.
    renewal: Option<Renewal>,
}

impl Ready {
    fn tell_status(&self, status: i32) {
        let _ = (&self.tell).write_all(&status.to_le_bytes());
    }
}

/// The same number inside as that of the outer process outside, if it is free.
fn fork_main(has_room: bool, outer: i32) -> io::Result<i32> {
    match has_room {
        true => sys::fork_numbered(outer).or_else(|_| sys::fork(0)),
        false => sys::fork(0),
    }
}

/// Runs one process after another, and leaves nothing of one to the next.
struct Serve<'a> {
    plan: &'a Plan,
    room: &'a Room,
    ready: Ready,
    outer: i32,
}

impl Serve<'_> {
    fn run(mut self, orders: &OwnedFd) -> ! {
        loop {
            self.ready.watched.wait_for_order(orders);
            let Ok(Some(order)) = order::next(orders) else { sys::exit(FAILED) };
            let main = match fork_main(true, self.outer) {
                Ok(0) => self.become_ordered(order),
                Ok(main) => main,
                Err(reason) => {
                    let [_, _, _, report] = order.descriptors;
                    tell(report, "process", &reason);
                    sys::exit(FAILED)
                }
            };
            drop(order);
            let status = self.ready.watched.wait_for(main);
            if status == OVER_MEMORY {
                self.ready.tell_status(status);
                sys::exit(FAILED);
            }
            self.ready.watched.end_others();
            self.ready.tell_status(status);
            if self.renew().is_err() {
                sys::exit(FAILED);
            }
        }
    }

    /// Makes everything new that the last process could change.
    fn renew(&mut self) -> io::Result<()> {
        sys::unshare(libc::CLONE_NEWIPC)?;
        match &mut self.ready.renewal {
            Some(renewal) => renewal.renew(self.room),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn become_ordered(&self, order: Order) -> ! {
        let Order { env, descriptors } = order;
        if take_descriptors(&descriptors).is_err() {
            sys::exit(FAILED);
        }
        become_main(self.plan, &env)
    }
}

/// Gives the descriptors of an order their numbers.
fn take_descriptors(descriptors: &[OwnedFd; 4]) -> io::Result<()> {
    // Copies first: one may have the number that another gets.
    let copy = |descriptor: &OwnedFd| fcntl_dupfd_cloexec(descriptor, COPIES_FROM);
    let copies = descriptors.iter().map(copy).collect::<Result<Vec<_>, _>>()?;
    for (copy, number) in copies.iter().zip([0, 1, 2, REPORT]) {
        sys::copy_to(copy, number)?;
    }
    sys::keep_from_programs(REPORT)
}

/// What this process waits for, all at once and in one thread.
struct Watched {
    /// Ends with the outer process. The signal for that is not enough: an outer process that has
    /// become another user cannot send it to root.
    alive: OwnedFd,
    children: OwnedFd,
    /// When to add up the memory, and how much there may be.
    memory: Option<(OwnedFd, u64)>,
    has_room: bool,
}

impl Watched {
    fn new(plan: &Plan, alive: OwnedFd) -> io::Result<Watched> {
        // Above the numbers of the handler's descriptors, which are closed here when it has them.
        let moved = |descriptor: OwnedFd| fcntl_dupfd_cloexec(descriptor, COPIES_FROM);
        let children = moved(sys::ends_of_children()?)?;
        let memory = match plan.memory {
            Memory::Watched(bytes_max) => Some((moved(timer()?)?, bytes_max)),
            Memory::Unbounded | Memory::Group(_) => None,
        };
        Ok(Watched { alive, children, memory, has_room: plan.room.is_some() })
    }

    /// Waits for the handler's process, and for all that end before it. Returns its status, or
    /// that of one that is over its memory.
    fn wait_for(&self, main: i32) -> i32 {
        self.look_after(Duration::ZERO);
        loop {
            let mut events = vec![
                PollFd::new(&self.alive, PollFlags::IN),
                PollFd::new(&self.children, PollFlags::IN),
            ];
            events.extend(self.memory.iter().map(|(timer, _)| PollFd::new(timer, PollFlags::IN)));
            match rustix::event::poll(&mut events, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return FAILED << 8,
            }
            let is_ready: Vec<bool> =
                events.iter().map(|event| !event.revents().is_empty()).collect();
            if is_ready[0] {
                self.end_without_outer();
            }
            let _ = rustix::io::read(&self.children, &mut [0; SIGNAL_BYTES]);
            while let NextEnd::Ended(child, status) = sys::next_end() {
                if child == main {
                    return status;
                }
            }
            if is_ready.get(2) == Some(&true) && self.is_over_memory() {
                return OVER_MEMORY;
            }
        }
    }

    /// Waits for an order, or the end of orders.
    fn wait_for_order(&self, orders: &OwnedFd) {
        loop {
            let mut events =
                [PollFd::new(&self.alive, PollFlags::IN), PollFd::new(orders, PollFlags::IN)];
            let polled = rustix::event::poll(&mut events, None);
            match (polled, events[0].revents().is_empty(), events[1].revents().is_empty()) {
                (Ok(_), false, _) => self.end_without_outer(),
                (Ok(_), true, false) => return,
                (Ok(_) | Err(Errno::INTR), ..) => {}
                (Err(_), ..) => sys::exit(FAILED),
            }
        }
    }

    /// Ends everything inside but this process, and waits for its end.
    fn end_others(&self) {
        loop {
            sys::kill_all_others();
            loop {
                match sys::next_end() {
                    NextEnd::Ended(..) => {}
                    NextEnd::Later => break,
                    NextEnd::Never => return,
                }
            }
            let mut events = [
                PollFd::new(&self.alive, PollFlags::IN),
                PollFd::new(&self.children, PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut events, None);
            if !events[0].revents().is_empty() {
                self.end_without_outer();
            }
            let _ = rustix::io::read(&self.children, &mut [0; SIGNAL_BYTES]);
        }
    }

    /// Everything inside ends with this process.
    fn end_without_outer(&self) -> ! {
        if !self.has_room {
            end_all();
        }
        sys::exit(FAILED)
    }

    fn is_over_memory(&self) -> bool {
        let Some((_, bytes_max)) = self.memory else { return false };
        let us = rustix::process::getpid();
        let inside = match self.has_room {
            true => proc::pids().unwrap_or_default(),
            false => kill::descendants(us),
        };
        match account::look(&inside, bytes_max) {
            Look::Within(pause) => {
                self.look_after(pause);
                false
            }
            Look::Over => true,
        }
    }

    fn look_after(&self, pause: Duration) {
        let Some((timer, _)) = &self.memory else { return };
        let _ = rustix::io::read(timer, &mut [0; 8]);
        // Zero would stop it.
        let nanos = pause.max(Duration::from_nanos(1)).as_nanos();
        let it_value = Timespec {
            tv_sec: (nanos / NANOS_PER_S) as i64,
            tv_nsec: (nanos % NANOS_PER_S) as i64,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        if timerfd_settime(timer, TimerfdTimerFlags::empty(), &once).is_err() {
            sys::exit(FAILED);
        }
    }
}

fn timer() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Tells the daemon why there is no process.
pub(super) fn tell(report: OwnedFd, stage: &str, reason: &io::Error) {
    let errno = reason.raw_os_error().unwrap_or(libc::EIO);
    let mut message = errno.to_le_bytes().to_vec();
    message.extend(format!("{stage}: {reason}").bytes());
    let _ = File::from(report).write_all(&message);
}

fn prepare(plan: &Plan, ties: Ties) -> Result<Ready, Failed> {
    let at = |stage: &'static str| move |reason: io::Error| (stage, reason);
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64).map_err(at("start"))?;
    if has_ended(&ties.alive) {
        sys::exit(FAILED);
    }
    // Not needed for safety: if the kernel ends the outer process instead, the cell ends with it.
    let _ = fs::write(OOM_SCORE, FIRST_TO_END);
    let mut renewal = None;
    match &plan.room {
        Some(room) => {
            let entered = root::enter(room, plan.refuses_shared_memory());
            renewal = Some(entered.map_err(at("private root"))?);
            sys::set_host_name(HOST_NAME).map_err(at("host name"))?;
        }
        None => sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).map_err(at("start"))?,
    }
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(at("rights"))?;
    let mut tell = File::from(ties.tell);
    let listener = match &plan.network {
        Some(_) => {
            let listener = listen(plan.room.is_some()).map_err(at("system call filter"))?;
            tell.write_all(&listener.as_raw_fd().to_le_bytes()).map_err(at("start"))?;
            Some(listener)
        }
        None => None,
    };
    let mut go = File::from(ties.go);
    go.read_exact(&mut [0]).map_err(at("start"))?;
    drop(listener);
    if plan.room.is_some() {
        // Only now: this process has been put into the groups that are to look like the first ones.
        sys::unshare(libc::CLONE_NEWCGROUP).map_err(at("control group namespace"))?;
    }
    let watched = Watched::new(plan, ties.alive).map_err(at("start"))?;
    if plan.room.is_none() {
        // Only from here on is there anything to end, which this process then does itself: the
        // signal would end it alone.
        sys::prctl(libc::PR_SET_PDEATHSIG, 0).map_err(at("start"))?;
    }
    // Nothing inside may look into this process.
    sys::prctl(libc::PR_SET_DUMPABLE, 0).map_err(at("rights"))?;
    Ok(Ready { tell, watched, renewal })
}

/// Asks for calls to be decided outside. A signal must not interrupt one that is being carried out,
/// where the kernel knows how.
fn listen(has_room: bool) -> io::Result<OwnedFd> {
    let program = filter::watched(has_room);
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let patient = listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let opened = sys::set_filter(&program, patient);
    let opened = opened.or_else(|_| sys::set_filter(&program, listener))?;
    opened.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn has_ended(pipe: &OwnedFd) -> bool {
    let mut pipe = [PollFd::new(pipe, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut pipe, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Ends everything that the handler's process has left.
fn end_all() {
    let us = rustix::process::getpid();
    for _ in 0..ROUNDS_MAX {
        let left = kill::stop_all(|| kill::descendants(us));
        kill::signal_all(&left, Signal::KILL);
        reap_dead();
        if kill::descendants(us).is_empty() {
            return;
        }
        std::thread::sleep(ROUND_PAUSE);
    }
}

fn reap_dead() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// The last steps before the handler's program.
fn become_main(plan: &Plan, more: &Variables) -> ! {
    let (stage, reason) = match confine(plan) {
        Ok(()) => ("exec", exec(plan, more)),
        Err(failed) => failed,
    };
    if let Ok(report) = sys::inherited(REPORT) {
        tell(report, stage, &reason);
    }
    sys::exit(FAILED)
}

fn confine(plan: &Plan) -> Result<(), Failed> {
    let at = |stage: &'static str| move |reason: io::Error| (stage, reason);
    let session = rustix::process::setsid().map_err(io::Error::from);
    session.map_err(at("session"))?;
    // The runtime of this program ignores one of them.
    isolate::reset_signals();
    sys::prctl(libc::PR_SET_PDEATHSIG, 0).map_err(at("start"))?;
    for limit in &plan.limits {
        sys::set_limit(*limit).map_err(at("limits"))?;
    }
    std::env::set_current_dir(&plan.cwd).map_err(at("working directory"))?;
    sys::drop_bounding_set();
    if let Some(User::Number(number)) = plan.room.as_ref().map(|room| room.user) {
        give_streams_to(number).map_err(at("user"))?;
        sys::become_user(number).map_err(at("user"))?;
    }
    sys::keep_capabilities(0).map_err(at("rights"))?;
    if let Some(files) = &plan.files {
        isolate::restrict_files(&files.read, &files.write).map_err(at("Landlock"))?;
    }
    if plan.filter {
        let needless = filter::needless(plan.room.is_some(), plan.refuses_shared_memory());
        sys::set_filter(&needless, 0).map_err(at("system call filter"))?;
    }
    Ok(())
}

/// Programs may open their own standard streams again, by the names in `/dev`.
fn give_streams_to(number: u32) -> io::Result<()> {
    for stream in [sys::borrowed(0), sys::borrowed(1), sys::borrowed(2)] {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode);
        // A device is everybody's.
        if kind == FileType::Fifo {
            let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
            rustix::fs::fchown(stream, Some(user), Some(group))?;
        }
    }
    Ok(())
}

/// Runs the handler's program; looks for it in `PATH` if it is a name only.
fn exec(plan: &Plan, more: &Variables) -> io::Error {
    let texts = |texts: Vec<OsString>| -> io::Result<Vec<CString>> {
        texts.iter().map(sys::c_string).collect()
    };
    let pair =
        |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let env = plan.env.iter().chain(more);
    let env = env.map(|entry| OsStr::from_bytes(&pair(entry)).to_owned()).collect();
    let (argv, env) = match (texts(plan.argv.clone()), texts(env)) {
        (Ok(argv), Ok(env)) => (argv, env),
        (Err(reason), _) | (_, Err(reason)) => return reason,
    };
    let Some(program) = plan.argv.first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    if program.as_bytes().contains(&b'/') {
        return sys::exec(&argv[0], &argv, &env);
    }
    let path = plan.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    let mut failed = io::Error::from_raw_os_error(libc::ENOENT);
    for dir in std::env::split_paths(&path.unwrap_or_default()) {
        let Ok(file) = sys::c_string(Path::new(&dir).join(program)) else { continue };
        let reason = sys::exec(&file, &argv, &env);
        // Something that is there but cannot be run says more than something that is not there.
        if reason.kind() != io::ErrorKind::NotFound {
            failed = reason;
        }
    }
    failed
}
