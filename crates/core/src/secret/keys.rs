//! The interface to the keys that seal secrets. They are kept outside of the store, so that the
//! store alone, or a backup of it, shows no value.

use super::KeyRing;

/// Where the keys are. Calls may read and write a small file; the keys are read anew each time, as
/// another daemon may replace them.
pub trait SealKeys: Send + Sync + 'static {
    fn read(&self) -> Result<KeyRing, NoKeys>;

    /// Makes the first key, durably. Keys that are there stay.
    fn make(&self) -> Result<(), NoKeys>;

    /// Keeps others from what `lock` excludes, in all daemons with the same keys, until the answer
    /// is dropped. `NoKeys::Busy` instead of waiting.
    fn lock(&self, lock: KeyLock) -> Result<Box<dyn LockedKeys>, NoKeys>;
}

/// What the keys are locked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLock {
    /// To seal: no key is dropped meanwhile.
    Seal,
    /// To replace keys: nothing else is locked meanwhile.
    Replace,
}

/// The keys while they are locked.
pub trait LockedKeys: Send {
    fn ring(&self) -> &KeyRing;

    /// Replaces all keys at once, durably. Only under `KeyLock::Replace`.
    fn replace(&mut self, ring: KeyRing) -> Result<(), NoKeys>;
}

/// Why the keys cannot be used. The texts are for clients, and continue a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoKeys {
    #[error("the key file is missing")]
    Missing,
    #[error("the keys are being replaced")]
    Busy,
    #[error("{0}")]
    Unusable(String),
}
