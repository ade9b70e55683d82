//! The first process of a cell. It builds the root, starts the handler's process, adopts what that
//! leaves behind, and is gone when it has ended; the kernel then ends everything else.
//!
//! Without namespaces it ends what is left by itself: orphans become its children.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::process::{Gid, Signal, Uid, WaitOptions};

use super::plan::{Plan, User};
use super::{REPORT, filter, root, sys};
use crate::{isolate, kill};

/// Exit code of a cell that did not work.
pub(super) const FAILED: i32 = 70;
const HOST_NAME: &str = "windlass";
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
    /// Number of the outer process.
    pub(super) outer: i32,
}

pub(super) fn run(plan: &Plan, ties: Ties) -> ! {
    let has_room = plan.room.is_some();
    let Started { main, tell, alive } = match prepare(plan, ties) {
        Ok(started) => started,
        Err((stage, reason)) => {
            if let Ok(report) = sys::inherited(REPORT) {
                self::tell(report, stage, &reason);
            }
            sys::exit(FAILED);
        }
    };
    end_with_outer(alive, has_room);
    let status = wait_for(main);
    if !has_room {
        end_all();
    }
    let _ = File::from(tell).write_all(&status.to_le_bytes());
    sys::exit(0)
}

/// The handler's process runs.
struct Started {
    main: i32,
    tell: OwnedFd,
    alive: OwnedFd,
}

/// Ends this process, and so everything inside, when the outer process is gone. The signal for that
/// is not enough: an outer process that has become another user cannot send it to root.
fn end_with_outer(alive: OwnedFd, has_room: bool) {
    let watched = std::thread::Builder::new().spawn(move || {
        let mut pipe = [PollFd::new(&alive, PollFlags::IN)];
        while !rustix::event::poll(&mut pipe, None).is_ok_and(|ready| ready > 0) {}
        if !has_room {
            end_all();
        }
        sys::exit(FAILED)
    });
    if watched.is_err() {
        sys::exit(FAILED);
    }
}

/// Tells the daemon why there is no process.
pub(super) fn tell(report: OwnedFd, stage: &str, reason: &io::Error) {
    let errno = reason.raw_os_error().unwrap_or(libc::EIO);
    let mut message = errno.to_le_bytes().to_vec();
    message.extend(format!("{stage}: {reason}").bytes());
    let _ = File::from(report).write_all(&message);
}

fn prepare(plan: &Plan, ties: Ties) -> Result<Started, (&'static str, io::Error)> {
    let at = |stage: &'static str| move |reason: io::Error| (stage, reason);
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64).map_err(at("start"))?;
    if has_ended(&ties.alive) {
        sys::exit(FAILED);
    }
    match &plan.room {
        Some(room) => {
            root::enter(room).map_err(at("private root"))?;
            sys::set_host_name(HOST_NAME).map_err(at("host name"))?;
        }
        None => sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).map_err(at("start"))?,
    }
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(at("rights"))?;
    let mut tell = File::from(ties.tell);
    let listener = match &plan.network {
        Some(_) => {
            let listener = listen().map_err(at("system call filter"))?;
            tell.write_all(&listener.as_raw_fd().to_le_bytes()).map_err(at("start"))?;
            Some(listener)
        }
        None => None,
    };
    let mut go = File::from(ties.go);
    go.read_exact(&mut [0]).map_err(at("start"))?;
    drop(listener);
    // Nothing inside may look into this process.
    sys::prctl(libc::PR_SET_DUMPABLE, 0).map_err(at("rights"))?;
    // The same number inside as that of the outer process outside, if it is free.
    let forked = match &plan.room {
        Some(_) => sys::fork_numbered(ties.outer).or_else(|_| sys::fork(0)),
        None => sys::fork(0),
    };
    match forked.map_err(at("process"))? {
        0 => become_main(plan),
        main => {
            sys::close_range(0, 5);
            drop(sys::inherited(REPORT));
            Ok(Started { main, tell: tell.into(), alive: ties.alive })
        }
    }
}

/// Asks for calls to be decided outside. A signal must not interrupt one that is being carried out,
/// where the kernel knows how.
fn listen() -> io::Result<OwnedFd> {
    let program = filter::watched();
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

/// Waits for the handler's process, and for all that end before it.
fn wait_for(main: i32) -> i32 {
    loop {
        match sys::wait_any() {
            Some((child, status)) if child == main => return status,
            Some(_) => {}
            None => return FAILED << 8,
        }
    }
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
fn become_main(plan: &Plan) -> ! {
    let (stage, reason) = match confine(plan) {
        Ok(()) => ("exec", exec(plan)),
        Err(failed) => failed,
    };
    if let Ok(report) = sys::inherited(REPORT) {
        tell(report, stage, &reason);
    }
    sys::exit(FAILED)
}

fn confine(plan: &Plan) -> Result<(), (&'static str, io::Error)> {
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
        let needless = filter::needless(plan.room.is_some());
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
fn exec(plan: &Plan) -> io::Error {
    let texts = |texts: Vec<OsString>| -> io::Result<Vec<CString>> {
        texts.iter().map(sys::c_string).collect()
    };
    let pair =
        |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let env = plan.env.iter().map(|entry| OsStr::from_bytes(&pair(entry)).to_owned()).collect();
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
