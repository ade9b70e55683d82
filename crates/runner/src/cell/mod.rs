//! A cell: the place in which one process of a handler runs, with everything that it starts.
//!
//! ```text
//! daemon
//! └─ outer        this program again; carries out what the cell may do outside
//!    └─ init      first process of the namespaces, gone when the handler's process is
//!       └─ main   the handler's process; has its own number, and no rights
//!          └─ …   all gone with init, whatever they do
//! ```
//! | module | owns |
//! |---|---|
//! | `plan` | the plan of a cell, which the daemon makes |
//! | `start` | the daemon's side: starts a cell and learns whether its process runs |
//! | `outer` | the outer process: from the namespaces to the end |
//! | `init` | the first process inside, and the last steps before the handler's program |
//! | `order` | cells that run one process after another |
//! | `root` | the private root: which files exist |
//! | `filter` | which system calls are refused, and which the outer process decides |
//! | `watch` | carries out connections for the cell, if its network policy allows them |
//! | `call`, `message` | the calls that are carried out, and those that send messages |
//! | `file` | changes of files and watching them, where a cell has no root of its own |
//! | `address` | where a call leads, and whether it may |
//! | `group`, `account` | memory of all processes: bounded by the kernel, or added up |
//! | `ports` | how many ports of the machine a cell takes |
//! | `target` | the process that made a call: its memory and descriptors |
//! | `sys` | system calls without a safe form |
//!
//! The outer process ends when the daemon is gone, and init when the outer process is. An outer
//! process runs nothing of the handler: it has its own program, environment and files.

mod account;
mod address;
mod call;
mod file;
mod filter;
mod group;
mod init;
mod message;
mod order;
mod outer;
mod plan;
mod ports;
mod root;
mod start;
mod sys;
mod target;
mod watch;

pub(crate) use self::group::{CellGroup, GroupVersion};
pub(crate) use self::init::OVER_MEMORY;
pub(crate) use self::order::{Streams, Variables, answer};
pub(crate) use self::plan::{Files, Memory, Plan, Room, User};
pub(crate) use self::root::{DEVICES, INBOX, JOB, TMP, WORK};
pub(crate) use self::start::{Cells, NoCell, start_next};

/// The word after its name with which a program becomes the outer process of a cell.
pub const WORD: &str = "windlass-cell";

/// Descriptors of the outer process, after those of the handler's process.
const PLAN: i32 = 6;
const LIFELINE: i32 = 7;
const REPORT: i32 = 8;
const CONTROL: i32 = 9;

/// Becomes the outer process of a cell if the words of the command line say so. Every program that
/// runs handlers calls this first.
pub fn enter_if_told() {
    if std::env::args_os().nth(1).is_some_and(|word| word == WORD) {
        outer::run();
    }
}
