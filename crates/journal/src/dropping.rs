//! Letting go of what the store has: segments and the files of large payloads, some time after a
//! synced commit confirmed them.

use std::path::Path;
use std::time::Duration;

use windlass_core::{JobId, Timestamp};

use crate::error::Error;
use crate::journal::Journal;
use crate::segment::{self, Segment};
use crate::shared::{Shared, State};
use crate::spool::blocking;

impl Journal {
    /// The store has everything up to `position`, synced: it is not read any more. Deletes the
    /// segments, with the payloads that they name, that were confirmed in this way at least
    /// `segment_keep` ago. The newest segment stays. During a rewind nothing happens.
    ///
    /// `Storage` when a file could not be removed: it is tried again the next time.
    pub async fn drop_until(&self, position: JobId) -> Result<(), Error> {
        let (now, keep) = (self.shared.clock.now(), self.shared.segment_keep);
        let (segments, spools) = {
            let mut state = self.shared.state();
            if !state.commit_until(&self.shared, position) {
                return Ok(());
            }
            state.confirm(position, now);
            (state.due_segments(now, keep), state.due_spools(position, keep))
        };
        if segments.is_empty() && spools.is_empty() {
            return Ok(());
        }
        let shared = self.shared.clone();
        blocking(move || shared.delete(&segments, &spools)).await
    }

    /// Deletes a journal whose records the store has, all of them and synced: an adopted one, as
    /// a rule. `Unread` when something has not been committed.
    pub async fn remove(self) -> Result<(), Error> {
        let records = self.shared.state().unread.records();
        if records > 0 {
            return Err(Error::Unread { records });
        }
        self.stop_writer().await;
        let (segments, spools) = {
            let state = self.shared.state();
            let segments: Vec<_> = state.segments.iter().map(|segment| segment.first).collect();
            let spools: Vec<_> = state.spools.keys().cloned().collect();
            (segments, spools)
        };
        let shared = self.shared.clone();
        blocking(move || {
            shared.delete(&segments, &spools)?;
            let removed = shared.disk.remove_dir(&shared.dir);
            removed.map_err(|error| Error::storage("remove", &shared.dir, &error))
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
                // A clock that was set back would keep it for too long.
                let at = segment.confirmed_at.map_or(now, |at| at.min(now));
                segment.confirmed_at = Some(at);
            }
        }
    }

    /// From the front only, so that what is left is a whole chain; never all of it, so that the
    /// chain is known after a restart.
    fn due_segments(&mut self, now: Timestamp, keep: Duration) -> Vec<JobId> {
        let is_due = |segment: &&Segment| {
            segment.confirmed_at.is_some_and(|confirmed_at| now.since(confirmed_at) >= keep)
        };
        let all_but_one = self.segments.len().saturating_sub(1);
        let due: Vec<&Segment> =
            self.segments.iter().take(all_but_one).take_while(is_due).collect();
        // Noted before they go, so that nobody counts on what may be gone.
        self.dropped = due.iter().filter_map(|segment| segment.last).max().max(self.dropped);
        due.into_iter().map(|segment| segment.first).collect()
    }

    /// A payload goes with its segment. Where segments are not kept it goes at once: many large
    /// ones may be named by one segment that is not full for a long time.
    fn due_spools(&mut self, position: JobId, keep: Duration) -> Vec<String> {
        let until = if keep.is_zero() { Some(position) } else { self.dropped };
        let due = self.spools.iter().filter(|(_, id)| Some(**id) <= until);
        let (names, ids): (Vec<String>, Vec<JobId>) =
            due.map(|(name, id)| (name.clone(), *id)).unzip();
        self.dropped = ids.into_iter().max().max(self.dropped);
        names
    }
}

impl Shared {
    /// Removes as many of these files as it can, and forgets those that are gone for good.
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
                // What is left stays a whole chain.
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
