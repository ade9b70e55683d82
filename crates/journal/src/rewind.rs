//! Going back: a store that has lost unsynced commits gets everything after its position again.
//!
//! ```text
//! pause: all tickets are void ─► read the segments again ─► replace the unread chunks ─► resume
//! ```
//! The writer continues meanwhile: what it adds is newer than anything that is read again.

use windlass_core::JobId;

use crate::error::Error;
use crate::inner::{Inner, State};
use crate::journal::Journal;
use crate::scan::{Scan, Text};
use crate::segment::{self, Head, Segment};
use crate::spool::blocking;

impl Journal {
    /// Makes everything after `position` unread again (`None`: everything), and nothing else.
    /// Earlier tickets are void: `read` and `commit` return `Expired`.
    ///
    /// Errors: `Gap` if records after `position` have been dropped; `Storage`, `Corrupt`. After an
    /// error, tickets are void as well, and what was unread stays so.
    pub async fn rewind(&self, position: Option<JobId>) -> Result<(), Error> {
        let inner = self.inner.clone();
        blocking(&*self.inner.disk, move || inner.rewind(position)).await
    }
}

/// Resumes reading on drop, even after an error or a panic.
struct Pause<'a>(&'a Inner);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.state().unread.resume();
        self.0.readable.notify_waiters();
    }
}

/// The part of the journal that is read again.
struct RewindRange {
    segments: Vec<Segment>,
    /// Newest id in it.
    newest: Option<JobId>,
}

impl State {
    fn range_after(&self, position: Option<JobId>) -> Result<RewindRange, Error> {
        if let Some(until) = self.dropped.filter(|dropped| Some(*dropped) > position) {
            return Err(Error::Gap { after: position, until });
        }
        let unread = self.segments.iter().filter(|segment| segment.last > position);
        let newest = self.segments.iter().filter_map(|segment| segment.last).max();
        Ok(RewindRange { segments: unread.cloned().collect(), newest })
    }
}

impl Inner {
    fn rewind(&self, position: Option<JobId>) -> Result<(), Error> {
        let _only_one = self.rewinding();
        let range = {
            let mut state = self.state();
            state.unread.pause();
            state.range_after(position)
        };
        let _pause = Pause(self);
        let RewindRange { segments, newest } = range?;
        let mut scan = Scan::new(position);
        for segment in &segments {
            self.scan_again(segment, &mut scan)?;
        }
        let mut state = self.state();
        state.unread.replace_until(newest, scan.unread);
        state.unread.floor = position;
        for segment in state.segments.iter_mut().filter(|segment| segment.last > position) {
            segment.confirmed_at = None;
        }
        Ok(())
    }

    fn scan_again(&self, segment: &Segment, scan: &mut Scan) -> Result<(), Error> {
        let path = segment::path(&self.dir, segment.first);
        let bytes = self.disk.read(&path, 0, segment.bytes as usize);
        let bytes = bytes.map_err(|error| Error::storage("read", &path, &error))?;
        let head_bytes = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
        let head = Head::parse(&bytes[..head_bytes]);
        let head = head.map_err(|what| Error::corrupt(&path, 0, what))?;
        let text = Text { path: &path, segment: segment.first, bytes: &bytes };
        let frames = scan.frames(text, head_bytes, &head.salt)?;
        if frames.end < bytes.len() {
            return Err(Error::corrupt(&path, frames.end as u64, "a frame is damaged"));
        }
        Ok(())
    }
}
