//! The outer process: makes the namespaces, watches the network of the cell, and ends as the
//! handler's process ended.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags};

use super::address::OwnPlaces;
use super::group::OpenGroup;
use super::init::{self, Ties};
use super::order;
use super::plan::{Memory, Plan, User};
use super::sys::notify;
use super::watch::Watch;
use super::{CONTROL, LIFELINE, PLAN, REPORT, sys};
use crate::{isolate, proc};

/// The name of the handler's user inside a user namespace.
const NOBODY: u32 = 65534;
/// The right to look into the processes of the cell.
const TRACE: u64 = 1 << 19;
/// How much later than the daemon a cell gets its turn, if the processor is busy: what handlers do
/// must not keep the daemon from answering.
const NICENESS: i32 = 10;
/// The descriptors of the handler's process that this one does not need.
const OF_HANDLER: [(i32, i32); 2] = [(0, 1), (3, 5)];

/// Runs the cell that its descriptors describe.
pub(super) fn run() -> ! {
    let failed = |stage: &str, reason: &io::Error| -> ! {
        if let Ok(report) = sys::inherited(REPORT) {
            init::tell(report, stage, reason);
        }
        sys::exit(init::FAILED)
    };
    let read = || {
        sys::keep_from_programs(REPORT)?;
        Plan::from_file(sys::inherited(PLAN)?)
    };
    let plan = read().unwrap_or_else(|reason| failed("plan", &reason));
    match open(&plan) {
        Ok(cell) => cell.watch_to_end(),
        Err((stage, reason)) => failed(stage, &reason),
    }
}

/// A cell whose process is about to start.
struct Cell {
    init: Pid,
    /// Ends with the daemon.
    lifeline: OwnedFd,
    /// Orders of the daemon.
    control: OwnedFd,
    /// What init tells.
    told: OwnedFd,
    /// Never written to: init sees its end.
    alive: OwnedFd,
    watch: Option<Watch>,
    group: Option<OpenGroup>,
    /// Present if it runs one process after another.
    serial: Option<Serial>,
}

/// What passing orders on needs.
struct Serial {
    /// To init.
    orders: OwnedFd,
    /// In place of a process's outputs while there is none.
    nothing: OwnedFd,
}

type Failed = (&'static str, io::Error);
const STDERR: i32 = 2;
/// The stage of joining a control group.
const GROUP: &str = "control group";

fn open(plan: &Plan) -> Result<Cell, Failed> {
    let at = |stage: &'static str| move |reason: io::Error| (stage, reason);
    let lifeline = sys::inherited(LIFELINE).map_err(at("start"))?;
    let control = sys::inherited(CONTROL).map_err(at("start"))?;
    let mut group = match &plan.memory {
        Memory::Group(group) => Some(OpenGroup::join(group).map_err(at(GROUP))?),
        Memory::Unbounded | Memory::Watched(_) => None,
    };
    // Also for this process: what it carries out is the handler's work.
    let nice = rustix::process::nice(NICENESS).map_err(io::Error::from);
    nice.map_err(at("priority"))?;
    let user = plan.room.as_ref().map(|room| room.user);
    if user == Some(User::Nobody) {
        enter_user_namespace().map_err(at("user namespace"))?;
    }
    let pipe = || pipe().map_err(at("start"));
    let ((alive, our_alive), (told, tell), (go, let_go)) = (pipe()?, pipe()?, pipe()?);
    let (serial, orders) = match plan.takes_orders {
        true => open_line().map(|(serial, orders)| (Some(serial), Some(orders))),
        false => Ok((None, None)),
    }
    .map_err(at("start"))?;
    let namespaces = if plan.room.is_some() { sys::NAMESPACES } else { 0 };
    let outer = process::id().cast_signed();
    let init = match sys::fork(namespaces).map_err(at("namespaces"))? {
        0 => {
            drop((our_alive, told, let_go, lifeline, control, group, serial));
            init::run(plan, Ties { alive, tell, go, orders, outer });
        }
        init => Pid::from_raw(init).expect("a child has a number above 0"),
    };
    drop((alive, tell, go, orders));
    if let Some(group) = &mut group {
        group.add_init(init).map_err(at(GROUP))?;
    }
    for (first, last) in OF_HANDLER {
        sys::close_range(first, last);
    }
    let (alive, watch) = (our_alive, None);
    let mut cell = Cell { init, lifeline, control, told, alive, watch, group, serial };
    if let Some(policy) = &plan.network {
        // Without a listener, init reports why itself.
        if let Some(listener) = cell.take_listener().map_err(at("network"))? {
            let own = plan.room.is_none().then(|| own_places(plan));
            cell.watch = Some(Watch::new(listener, policy, own).map_err(at("network"))?);
        }
    }
    drop(sys::inherited(REPORT));
    give_up_rights(user).map_err(at("rights"))?;
    // Before the handler can take all tasks that its group may have.
    end_with_daemon(&cell.lifeline);
    // From here on init may start the handler's process.
    fs::File::from(let_go).write_all(&[1]).map_err(at("start"))?;
    Ok(cell)
}

/// Where it may use sockets and change files, if it has no root of its own that decides that.
fn own_places(plan: &Plan) -> OwnPlaces {
    let cwd = std::slice::from_ref(&plan.cwd);
    let writable = plan.files.as_ref().map_or(cwd, |files| &files.write[..]);
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    OwnPlaces { sockets: plan.cwd.clone(), files: writable.iter().map(real).collect() }
}

/// The line to init.
fn open_line() -> io::Result<(Serial, OwnedFd)> {
    let (orders, theirs) = sys::socket::message_pair()?;
    let nothing = moved(&sys::borrowed(STDERR))?;
    Ok((Serial { orders: moved(&orders)?, nothing }, moved(&theirs)?))
}

/// A pipe whose ends have none of the numbers that are handed over.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((moved(&reader)?, moved(&writer)?))
}

fn moved(descriptor: &impl AsFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(descriptor, CONTROL + 1)?)
}

/// In it, the daemon's user is called nobody, and this process may do what root can, but only to
/// what belongs to the namespace.
fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    sys::unshare(libc::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{NOBODY} {} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{NOBODY} {} 1", group.as_raw()))
}

/// Ends this process, and with it init, when the daemon is gone: in a thread that does nothing
/// else, whatever the calls of the cell do to this one.
fn end_with_daemon(lifeline: &OwnedFd) {
    let Ok(lifeline) = lifeline.try_clone() else { sys::exit(init::FAILED) };
    let watched = std::thread::Builder::new().spawn(move || {
        let mut pipe = [PollFd::new(&lifeline, PollFlags::IN)];
        while !rustix::event::poll(&mut pipe, None).is_ok_and(|ready| ready > 0) {}
        sys::exit(init::FAILED)
    });
    if watched.is_err() {
        sys::exit(init::FAILED);
    }
}

/// What is left is what carrying out the cell's calls needs.
fn give_up_rights(user: Option<User>) -> io::Result<()> {
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    sys::drop_bounding_set();
    match user {
        // Even if both are root, it does no more for the handler than that could do itself. Not
        // every daemon has this right to keep.
        None => return sys::keep_capabilities(TRACE).or_else(|_| sys::keep_capabilities(0)),
        // Only over what belongs to its user namespace.
        Some(User::Nobody) => sys::keep_capabilities(TRACE)?,
        // It is the same user as the handler's process, and may look into no other.
        Some(User::Number(number)) => {
            sys::become_user(number)?;
            sys::keep_capabilities(0)?;
        }
    }
    sys::prctl(libc::PR_SET_DUMPABLE, 0)
}

impl Cell {
    /// The descriptor that shows the calls to decide, which init has opened.
    fn take_listener(&self) -> io::Result<Option<OwnedFd>> {
        let Some(number) = self.next_number() else { return Ok(None) };
        let process = rustix::process::pidfd_open(self.init, PidfdFlags::empty())?;
        notify::descriptor_of(process.as_fd(), number).map(Some)
    }

    /// The next number that init tells; `None` if it is gone.
    fn next_number(&self) -> Option<i32> {
        let mut bytes = [0; 4];
        let mut told = fs::File::from(self.told.try_clone().ok()?);
        told.read_exact(&mut bytes).ok()?;
        Some(i32::from_le_bytes(bytes))
    }

    /// Carries out calls until the handler's process has ended, then ends like it.
    fn watch_to_end(self) -> ! {
        loop {
            let mut waiting = vec![
                PollFd::new(&self.told, PollFlags::IN),
                PollFd::new(&self.lifeline, PollFlags::IN),
                PollFd::new(&self.control, PollFlags::IN),
            ];
            let polled = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let used_up = self.group.as_ref().and_then(OpenGroup::used_up);
            // Always there, so that the others have fixed places; nothing happens to it twice.
            waiting.push(polled(used_up.unwrap_or(self.lifeline.as_fd())));
            if let Some(watch) = &self.watch {
                let (ended, calls) = watch.events();
                waiting.extend([Some(ended), calls].into_iter().flatten().map(polled));
            }
            match rustix::event::poll(&mut waiting, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => sys::exit(init::FAILED),
            }
            let ready: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
            drop(waiting);
            if !ready[0].is_empty() {
                match self.next_number() {
                    Some(status) if self.goes_on_after(status) => self.answer(status),
                    status => self.end(status),
                }
            }
            let has_ended = |ready: PollFlags| ready == PollFlags::HUP;
            if !ready[1].is_empty() || has_ended(ready[2]) {
                // The daemon is gone: so is init, as soon as this process is.
                sys::exit(init::FAILED);
            }
            if ready[2].contains(PollFlags::IN) {
                match &self.serial {
                    Some(serial) => self.pass_order(serial),
                    None => self.limit_cpu(),
                }
            }
            if !ready[3].is_empty() {
                // The kernel ends one process, and this all others.
                self.end(Some(init::OVER_MEMORY));
            }
            let Some(watch) = &self.watch else { continue };
            if ready[4].contains(PollFlags::IN) {
                watch.drain_ended();
            }
            // Otherwise this process would wait for a call, and for nothing else.
            if ready.get(5).is_some_and(|ready| ready.contains(PollFlags::IN)) {
                watch.next_call();
            }
        }
    }

    /// The next process writes to another log. What does not arrive ends the cell.
    fn pass_order(&self, serial: &Serial) {
        let Ok(Some(order)) = order::next(&self.control) else { sys::exit(init::FAILED) };
        let passed = sys::copy_to(&order.descriptors[2], STDERR)
            .and_then(|()| order::pass(&serial.orders, &order));
        if passed.is_err() {
            sys::exit(init::FAILED);
        }
    }

    /// A process has ended, and everything that it started. Calls that still wait would take room
    /// from the next one.
    fn answer(&self, status: i32) {
        let Some(serial) = &self.serial else { return };
        let is_usable = self.watch.as_ref().is_none_or(Watch::is_idle);
        let answered = sys::copy_to(&serial.nothing, STDERR)
            .and_then(|()| order::tell_answer(&self.control, status, is_usable));
        if answered.is_err() {
            sys::exit(init::FAILED);
        }
    }

    /// Whether the cell can run another process after one that ended like this.
    fn goes_on_after(&self, status: i32) -> bool {
        self.serial.is_some() && status != init::OVER_MEMORY && !self.is_over_memory()
    }

    fn is_over_memory(&self) -> bool {
        self.group.as_ref().is_some_and(OpenGroup::was_used_up)
    }

    /// The only order to a cell of one process: how much CPU time that may use in all.
    fn limit_cpu(&self) {
        let mut seconds = [0; 8];
        let order = rustix::io::read(&self.control, &mut seconds);
        if let (Ok(8), Some(main)) = (order, proc::only_child(self.init)) {
            isolate::limit_cpu(main, u64::from_le_bytes(seconds));
        }
    }

    /// When init is gone, so are all processes of its namespace. `status` is that of the handler's
    /// process, if init has told it.
    fn end(self, status: Option<i32>) -> ! {
        let over = self.is_over_memory().then_some(init::OVER_MEMORY);
        let init = self.init;
        // One that waits for orders ends with this pipe.
        drop(self.alive);
        let of_init = wait_for(init);
        sys::end_like(over.or(status).unwrap_or(of_init))
    }
}

/// The status of a child, when it has ended.
fn wait_for(wanted: Pid) -> i32 {
    loop {
        match sys::wait_any() {
            Some((child, status)) if child == wanted.as_raw_pid() => return status,
            Some(_) => {}
            None => return init::FAILED << 8,
        }
    }
}
