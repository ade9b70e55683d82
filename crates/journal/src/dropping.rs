//! Letting go of what the store has: segments and the files of large payloads, some time after a
//! synced commit confirmed them.

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
    pub async fn drop_until(&self, position: JobId) -> Result<(), Error> {
        let (now, keep) = (self.shared.clock.now(), self.shared.segment_keep);
        let (segments, spools) = {
            let mut state = self.shared.state();
            if state.unread.is_paused() {
                return Ok(());
            }
            state.floor = state.floor.max(Some(position));
            state.unread.drop_until(position, |chunk| self.shared.load(chunk).ok());
            state.confirm(position, now);
            (state.take_segments(now, keep), state.take_spools(position, keep))
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
            let mut state = self.shared.state();
            let segments: Vec<_> = state.segments.drain(..).map(|segment| segment.first).collect();
            let spools: Vec<_> = state.spools.drain().map(|(name, _)| name).collect();
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
    fn take_segments(&mut self, now: Timestamp, keep: Duration) -> Vec<JobId> {
        let mut taken = Vec::new();
        let is_due = |segment: &mut Segment| {
            segment.confirmed_at.is_some_and(|confirmed_at| now.since(confirmed_at) >= keep)
        };
        while self.segments.len() > 1
            && let Some(segment) = self.segments.pop_front_if(is_due)
        {
            self.dropped = self.dropped.max(segment.last);
            taken.push(segment.first);
        }
        taken
    }

    /// A payload goes with its segment. Where segments are not kept it goes at once: many large
    /// ones may be named by one segment that is not full for a long time.
    fn take_spools(&mut self, position: JobId, keep: Duration) -> Vec<String> {
        let until = if keep.is_zero() { Some(position) } else { self.dropped };
        let mut taken = Vec::new();
        for (name, id) in self.spools.extract_if(|_, id| Some(*id) <= until) {
            self.dropped = self.dropped.max(Some(id));
            taken.push(name);
        }
        taken
    }
}

impl Shared {
    fn delete(&self, segments: &[JobId], spools: &[String]) -> Result<(), Error> {
        let spools = spools.iter().map(|name| self.spool_dir.join(name));
        for path in spools.chain(segments.iter().map(|first| segment::path(&self.dir, *first))) {
            let removed = self.disk.remove(&path);
            removed.map_err(|error| Error::storage("remove", &path, &error))?;
        }
        let synced = self.disk.sync_dir(&self.dir);
        synced.map_err(|error| Error::storage("sync", &self.dir, &error))
    }
}
