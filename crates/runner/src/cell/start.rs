//! Starts cells, on the daemon's side.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use windlass_core::launch::is_exhaustion;

use super::order::{self, Streams, Variables};
use super::plan::Plan;
use super::{CONTROL, LIFELINE, PLAN, REPORT, WORD};
use crate::gate::Gate;
use crate::isolate::{Channels, Descriptors};
use crate::tree::{self, Main};

/// The lowest number for descriptors that are handed over: above all numbers that they get.
const NUMBER_MIN: i32 = 20;
/// Length of an error number at the beginning of a report.
const ERRNO_BYTES: usize = 4;

/// Starts the cells of one runner. They all end with it.
pub(crate) struct Cells {
    /// The program that becomes an outer process.
    program: PathBuf,
    lifeline: OwnedFd,
    /// Never written to: outer processes see its end.
    _end: OwnedFd,
}

/// Why a cell has no process.
pub(crate) enum NoCell {
    /// The program itself does not start.
    Program(io::Error),
    /// Something else; the text says what.
    Other(io::Error),
}

impl Cells {
    pub(crate) fn new(program: PathBuf) -> io::Result<Cells> {
        let (lifeline, end) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Cells { program, lifeline, _end: end })
    }

    /// Starts a cell and waits until its process runs, or until it waits for orders. Blocks for
    /// some milliseconds. `dir` marks its processes, and standard input is a pipe or empty.
    pub(crate) fn start(
        &self,
        plan: &Plan,
        stdin: Stdio,
        channels: Option<Channels>,
        dir: &Path,
        gate: &Arc<Gate>,
    ) -> Result<Main, NoCell> {
        let (report, mut main) =
            self.spawn(plan, stdin, channels, dir, gate).map_err(NoCell::Other)?;
        read_report(report)?;
        main.has_cell(plan.room.is_some());
        Ok(main)
    }

    fn spawn(
        &self,
        plan: &Plan,
        stdin: Stdio,
        channels: Option<Channels>,
        dir: &Path,
        gate: &Arc<Gate>,
    ) -> io::Result<(OwnedFd, Main)> {
        let moved = |descriptor: &OwnedFd| fcntl_dupfd_cloexec(descriptor, NUMBER_MIN);
        let (report, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut descriptors = Descriptors::of(channels);
        descriptors.add(moved(&plan.to_file()?)?, PLAN);
        descriptors.add(moved(&self.lifeline)?, LIFELINE);
        descriptors.add(moved(&theirs)?, REPORT);
        let (control, theirs_control) = match plan.takes_orders {
            true => order::line()?,
            false => {
                let (orders, control) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
                (control, orders)
            }
        };
        descriptors.add(moved(&theirs_control)?, CONTROL);
        drop(theirs);
        let mut command = Command::new(&self.program);
        command.arg0("windlass").arg(WORD).env_clear().env(tree::MARKER, dir).current_dir("/");
        let output = || if plan.takes_orders { Stdio::null() } else { Stdio::piped() };
        command.stdin(stdin).stdout(output()).stderr(output());
        crate::isolate::hand_over(&mut command, descriptors)?;
        let mut main = Main::start(&mut command, dir, gate)?;
        main.control = Some(control);
        Ok((report, main))
    }
}

/// Starts the next process in a cell that waits for orders.
pub(crate) fn start_next(main: &Main, env: &Variables) -> Result<Streams, NoCell> {
    let control = main.control.as_ref();
    let control = control.ok_or(io::ErrorKind::NotConnected.into()).map_err(NoCell::Other)?;
    order::give(control, env)
}

/// Waits until a process runs, or for the reason why it does not. That text is ours: nothing of the
/// handler has run then.
pub(super) fn read_report(report: OwnedFd) -> Result<(), NoCell> {
    let told = order::read_to_end(report).map_err(NoCell::Other)?;
    let Some((errno, stage)) = told.split_at_checked(ERRNO_BYTES) else { return Ok(()) };
    let errno = errno.try_into().map_or(libc::EIO, i32::from_le_bytes);
    let reason = io::Error::from_raw_os_error(errno);
    let stage = String::from_utf8_lossy(stage).into_owned();
    Err(if stage.starts_with("exec:") {
        NoCell::Program(reason)
    } else if is_exhaustion(&reason) {
        NoCell::Other(reason)
    } else {
        NoCell::Other(io::Error::other(stage))
    })
}
