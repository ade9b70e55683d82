//! Going back: a store that forgot what it had not synced gets everything after its position again.
//!
//! ```text
//! pause: all tickets are void ─► read the segments again ─► replace the unread chunks ─► resume
//! ```
//! The writer goes on meanwhile: what it adds is newer than anything that is read again.

use windlass_core::JobId;

use crate::error::Error;
use crate::journal::Journal;
use crate::scan::{Scan, Text};
use crate::segment::{self, Head, Segment};
use crate::shared::{Shared, State};
use crate::spool::blocking;

impl Journal {
    /// Everything after `position` is unread again (`None`: everything), and nothing else is.
    /// Tickets from before are void: `read` and `commit` answer `Expired`.
    ///
    /// Errors: `Gap` when records after `position` have been dropped; `Storage`, `Corrupt`. After
    /// an error tickets are void all the same, and what was unread stays so.
    pub async fn rewind(&self, position: Option<JobId>) -> Result<(), Error> {
        let shared = self.shared.clone();
        blocking(move || shared.rewind(position)).await
    }
}

/// Resumes reading when it is dropped, also after an error or a panic.
struct Pause<'a>(&'a Shared);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.state().unread.resume();
        self.0.readable.notify_waiters();
    }
}

/// The part of the journal that is read again.
struct Stretch {
    segments: Vec<Segment>,
    /// Newest id in it.
    newest: Option<JobId>,
}

impl State {
    fn stretch_after(&self, position: Option<JobId>) -> Result<Stretch, Error> {
        if let Some(until) = self.dropped.filter(|dropped| Some(*dropped) > position) {
            return Err(Error::Gap { after: position, until });
        }
        let unread = self.segments.iter().filter(|segment| segment.last > position);
        let newest = self.segments.iter().filter_map(|segment| segment.last).max();
        Ok(Stretch { segments: unread.cloned().collect(), newest })
    }
}

impl Shared {
    fn rewind(&self, position: Option<JobId>) -> Result<(), Error> {
        let _only_one = self.rewinding();
        let stretch = {
            let mut state = self.state();
            state.unread.pause();
            state.stretch_after(position)
        };
        let _pause = Pause(self);
        let Stretch { segments, newest } = stretch?;
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
