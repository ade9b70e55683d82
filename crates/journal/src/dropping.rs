//! Deletes what the store has: segments and files of large payloads, some time after a synced
//! commit confirmed them.

use std::path::Path;
use std::time::Duration;

use windlass_core::{JobId, Timestamp};

use crate::error::Error;
use crate::inner::{Inner, State};
use crate::journal::Journal;
use crate::segment::{self, Segment};
use crate::spool::blocking;

impl Journal {
    /// The store has everything up to `position`, synced, so it is not read any more. Deletes the
    /// segments, with their payload files, that were confirmed like this at least `segment_keep`
    /// ago. The newest segment stays. Does nothing during a rewind.
    ///
    /// `Storage` if a file could not be removed; the next call tries again.
    pub async fn drop_until(&self, position: JobId) -> Result<(), Error> {
        let (now, keep) = (self.inner.clock.now(), self.inner.segment_keep);
        let (segments, spools) = {
            let mut state = self.inner.state();
            if !state.commit_until(&self.inner, position) {
                return Ok(());
            }
            state.confirm(position, now);
            (state.due_segments(now, keep), state.due_spools(position, keep))
        };
        if segments.is_empty() && spools.is_empty() {
            return Ok(());
        }
        let inner = self.inner.clone();
        blocking(&*self.inner.disk, move || inner.delete(&segments, &spools)).await
    }

    /// Deletes a journal, usually an adopted one, whose records are all in the store and synced.
    /// `Unread` if something has not been committed.
    pub async fn remove(self) -> Result<(), Error> {
        let records = self.inner.state().unread.records();
        if records > 0 {
            return Err(Error::Unread { records });
        }
        self.stop_writer().await;
        let (segments, spools) = {
            let state = self.inner.state();
            let segments: Vec<_> = state.segments.iter().map(|segment| segment.first).collect();
            let spools: Vec<_> = state.spools.keys().cloned().collect();
            (segments, spools)
        };
        let inner = self.inner.clone();
        blocking(&*self.inner.disk, move || {
            inner.delete(&segments, &spools)?;
            let removed = inner.disk.remove_dir(&inner.dir);
            removed.map_err(|error| Error::storage("remove", &inner.dir, &error))
        })
        .await?;
        self.close().await;
        Ok(())
    }
}

impl State {
    fn confirm(&mut self, position: JobId, now: Timestamp) {
        for segment in &mut self.segments {
            let whole = segment.last.is_none_or(|last| last <= position);
            if whole && self.active != Some(segment.first) {
                // If the clock was set back, it would be kept for too long.
                let at = segment.confirmed_at.map_or(now, |at| at.min(now));
                segment.confirmed_at = Some(at);
            }
        }
    }

    /// Only from the front, so that the rest is an unbroken chain, and never all of it, so that the
    /// chain is known after a restart.
    fn due_segments(&mut self, now: Timestamp, keep: Duration) -> Vec<JobId> {
        let is_due = |segment: &&Segment| {
            segment.confirmed_at.is_some_and(|confirmed_at| now.since(confirmed_at) >= keep)
        };
        let all_but_one = self.segments.len().saturating_sub(1);
        let due: Vec<&Segment> =
            self.segments.iter().take(all_but_one).take_while(is_due).collect();
        // Recorded before the removal, so that nothing relies on what may be gone.
        self.dropped = due.iter().filter_map(|segment| segment.last).max().max(self.dropped);
        due.into_iter().map(|segment| segment.first).collect()
    }

    /// A payload is removed with its segment, or at once if segments are not kept: a single segment
    /// may refer to many large ones, and take long to fill.
    fn due_spools(&mut self, position: JobId, keep: Duration) -> Vec<String> {
        let until = if keep.is_zero() { Some(position) } else { self.dropped };
        let due = self.spools.iter().filter(|(_, id)| Some(**id) <= until);
        let (names, ids): (Vec<String>, Vec<JobId>) =
            due.map(|(name, id)| (name.clone(), *id)).unzip();
        self.dropped = ids.into_iter().max().max(self.dropped);
        names
    }
}

impl Inner {
    /// Removes as many of these files as possible, and forgets those that are gone for good.
    fn delete(&self, segments: &[JobId], spools: &[String]) -> Result<(), Error> {
        let mut removed = Ok(());
        for name in spools {
            match self.remove(&self.spool_dir.join(name)) {
                Ok(()) => drop(self.state().spools.remove(name)),
                Err(error) => removed = removed.and(Err(error)),
            }
        }
        for first in segments {
            if let Err(error) = self.remove(&segment::path(&self.dir, *first)) {
                // The rest stays an unbroken chain.
                removed = removed.and(Err(error));
                break;
            }
            self.state().segments.pop_front_if(|segment| segment.first == *first);
        }
        let dirs = [(&self.spool_dir, spools.is_empty()), (&self.dir, segments.is_empty())];
        for (dir, _) in dirs.into_iter().filter(|(_, unchanged)| !unchanged) {
            let synced = self.disk.sync_dir(dir);
            removed = removed.and(synced.map_err(|error| Error::storage("sync", dir, &error)));
        }
        removed
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.disk.remove(path).map_err(|error| Error::storage("remove", path, &error))
    }
}
