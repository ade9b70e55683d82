//! Memory that many connections share: large requests are few, small ones need not ask.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits are for units of this size.
const UNIT_BYTES: usize = 4096;

#[derive(Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

impl Memory {
    pub(crate) fn new(bytes_max: usize) -> Memory {
        Memory(Arc::new(Semaphore::new(bytes_max / UNIT_BYTES)))
    }

    /// None when there is not as much left.
    pub(crate) fn take(&self, bytes: usize) -> Option<Share> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        let permit = self.0.clone().try_acquire_many_owned(units).ok()?;
        Some(Share { permit })
    }
}

/// Memory that is given back when this is dropped.
pub(crate) struct Share {
    permit: OwnedSemaphorePermit,
}

impl Share {
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT_BYTES
    }

    pub(crate) fn add(&mut self, other: Share) {
        self.permit.merge(other.permit);
    }
}
