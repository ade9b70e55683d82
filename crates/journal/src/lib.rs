//! Durable local accept: everything that a daemon has acknowledged is in these files, synced,
//! before the acknowledgement is sent.
//!
//! ```text
//! append ─► queue ─► writer: ids, one frame, one write, one fdatasync ─► answers
//!                       │
//!                       ▼ chunks of unread records: places in the files, the newest in memory too
//! reserve ─► ticket ─► read ─► (the store commits) ─► commit_until ─► … ─► drop_until: segments go
//!    ▲                               │
//!    └── rewind ◄── (the store has forgotten what it had not synced)
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `journal`, `reading` | the public handle: its writing and its reading half |
//! | `dropping`, `rewind` | deleting what the store has, and going back to what it lost |
//! | `inner` | state shared by handles and the writer, behind locks |
//! | `entry` | entries to append, and records read back |
//! | `writer` | the writer, usually a thread, and what happens if the disk refuses |
//! | `segment` | the head of a file, and the chain of files |
//! | `encode`, `decode` | the text of a frame |
//! | `backup` | which segments a backup copies |
//! | `recover` | recovery at start: torn tails are cut, damage is refused |
//! | `scan` | the unread records of a segment |
//! | `chunk`, `unread` | unread records, and their reservations |
//! | `spool` | payloads too large for a frame |
//! | `disk` | every call to the file system |
//! | `error` | errors, by what the caller does about them |
//! | `fuzz` | rules that any file keeps, for the fuzzer and the tests |
//!
//! Invariants: ids in the files only grow; nothing is acknowledged before it is synced; bytes
//! beyond the last synced length of a segment are never taken for records once a later segment
//! exists.

mod backup;
mod chunk;
mod decode;
mod disk;
mod dropping;
mod encode;
mod entry;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod inner;
mod journal;
mod reading;
mod recover;
mod rewind;
mod scan;
mod segment;
mod spool;
mod unread;
mod writer;

#[cfg(test)]
mod tests;

pub use backup::{file_names, segment_names};
pub use disk::{Disk, DiskFile, Lock, RealDisk, create_dir, on_disk};
pub use entry::{AddPayload, Entry, KeyNote, Record, Stats};
pub use error::Error;
pub use journal::{Journal, Options};
pub use reading::Newest;
pub use spool::{Spool, SpoolWriter};
pub use unread::Ticket;
