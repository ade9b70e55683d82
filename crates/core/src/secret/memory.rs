//! Keys that live as long as the process, for tests and simulations.

use std::sync::{Arc, Mutex};

use super::{KeyLock, KeyRing, LockedKeys, NoKeys, SealKeys};
use crate::sync::lock;

/// Clones share their keys, like daemons that share a file.
#[derive(Clone, Default)]
pub struct MemoryKeys(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    ring: Option<KeyRing>,
    sealing: usize,
    replacing: bool,
}

impl MemoryKeys {
    /// Puts other keys in the place of these, or none.
    pub fn set(&self, ring: Option<KeyRing>) {
        lock(&self.0).ring = ring;
    }
}

impl SealKeys for MemoryKeys {
    fn read(&self) -> Result<KeyRing, NoKeys> {
        lock(&self.0).ring.clone().ok_or(NoKeys::Missing)
    }

    fn make(&self) -> Result<(), NoKeys> {
        let mut kept = lock(&self.0);
        if kept.ring.is_none() {
            kept.ring = Some(KeyRing::random().map_err(|why| NoKeys::Unusable(why.to_string()))?);
        }
        Ok(())
    }

    fn lock(&self, how: KeyLock) -> Result<Box<dyn LockedKeys>, NoKeys> {
        let mut kept = lock(&self.0);
        let ring = kept.ring.clone().ok_or(NoKeys::Missing)?;
        let is_free = !kept.replacing && (how == KeyLock::Seal || kept.sealing == 0);
        if !is_free {
            return Err(NoKeys::Busy);
        }
        match how {
            KeyLock::Seal => kept.sealing += 1,
            KeyLock::Replace => kept.replacing = true,
        }
        Ok(Box::new(Locked { kept: Arc::clone(&self.0), ring, how }))
    }
}

struct Locked {
    kept: Arc<Mutex<Kept>>,
    ring: KeyRing,
    how: KeyLock,
}

impl LockedKeys for Locked {
    fn ring(&self) -> &KeyRing {
        &self.ring
    }

    fn replace(&mut self, ring: KeyRing) -> Result<(), NoKeys> {
        assert_eq!(self.how, KeyLock::Replace, "the keys are locked for sealing only");
        lock(&self.kept).ring = Some(ring.clone());
        self.ring = ring;
        Ok(())
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut kept = lock(&self.kept);
        match self.how {
            KeyLock::Seal => kept.sealing -= 1,
            KeyLock::Replace => kept.replacing = false,
        }
    }
}
