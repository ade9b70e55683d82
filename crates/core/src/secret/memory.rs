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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_clones_share_them() {
        let keys = MemoryKeys::default();
        assert_eq!(keys.read().err(), Some(NoKeys::Missing));
        assert_eq!(keys.lock(KeyLock::Seal).err(), Some(NoKeys::Missing));
        keys.make().unwrap();
        let ring = keys.read().unwrap();
        keys.clone().make().unwrap();
        assert_eq!(keys.clone().read(), Ok(ring));
        keys.set(None);
        assert_eq!(keys.read().err(), Some(NoKeys::Missing));
    }

    #[test]
    fn while_one_replaces_the_keys_nobody_else_has_them() {
        let keys = MemoryKeys::default();
        keys.make().unwrap();
        let lock = |how| keys.clone().lock(how);
        let (one, other) = (lock(KeyLock::Seal).unwrap(), lock(KeyLock::Seal).unwrap());
        assert_eq!(lock(KeyLock::Replace).err(), Some(NoKeys::Busy));
        drop(one);
        assert_eq!(lock(KeyLock::Replace).err(), Some(NoKeys::Busy), "one still seals");
        drop(other);
        let mut replacing = lock(KeyLock::Replace).unwrap();
        for how in [KeyLock::Seal, KeyLock::Replace] {
            assert_eq!(lock(how).err(), Some(NoKeys::Busy), "{how:?}");
        }
        let ring = KeyRing::random().unwrap();
        replacing.replace(ring.clone()).unwrap();
        assert_eq!((replacing.ring(), keys.read()), (&ring, Ok(ring.clone())));
        drop(replacing);
        assert!(lock(KeyLock::Seal).is_ok());
    }
}
