//! A memory bound shared by many connections. Only large messages count; the number of connections
//! bounds the small ones.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is handed out in units of this size.
const UNIT_BYTES: usize = 4096;

#[derive(Debug, Clone)]
pub struct Memory(Arc<Semaphore>);

impl Memory {
    pub fn new(bytes_max: usize) -> Memory {
        Memory(Arc::new(Semaphore::new(bytes_max / UNIT_BYTES)))
    }

    /// `None` if not enough is left.
    pub fn take(&self, bytes: usize) -> Option<Share> {
        let mut share = self.share();
        share.add(bytes).then_some(share)
    }

    /// An empty share.
    pub fn share(&self) -> Share {
        Share { memory: self.clone(), permit: None }
    }
}

/// A share of the memory, returned on drop.
#[derive(Debug)]
pub struct Share {
    memory: Memory,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Grows to at least this size. False, without any change, if not enough is left.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let units = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let have = units * UNIT_BYTES;
        bytes <= have || self.add(bytes - have)
    }

    /// Grows by this much. False, without any change, if not enough is left.
    #[must_use]
    pub fn add(&mut self, bytes: usize) -> bool {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok();
        let more = units.and_then(|units| self.memory.0.clone().try_acquire_many_owned(units).ok());
        let Some(more) = more else { return false };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        true
    }

    /// Returns what is beyond this size.
    pub fn shrink(&mut self, bytes: usize) {
        let Some(permit) = &mut self.permit else { return };
        let beyond = permit.num_permits().saturating_sub(bytes.div_ceil(UNIT_BYTES));
        drop(permit.split(beyond));
    }

    /// Returns all of it.
    pub fn free(&mut self) {
        self.permit = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_gives_back_another_may_have() {
        let memory = Memory::new(4 * UNIT_BYTES);
        let (mut one, mut other) = (memory.share(), memory.share());
        assert!(one.grow(2 * UNIT_BYTES + 1) && one.grow(UNIT_BYTES));
        assert!(!other.grow(UNIT_BYTES + 1));
        assert!(other.grow(1) && other.grow(UNIT_BYTES));
        other.free();
        assert!(one.grow(4 * UNIT_BYTES));
        assert!(!other.grow(1) && memory.take(1).is_none() && memory.take(0).is_some());
        drop(one);
        assert!(other.grow(4 * UNIT_BYTES));
    }

    #[test]
    fn what_is_beyond_a_size_is_given_back() {
        let memory = Memory::new(4 * UNIT_BYTES);
        let mut share = memory.take(4 * UNIT_BYTES).unwrap();
        share.shrink(UNIT_BYTES + 1);
        assert!(memory.take(2 * UNIT_BYTES + 1).is_none() && memory.take(2 * UNIT_BYTES).is_some());
        share.shrink(3 * UNIT_BYTES);
        assert!(memory.take(2 * UNIT_BYTES).is_some(), "it does not grow");
        share.shrink(0);
        assert!(memory.take(4 * UNIT_BYTES).is_some());
    }

    #[test]
    fn more_is_added_to_what_there_is() {
        let memory = Memory::new(4 * UNIT_BYTES);
        let mut share = memory.take(3 * UNIT_BYTES).unwrap();
        assert!(!share.add(2 * UNIT_BYTES) && share.add(UNIT_BYTES));
        assert!(memory.take(1).is_none());
        drop(share);
        assert!(memory.take(4 * UNIT_BYTES).is_some());
        assert!(memory.take(usize::MAX).is_none());
    }
}
