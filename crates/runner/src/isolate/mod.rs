//! Isolates handlers from each other, from the daemon and from the machine, without any privilege.
//!
//! | layer | what it does | where |
//! |---|---|---|
//! | session | its own session and process group | `cell::init`, `hook` |
//! | signals | default handling of every signal, none blocked | `hook` |
//! | descriptors | nothing but the standard streams, and a context's channels on 3 to 5 | `hook` |
//! | namespaces | own processes, files, network, message queues, names | `cell` |
//! | user | nobody; if the daemon is root, a user of the tenant's own | `cell::outer` |
//! | network | connections are made by the outer process, where the policy allows | `cell::watch` |
//! | privileges | no capabilities, even for root, and no way to gain any | `cell::init`, `hook` |
//! | limits | memory, CPU time, file size, scratch space, descriptors, no core files | `limit` |
//! | memory of a cell | by control groups, or added up | `group`, `hierarchy`, `cell::account` |
//! | number of processes | counted while the attempt runs | `count` |
//! | system calls | those that no handler needs are refused | `cell::filter` |
//! | Landlock | which files it may read, execute and write, behind the private root | `landlock` |
//!
//! `level` finds out which of them this machine allows. At level `off`, a process is started
//! without a cell, and has only what `hook` gives it.

mod count;
mod group;
mod hierarchy;
mod hook;
mod landlock;
mod level;
mod limit;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use windlass_core::launch::is_exhaustion;
use windlass_core::{Limits, Tenant};

use self::landlock::Paths;
use crate::Error;
use crate::cell::{self, Cells, Files, Memory, NoCell, Plan, Room, User};
use crate::gate::Gate;
use crate::launch::NotStarted;
use crate::scratch::{AttemptDir, Scratch};
use crate::tree::Main;

pub(crate) use self::count::ProcessCounter;
pub(crate) use self::group::Group;
use self::group::Groups;
pub(crate) use self::hook::{Channels, Descriptors, landlock_version, reset_signals};
pub use self::landlock::Landlock;
pub(crate) use self::landlock::restrict_files;
pub use self::level::{Layers, Level, Missing};
pub(crate) use self::limit::{describe_end, limit_cpu, set_cpu_budget};

/// What programs look up about the processors.
const PROCESSORS: &str = "/sys/devices/system";
/// Size of what a process can write if no other is configured.
const SCRATCH_BYTES: u64 = 256 << 20;

/// How handlers are isolated on this machine.
#[derive(Debug, Clone)]
pub struct IsolationOptions {
    pub level: Level,
    /// The program that becomes the outer process of a cell (`cell::enter_if_told`).
    pub cell_program: PathBuf,
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
            scratch: Some(256 << 20),
        };
        IsolationOptions {
            level: Level::default(),
            cell_program: "/proc/self/exe".into(),
            landlock: Landlock::default(),
            read: Vec::new(),
            write: Vec::new(),
            hidden: Vec::new(),
            limits,
        }
    }
}

/// One process to start.
pub(crate) struct Order<'a> {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) stdin: Stdio,
    /// Descriptors 3 to 5 of a context.
    pub(crate) channels: Option<Channels>,
    /// The private directory.
    pub(crate) dir: &'a AttemptDir,
    /// The interpreter, whose installation it may read; an empty path for none.
    pub(crate) program: &'a Path,
    pub(crate) tenant: &'a Tenant,
    /// What its handler sets; the rest is as configured.
    pub(crate) limits: &'a Limits,
    /// What it may connect to, as text.
    pub(crate) network: String,
}

/// The directories of a process, as it sees them.
pub(crate) struct Places {
    pub(crate) dir: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) tmp: PathBuf,
    /// What the daemon hands over.
    pub(crate) inbox: PathBuf,
}

/// Isolates handlers; created once per runner.
pub(crate) struct Isolation {
    limits: Limits,
    paths: Paths,
    /// Whether Landlock is in force.
    landlock: bool,
    layers: Layers,
    cells: Cells,
    /// Absent if this machine has no control groups for the daemon.
    groups: Option<Groups>,
}

impl Isolation {
    /// `path` is where handlers look for programs.
    pub(crate) fn new(
        options: &IsolationOptions,
        path: &str,
        scratch: &Scratch,
    ) -> Result<Isolation, Error> {
        hook::reserve_numbers().map_err(Error::System)?;
        let IsolationOptions { read, write, hidden, .. } = options;
        let landlock = options.landlock.decide(landlock_version())?;
        let cells = Cells::new(options.cell_program.clone()).map_err(Error::System)?;
        let mut isolation = Isolation {
            limits: options.limits.clone(),
            paths: Paths::new(read, write, hidden, path),
            landlock,
            layers: Layers::default(),
            cells,
            groups: None,
        };
        isolation.layers = level::find_layers(options.level, &isolation, scratch)?;
        isolation.bound_memory(scratch);
        Ok(isolation)
    }

    /// Finds out how the memory of whole cells is bounded here.
    fn bound_memory(&mut self, scratch: &Scratch) {
        if !self.layers.is_cell {
            return;
        }
        match Groups::open(scratch.root()).and_then(|groups| {
            level::try_group(self, &groups, scratch)?;
            Ok(groups)
        }) {
            Ok(groups) => self.groups = Some(groups),
            Err(reason) => self.layers.lacks_groups(reason),
        }
    }

    /// What is in force on this machine.
    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Where a process finds its directories.
    pub(crate) fn places(&self, dir: &AttemptDir) -> Places {
        if self.layers.room.is_some() {
            self.places_inside()
        } else {
            let path = dir.path().to_owned();
            Places { dir: path, work: dir.work(), tmp: dir.tmp(), inbox: dir.inbox() }
        }
    }

    /// The same in a room, whatever its directory is.
    pub(crate) fn places_inside(&self) -> Places {
        Places {
            dir: cell::JOB.into(),
            work: cell::WORK.into(),
            tmp: cell::TMP.into(),
            inbox: cell::INBOX.into(),
        }
    }

    /// Whether cells can run one process after another: only in namespaces can everything be ended
    /// and made new.
    pub(crate) fn keeps_cells(&self) -> bool {
        self.layers.is_cell && self.layers.room.is_some()
    }

    /// Starts a process in isolation. Blocks for some milliseconds.
    pub(crate) fn start(&self, order: Order<'_>, gate: &Arc<Gate>) -> Result<Main, NotStarted> {
        let name = order.argv.first().cloned().unwrap_or_default();
        let started = match self.layers.is_cell {
            true => self.start_cell(order, gate, false),
            false => self.start_bare(order, gate).map_err(NoCell::Program),
        };
        started.map_err(|reason| self.not_started(&name, reason))
    }

    /// Opens a cell that waits for orders (`cell::start_next`) to run this one time after another.
    pub(crate) fn open(&self, order: Order<'_>, gate: &Arc<Gate>) -> Result<Main, NotStarted> {
        let name = order.argv.first().cloned().unwrap_or_default();
        let opened = self.start_cell(order, gate, true);
        opened.map_err(|reason| self.not_started(&name, reason))
    }

    pub(crate) fn not_started(&self, program: &OsStr, reason: NoCell) -> NotStarted {
        match reason {
            NoCell::Program(reason) | NoCell::Other(reason) if is_exhaustion(&reason) => {
                NotStarted::Exhausted(reason)
            }
            NoCell::Program(reason) => {
                let (name, hint) = (program.to_string_lossy(), self.hint(&reason));
                NotStarted::Refused(format!("{name} cannot be started: {reason}{hint}"))
            }
            NoCell::Other(reason) => {
                NotStarted::Refused(format!("its isolation cannot be set up: {reason}"))
            }
        }
    }

    fn start_cell(
        &self,
        order: Order<'_>,
        gate: &Arc<Gate>,
        takes_orders: bool,
    ) -> Result<Main, NoCell> {
        let places = self.places(order.dir);
        let limits = self.effective(order.limits);
        let in_context = order.channels.is_some();
        let layers = &self.layers;
        let group = self.group(&limits).map_err(NoCell::Other)?;
        let room = layers.room.map(|user| self.room(user, &order, limits.scratch));
        let plan = Plan {
            argv: order.argv,
            env: order.env,
            limits: limit::numbers(&limit::resources(&limits, in_context, layers.room)),
            files: self.landlock.then(|| self.files(room.as_ref(), order.program, order.dir)),
            room,
            cwd: places.work,
            filter: layers.filter,
            network: layers.network.then_some(order.network),
            memory: memory(&limits, group.as_ref()),
            takes_orders,
        };
        let main = self.cells.start(&plan, order.stdin, order.channels, order.dir.path(), gate);
        main.map(|mut main| {
            main.group = group;
            main
        })
    }

    /// A control group with room for the memory of the processes and for their scratch space, which
    /// is memory, too.
    fn group(&self, limits: &Limits) -> io::Result<Option<Group>> {
        let Some(groups) = &self.groups else { return Ok(None) };
        let scratch = limits.scratch.unwrap_or(SCRATCH_BYTES);
        let memory = limits.memory.map(|memory| memory.saturating_add(scratch));
        groups.make(memory, limits.processes.map(limit::tasks_max)).map(Some)
    }

    fn room(&self, user: User, order: &Order<'_>, scratch: Option<u64>) -> Room {
        let user = match user {
            User::Nobody => User::Nobody,
            User::Number(_) => User::Number(level::user_of(order.tenant)),
        };
        Room {
            user,
            base: order.dir.root(),
            read: self.visible(order.program),
            write: self.paths.write.clone(),
            inbox: order.dir.inbox(),
            scratch_bytes: scratch.unwrap_or(SCRATCH_BYTES),
        }
    }

    /// What is visible in a room; it has its own `/proc`.
    fn visible(&self, program: &Path) -> Vec<PathBuf> {
        let kernel = |path: &PathBuf| path.starts_with("/proc") || path.starts_with("/sys");
        let mut read = self.paths.readable(program);
        read.retain(|path| !kernel(path));
        read.push(PROCESSORS.into());
        read
    }

    /// In a room of its own, everything that exists may be read.
    fn files(&self, room: Option<&Room>, program: &Path, dir: &AttemptDir) -> Files {
        let mut files = match room {
            Some(_) => Files {
                read: vec!["/".into()],
                write: [cell::WORK, cell::TMP, "/job/tmp", "/dev/shm"].map(Into::into).into(),
            },
            None => {
                let mut read = self.paths.readable(program);
                // What the daemon hands over.
                read.push(dir.inbox());
                Files { read, write: vec![dir.work(), dir.tmp()] }
            }
        };
        files.write.extend(self.paths.write.iter().cloned());
        files
    }

    /// Without a cell: only what can be done between fork and exec.
    fn start_bare(&self, order: Order<'_>, gate: &Arc<Gate>) -> io::Result<Main> {
        let limits = self.effective(order.limits);
        let in_context = order.channels.is_some();
        let own = [order.dir.work(), order.dir.tmp()];
        let rules = || self.paths.compile(order.program, order.dir.path(), &own);
        let program = order.argv.first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(&order.argv[1..]).env_clear().envs(order.env).current_dir(order.dir.work());
        command.stdin(order.stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        hook::reserve_numbers()?;
        let confined = hook::Confined {
            limits: limit::resources(&limits, in_context, None),
            ruleset: self.landlock.then(rules).transpose()?,
        };
        let descriptors = Descriptors::of(order.channels);
        hook::arm(&mut command, hook::Plan { descriptors, confined: Some(confined) });
        Main::start(&mut command, order.dir.path(), gate)
    }

    /// A hint to append to the reason why a program did not start.
    fn hint(&self, reason: &io::Error) -> &'static str {
        let absent =
            matches!(reason.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound);
        if absent && (self.landlock || self.layers.room.is_some()) {
            " (handlers can run only what is installed on the system; allow more with \
             isolation.read)"
        } else {
            ""
        }
    }

    /// The limits in force for a handler with these settings.
    pub(crate) fn effective(&self, own: &Limits) -> Limits {
        let default = &self.limits;
        Limits {
            memory: own.memory.or(default.memory),
            cpu: own.cpu.or(default.cpu),
            processes: own.processes.or(default.processes),
            file_size: own.file_size.or(default.file_size),
            scratch: own.scratch.or(default.scratch),
        }
    }
}

/// How the memory of a cell is bounded.
fn memory(limits: &Limits, group: Option<&Group>) -> Memory {
    match (group, limits.memory) {
        (Some(group), _) => Memory::Group(group.of_cell().clone()),
        (None, Some(bytes)) => Memory::Watched(bytes),
        (None, None) => Memory::Unbounded,
    }
}

/// Gives these descriptors to the process that the command starts, in a session of its own.
pub(crate) fn hand_over(command: &mut Command, descriptors: Descriptors) -> io::Result<()> {
    // A descriptor that had one of the numbers when the runner was created may be closed by now.
    hook::reserve_numbers()?;
    hook::arm(command, hook::Plan { descriptors, confined: None });
    Ok(())
}
