//! Memory that all connections share for messages which are not whole yet: long ones are few, and
//! short ones need not ask.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What messages that are not whole may take together.
const BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Permits are for units of this size; less needs none.
pub(super) const UNIT_BYTES: usize = 64 * 1024;

#[derive(Clone)]
pub(super) struct Memory(Arc<Semaphore>);

impl Memory {
    pub(super) fn new() -> Memory {
        Memory::with_bytes(BYTES_MAX)
    }

    pub(super) fn with_bytes(bytes_max: usize) -> Memory {
        Memory(Arc::new(Semaphore::new(bytes_max / UNIT_BYTES)))
    }
}

/// What one connection has of it.
pub(super) struct Share {
    memory: Memory,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    pub(super) fn new(memory: Memory) -> Share {
        Share { memory, permit: None }
    }

    /// Has as much from now on, whatever it was before. False when there is not so much left.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let units = bytes / UNIT_BYTES;
        let have = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if units == 0 {
            self.permit = None;
        } else if units > have {
            let more = u32::try_from(units - have).ok();
            let more =
                more.and_then(|more| self.memory.0.clone().try_acquire_many_owned(more).ok());
            let Some(more) = more else { return false };
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                none => *none = Some(more),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_gives_back_another_may_have() {
        let memory = Memory::with_bytes(4 * UNIT_BYTES);
        let (mut one, mut other) = (Share::new(memory.clone()), Share::new(memory));
        assert!(one.set(3 * UNIT_BYTES) && one.set(UNIT_BYTES));
        assert!(!other.set(2 * UNIT_BYTES));
        assert!(other.set(UNIT_BYTES) && other.set(UNIT_BYTES - 1));
        assert!(one.set(4 * UNIT_BYTES));
        drop(one);
        assert!(other.set(4 * UNIT_BYTES));
    }
}
