//! Secrets: values that handlers get in their environment and nobody reads back.
//!
//! | module | owns |
//! |---|---|
//! | `name` | the names, and which are refused |
//! | `seal` | how a value is encrypted for the store |
//! | `keys` | the interface to the keys, which are outside of the store |
//! | `memory` | keys in memory, for tests |
//!
//! A store has sealed values only. A value in clear is never shown: its text has to be asked for,
//! and its memory is overwritten when it is dropped.

mod keys;
mod memory;
mod name;
mod seal;

use std::fmt;

use zeroize::Zeroizing;

use crate::id::JobId;
use crate::limit::SECRET_BYTES_MAX;
use crate::name::Invalid;
use crate::time::Timestamp;

pub use keys::{KeyLock, LockedKeys, NoKeys, SealKeys};
pub use memory::MemoryKeys;
pub use name::SecretName;
pub use seal::{KeyRing, SealKeyId, Sealed, SealedSecret, Unsealed};

/// Names one value of a secret; made by the same generator as job ids, so that none ever comes
/// again, even after the secret was removed.
pub type SecretVersion = JobId;

/// What a secret shows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    pub name: SecretName,
    pub version: SecretVersion,
    pub updated_at: Timestamp,
}

/// A value in clear.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Text, because environments and logs are text.
    pub fn new(bytes: Vec<u8>) -> Result<SecretValue, Invalid> {
        let invalid = |reason: &str| Err(Invalid::new("value", reason));
        let bytes = Zeroizing::new(bytes);
        if bytes.is_empty() || bytes.len() > SECRET_BYTES_MAX {
            return invalid(&format!("the value of a secret has 1 to {SECRET_BYTES_MAX} bytes"));
        }
        match str::from_utf8(&bytes) {
            Ok(text) if text.contains('\0') => invalid("the value of a secret has no NUL bytes"),
            Ok(text) => Ok(SecretValue(Zeroizing::new(text.to_owned()))),
            Err(_) => {
                invalid("the value of a secret is UTF-8; encode bytes, as base64 for example")
            }
        }
    }

    /// For its handler alone.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A secret in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSecret {
    pub name: SecretName,
    pub version: SecretVersion,
    pub value: SecretValue,
}

/// The secrets that one handler gets, in clear, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenSecrets(Vec<OpenSecret>);

impl OpenSecrets {
    pub fn new(mut secrets: Vec<OpenSecret>) -> OpenSecrets {
        secrets.sort_by(|one, other| one.name.cmp(&other.name));
        OpenSecrets(secrets)
    }

    pub fn iter(&self) -> impl Iterator<Item = &OpenSecret> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What tells these values from others.
    pub fn versions(&self) -> Vec<(SecretName, SecretVersion)> {
        self.0.iter().map(|secret| (secret.name.clone(), secret.version)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_bounded_text_without_nul() {
        let refused = |bytes: Vec<u8>| SecretValue::new(bytes).unwrap_err().field == "value";
        assert!(refused(Vec::new()) && refused(vec![b'x'; SECRET_BYTES_MAX + 1]));
        assert!(refused(b"a\0b".to_vec()) && refused(vec![0xff]));
        let longest = SecretValue::new(vec![b'x'; SECRET_BYTES_MAX]).unwrap();
        assert_eq!(longest.reveal().len(), SECRET_BYTES_MAX);
    }

    #[test]
    fn the_secrets_of_a_handler_are_in_the_order_of_their_names() {
        let secret = |name: &str, version| OpenSecret {
            name: SecretName::new(name).unwrap(),
            version: JobId::new(version).unwrap(),
            value: SecretValue::new(name.as_bytes().to_vec()).unwrap(),
        };
        let open = OpenSecrets::new(vec![secret("B", 1), secret("A", 2)]);
        assert_eq!(open.iter().collect::<Vec<_>>(), [&secret("A", 2), &secret("B", 1)]);
        let versions = [secret("A", 2), secret("B", 1)].map(|of| (of.name, of.version));
        assert_eq!(open.versions(), versions);
        assert!(!open.is_empty() && OpenSecrets::default().is_empty());
    }

    #[test]
    fn nothing_that_is_logged_has_the_value() {
        let value = SecretValue::new(b"hunter2!".to_vec()).unwrap();
        let (name, version) = (SecretName::new("DOOR").unwrap(), JobId::new(7).unwrap());
        let open = OpenSecrets::new(vec![OpenSecret { name, version, value: value.clone() }]);
        let shown = format!("{value:?} {open:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("DOOR") && shown.contains("***"), "{shown}");
    }
}
