//! A disk that fails on demand, below unchanged code: the system calls of some threads, or of a
//! child process, are stopped by the kernel (seccomp user notification, Linux 5.19 and later) and
//! decided here. So everything that uses files is covered alike: the journal, SQLite, the standard
//! library; and the binary under test is the one that is shipped.
//!
//! ```text
//! thread, its threads and children ── write, fsync, open … ──► kernel ──► supervisor
//!                                  ◄── error, no answer, or the call is made ──┘
//! ```
//!
//! Tests of an operation call `every_call`, which makes each of its calls fail in turn.
//!
//! | module | owns |
//! |---|---|
//! | `disk` | the handle: which calls fail, and how |
//! | `filter` | the kernel's side: the filter of a thread, the calls that it stops |
//! | `call` | what a stopped call does, and to which file |
//! | `rest` | what goes on when an operation has ended |
//! | `platter` | what a power cut would leave of the files |
//! | `every` | the loop that makes each call of an operation fail in turn |
//! | `tally` | how much that loop has tried |
//! | `wanted` | what the environment asks of it; the command that repeats a run |

mod call;
mod disk;
mod every;
mod filter;
mod platter;
mod rest;
mod tally;
mod wanted;

pub use call::{Call, Kind};
pub use disk::{Fault, FaultyDisk, Plan};
pub use every::{Left, Trial, every_call};
pub use tally::{Tally, Tried};
