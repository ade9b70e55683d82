//! Isolates handlers from each other without any privilege.
//!
//! | layer | what it does | where |
//! |---|---|---|
//! | session | its own session and process group | `hook` |
//! | signals | default handling of every signal, none blocked | `hook` |
//! | descriptors | nothing but the standard streams, and a context's channels on 3 to 5 | `hook` |
//! | privileges | no capabilities, even for root, and no way to gain any | `hook` |
//! | limits | memory, CPU time, file size, descriptors, no core files | `limit` |
//! | number of processes | counted while the attempt runs | `count` |
//! | Landlock | which files it may read, execute and write | `landlock` |
//!
//! Namespaces, system call filters and separate users would be further fields of `Plan` and further
//! steps of the hook.
//!
//! Between fork and exec nothing may allocate or lock, so everything that the hook needs is
//! prepared as a `Plan`.

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

pub(crate) use self::count::ProcessCounter;
pub(crate) use self::hook::{Channels, landlock_version};
pub use self::landlock::Landlock;
pub(crate) use self::limit::{limit_reached, set_cpu_budget};

/// How handlers are isolated on this machine.
#[derive(Debug, Clone)]
pub struct IsolationOptions {
    pub landlock: Landlock,
    /// Additional paths that handlers may read and execute, and additional ones that they may also
    /// write.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// What they may never read, even inside a readable directory.
    pub hidden: Vec<PathBuf>,
    /// Default limits of handlers; absent means no limit.
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

/// The parameters for one process.
pub(crate) struct Confinement<'a> {
    /// The private directory, the only place it may write to.
    pub(crate) dir: &'a Path,
    /// The interpreter, whose installation it may read; an empty path for none.
    pub(crate) program: &'a Path,
    /// What its handler sets; the rest is as configured.
    pub(crate) limits: &'a Limits,
    /// Descriptors 3 to 5 of a context.
    pub(crate) channels: Option<Channels>,
}

/// Isolates handlers; created once per runner.
pub(crate) struct Isolation {
    limits: Limits,
    /// Absent if Landlock is not in force.
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

    /// A hint to append to the reason why a program did not start.
    pub(crate) fn hint(&self, reason: &io::Error) -> &'static str {
        let denied = reason.kind() == io::ErrorKind::PermissionDenied;
        if denied && self.rules.is_some() {
            " (handlers can run only what is installed on the system; allow more with \
             isolation.read)"
        } else {
            ""
        }
    }

    /// Confines the process that this command starts. Blocks for a few system calls.
    pub(crate) fn arm(&self, command: &mut Command, confine: Confinement<'_>) -> io::Result<()> {
        let limits = self.effective(confine.limits);
        let in_context = confine.channels.is_some();
        if in_context {
            // A descriptor that had one of the numbers when the runner was created may be closed by
            // now.
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

    /// The limits in force for a handler with these settings.
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
