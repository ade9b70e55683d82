//! Large payloads enter the store before their jobs. One that cannot be read is tried again, with
//! the whole batch; after several tries its job enters as failed, so that it holds up no other.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use windlass_core::{JobId, NewJob};
use windlass_journal::Record;

use crate::accept::pieces::{self, NotPut};
use crate::error::Error;
use crate::shared::Shared;

use super::arrival::{Arrival, Lost};

/// How often an unreadable payload is tried before its job enters as failed.
const UNREADABLE_TRIES_MAX: u32 = 8;
/// Errors that are not the file's fault: the machine or the process is short of memory (`ENOMEM`)
/// or of descriptors (`ENFILE`, `EMFILE`).
const OUT_OF_RESOURCES: [i32; 3] = [12, 23, 24];

/// How often payloads of the next batch could not be read. Outlives the tries of that batch.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(BTreeMap<JobId, u32>);

impl Unreadable {
    /// Copies the spooled payloads of a batch into the store; returns whether there are any. All
    /// are tried before an unreadable one is reported, so that several do not wait for each other.
    pub(crate) async fn put_payloads(
        &mut self,
        shared: &Shared,
        records: &mut [Record],
        arrivals: &mut [Arrival],
    ) -> Result<bool, Error> {
        let (mut any, mut to_try_again) = (false, None);
        for (Record { job, spool, .. }, arrival) in records.iter_mut().zip(arrivals) {
            let Some(file) = spool else { continue };
            any = true;
            match self.put_payload(shared, job, file).await {
                Ok(lost) => arrival.lost = lost,
                Err(unreadable @ NotPut::Unreadable(..)) => to_try_again = Some(unreadable),
                Err(away) => return Err(away.into()),
            }
        }
        to_try_again.map_or(Ok(any), |unreadable| Err(unreadable.into()))
    }

    /// If the payload is given up, returns why, and the job enters in a way that it never runs.
    async fn put_payload(
        &mut self,
        shared: &Shared,
        job: &mut NewJob,
        file: &Path,
    ) -> Result<Option<Lost>, NotPut> {
        let error = match pieces::put_pieces(shared, job.id, file, job.payload.len(), None).await {
            Ok(()) => return Ok(None),
            Err(NotPut::Unreadable(_, error)) => error,
            Err(away) => return Err(away),
        };
        if !self.is_given_up(job.id, &error) {
            return Err(NotPut::Unreadable(file.to_owned(), error));
        }
        // Paused, so that it is not claimed before it is given up, and expired, so that the reaper
        // gives it up if this daemon does not live to do it.
        (job.paused, job.expires_at) = (true, Some(job.created_at));
        Ok(Some(Lost { file: file.to_owned(), error: error.to_string() }))
    }

    /// Counts a failed try.
    fn is_given_up(&mut self, id: JobId, error: &io::Error) -> bool {
        if error.raw_os_error().is_some_and(|no| OUT_OF_RESOURCES.contains(&no)) {
            return false;
        }
        let tries = self.0.entry(id).or_default();
        *tries = tries.saturating_add(1);
        *tries >= UNREADABLE_TRIES_MAX
    }

    /// The batch is in the store.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_has_all_its_tries() {
        let (mut unreadable, damaged) = (Unreadable::default(), io::Error::other("damaged"));
        let mut is_given_up = |id| unreadable.is_given_up(JobId::new(id).unwrap(), &damaged);
        for id in [1, 2] {
            assert!((1..UNREADABLE_TRIES_MAX).all(|_| !is_given_up(id)), "{id}");
            assert!(is_given_up(id) && is_given_up(id), "{id}");
        }
    }

    #[test]
    fn a_try_for_which_means_were_short_does_not_count() {
        let (mut unreadable, id) = (Unreadable::default(), JobId::new(1).unwrap());
        for no in OUT_OF_RESOURCES {
            let short = io::Error::from_raw_os_error(no);
            assert!((0..UNREADABLE_TRIES_MAX).all(|_| !unreadable.is_given_up(id, &short)));
        }
        assert!(!unreadable.is_given_up(id, &io::Error::other("damaged")), "the first that counts");
    }
}
