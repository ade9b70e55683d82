//! The plan of a cell: everything about one process, decided by the daemon.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use super::group::CellGroup;

/// Largest plan that is read; an environment is bounded far below.
const PLAN_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: PathBuf,
    /// Resource, current limit, maximum; the kernel's numbers.
    pub(crate) limits: Vec<(u32, u64, u64)>,
    /// Absent if the machine has no namespaces for handlers.
    pub(crate) room: Option<Room>,
    /// Whether system calls that no handler needs are refused.
    pub(crate) filter: bool,
    /// Absent if connections are not watched.
    pub(crate) network: Option<String>,
    /// Absent if Landlock is not in force.
    pub(crate) files: Option<Files>,
    pub(crate) memory: Memory,
    /// Whether it runs one process after another, as ordered (`order`), and not just one.
    pub(crate) takes_orders: bool,
}

/// How the memory of all processes together is bounded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Memory {
    Unbounded,
    /// By the kernel.
    Group(CellGroup),
    /// Processes have at most so many bytes, which init adds up, and no way to get memory that
    /// belongs to none of them.
    Watched(u64),
}

/// Namespaces of its own, with a private root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Room {
    pub(crate) user: User,
    /// An empty directory, on which the new root is mounted.
    pub(crate) base: PathBuf,
    /// What is visible at the same place as outside, read-only and writable.
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// What the daemon hands to the process, read-only.
    pub(crate) inbox: PathBuf,
    /// Size of everything that the process can write.
    pub(crate) scratch_bytes: u64,
}

/// As whom the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum User {
    /// A user namespace in which the daemon's own user is called nobody.
    Nobody,
    /// A user made from the name of the tenant. Only root can do that.
    Number(u32),
}

/// What Landlock allows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Files {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
}

impl Plan {
    /// Whether memory that is shared without a file is refused.
    pub(crate) fn refuses_shared_memory(&self) -> bool {
        matches!(self.memory, Memory::Watched(_))
    }

    /// A file in memory that holds the plan.
    pub(crate) fn to_file(&self) -> io::Result<OwnedFd> {
        let file = rustix::fs::memfd_create(c"plan", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file.into())
    }

    pub(crate) fn from_file(file: OwnedFd) -> io::Result<Plan> {
        let mut text = Vec::new();
        File::from(file).take(PLAN_BYTES_MAX).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}
