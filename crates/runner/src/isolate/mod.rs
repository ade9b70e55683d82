//! Keeping handlers to themselves, with nothing that needs a privilege.
//!
//! | layer | what it does | where |
//! |---|---|---|
//! | session | a session and a process group of its own | `hook` |
//! | signals | every signal as a new process expects it, none blocked | `hook` |
//! | descriptors | nothing but the standard streams, and a context's channels on 3 to 5 | `hook` |
//! | privileges | no capabilities, also for root, and no program gives any | `hook` |
//! | limits | memory, processor time, file size, descriptors, no core files | `limit` |
//! | number of processes | counted while the attempt runs | `count` |
//! | Landlock | which files it may read, execute and write | `landlock` |
//!
//! Namespaces, system call filters and users of their own would be further fields of `Plan` and
//! further steps of the hook.
//!
//! Between fork and exec nothing may allocate or lock, so all that the hook needs is a `Plan` that
//! is made before.

mod count;
mod hook;
mod landlock;
mod limit;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_core::Limits;

use self::landlock::Rules;
use crate::Error;

pub(crate) use self::count::Census;
pub(crate) use self::hook::{Channels, landlock_version};
pub use self::landlock::Landlock;
pub(crate) use self::limit::{limit_reached, set_cpu_budget};

/// How handlers are kept apart on this machine.
#[derive(Debug, Clone)]
pub struct IsolationOptions {
    pub landlock: Landlock,
    /// Further paths that handlers may read and execute, and that they may also write.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// What they may never read, although it lies in a place that they may.
    pub hidden: Vec<PathBuf>,
    /// What handlers may use that do not say it themselves; absent is no limit.
    pub limits: Limits,
}

impl Default for IsolationOptions {
    fn default() -> IsolationOptions {
        let limits = Limits {
            memory: Some(1 << 30),
            cpu: None,
            processes: Some(256),
            file_size: Some(1 << 30),
        };
        IsolationOptions {
            landlock: Landlock::default(),
            read: Vec::new(),
            write: Vec::new(),
            hidden: Vec::new(),
            limits,
        }
    }
}

/// What one process is given.
pub(crate) struct Confine<'a> {
    /// The private directory, with all that it may write.
    pub(crate) dir: &'a Path,
    /// The interpreter, whose installation it may read; an empty path for none.
    pub(crate) program: &'a Path,
    /// What its handler says; the rest is as configured.
    pub(crate) limits: &'a Limits,
    /// Descriptors 3 to 5 of a context.
    pub(crate) channels: Option<Channels>,
}

/// Keeps handlers to themselves; made once for a runner.
pub(crate) struct Isolation {
    limits: Limits,
    /// Absent when Landlock is not in force.
    rules: Option<Rules>,
}

impl Isolation {
    /// `path` is where handlers look for programs.
    pub(crate) fn new(options: &IsolationOptions, path: &str) -> Result<Isolation, Error> {
        hook::reserve_channel_numbers().map_err(Error::System)?;
        let IsolationOptions { read, write, hidden, .. } = options;
        let confined = options.landlock.decide(landlock_version())?;
        let rules = confined.then(|| Rules::new(read, write, hidden, path));
        Ok(Isolation { limits: options.limits.clone(), rules })
    }

    /// What to add to the reason why a program did not start.
    pub(crate) fn hint(&self, reason: &io::Error) -> &'static str {
        let denied = reason.kind() == io::ErrorKind::PermissionDenied;
        if denied && self.rules.is_some() {
            " (handlers run what is installed on the system; isolation.read of the configuration \
             adds to it)"
        } else {
            ""
        }
    }

    /// Makes the process that this command starts a confined one. Blocks for a few system calls.
    pub(crate) fn arm(&self, command: &mut Command, confine: Confine<'_>) -> io::Result<()> {
        let limits = self.effective(confine.limits);
        let in_context = confine.channels.is_some();
        if in_context {
            // Whoever had one of the numbers when the runner was made may have closed it since.
            hook::reserve_channel_numbers()?;
        }
        let rules = self.rules.as_ref();
        let plan = hook::Plan {
            channels: confine.channels,
            limits: limit::resources(&limits, in_context),
            ruleset: rules.map(|rules| rules.compile(confine.dir, confine.program)).transpose()?,
        };
        hook::arm(command, plan);
        Ok(())
    }

    /// The limits in force for a handler that says these.
    pub(crate) fn effective(&self, own: &Limits) -> Limits {
        let default = &self.limits;
        Limits {
            memory: own.memory.or(default.memory),
            cpu: own.cpu.or(default.cpu),
            processes: own.processes.or(default.processes),
            file_size: own.file_size.or(default.file_size),
        }
    }
}
