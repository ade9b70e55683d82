//! Durable local accept: what a daemon has answered for is in these files, synced, before the
//! answer leaves.
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
//! | `dropping`, `rewind` | letting go of what the store has, and going back to what it forgot |
//! | `shared` | what handles and the writer share, behind locks |
//! | `entry` | what goes in and what comes out |
//! | `writer` | the one thread that writes, and what happens when the disk refuses |
//! | `segment` | the head of a file, and the chain of files |
//! | `encode`, `decode` | the text of a frame |
//! | `recover` | what is found at the start: torn tails are cut, damage is refused |
//! | `scan` | the records of a segment that are still to be read |
//! | `chunk`, `unread` | what is still to be read, and who has reserved it |
//! | `spool` | payloads too large for a frame |
//! | `disk` | every call to the file system |
//!
//! Invariants: ids in the files only grow; nothing is answered before it is synced; bytes behind
//! the last synced length of a segment are never taken for records once a later segment exists.

mod chunk;
mod decode;
mod disk;
mod dropping;
mod encode;
mod entry;
mod error;
mod journal;
mod reading;
mod recover;
mod rewind;
mod scan;
mod segment;
mod shared;
mod spool;
mod unread;
mod writer;

#[cfg(test)]
mod tests;

pub use disk::create_dir;
pub use entry::{AddPayload, Entry, KeyNote, Record, Stats};
pub use error::Error;
pub use journal::{Journal, Options};
pub use reading::Newest;
pub use spool::{Spool, SpoolWriter};
pub use unread::Ticket;
