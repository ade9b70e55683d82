//! Room for the payloads of all claims and takes that are under way. What one of them brings is
//! known only when the store has answered, so each gets a share of what is left. None waits: when
//! many large ones come together, they bring fewer jobs. The one exception is a take whose first
//! job is larger than its share: such jobs come one at a time.

use std::sync::Mutex;

use tokio::sync::{Semaphore, SemaphorePermit};

use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::sync::lock;

/// Payloads of all claims and takes that the store has not answered, except for `SHARE_MIN` of each
/// and the last job of a claim.
const ROOM_BYTES: u64 = 256 * 1024 * 1024;
/// A claim leaves room for others: it gets at most one part in this many of what is left.
const PARTS: u64 = 4;
/// What each claim may bring, however many there are: many jobs of the usual size.
const SHARE_MIN: u64 = 256 * 1024;

pub(crate) struct ClaimRoom {
    left: Mutex<u64>,
    oversized: Semaphore,
}

/// The share of one claim; dropping it returns it.
pub(crate) struct Share<'a> {
    room: &'a ClaimRoom,
    bytes: u64,
}

impl ClaimRoom {
    /// For a claim of up to so many jobs and bytes.
    pub(crate) fn share(&self, jobs: u64, bytes_max: u64) -> Share<'_> {
        let most = bytes_max.min(jobs.saturating_mul(PAYLOAD_INLINE_BYTES_MAX as u64));
        let mut left = lock(&self.left);
        let bytes = most.min(*left / PARTS);
        *left -= bytes;
        Share { room: self, bytes }
    }

    /// For a take of one job that is larger than its share: waits until no other one is under way.
    pub(crate) async fn oversized(&self) -> Option<SemaphorePermit<'_>> {
        self.oversized.acquire().await.ok()
    }
}

impl Default for ClaimRoom {
    fn default() -> ClaimRoom {
        ClaimRoom { left: Mutex::new(ROOM_BYTES), oversized: Semaphore::new(1) }
    }
}

impl Share<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.max(SHARE_MIN)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *lock(&self.room.left) += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1024 * 1024;

    #[test]
    fn claims_together_bring_no_more_than_there_is_room_for() {
        let room = ClaimRoom::default();
        let shares: Vec<Share<'_>> = (0..1000).map(|_| room.share(1000, 64 * MB)).collect();
        assert_eq!(shares[0].bytes(), 64 * MB, "the first one is not cut");
        let least = shares.len() as u64 * SHARE_MIN;
        assert!(shares.iter().map(Share::bytes).sum::<u64>() <= ROOM_BYTES + least);
        assert_eq!(shares[999].bytes(), SHARE_MIN, "none has to wait");
        drop(shares);
        assert_eq!(room.share(1000, 64 * MB).bytes(), 64 * MB, "all was returned");
    }

    #[test]
    fn a_claim_of_few_jobs_leaves_room_for_many_others() {
        let room = ClaimRoom::default();
        let _shares: Vec<Share<'_>> = (0..150).map(|_| room.share(1, 64 * MB)).collect();
        assert_eq!(room.share(1000, 16 * MB).bytes(), 16 * MB);
    }
}
