//! Sealing: a value is encrypted and authenticated with XChaCha20-Poly1305, under a random nonce of
//! its own. The tenant, the name and the version are authenticated with it, so a sealed value that
//! is moved to another row cannot be opened there.
//!
//! ```text
//! format 1 │ key id 8 │ nonce 24 │ encrypted value │ tag 16
//! ```

use std::fmt::{self, Write};
use std::io;

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{SecretName, SecretValue, SecretVersion};
use crate::key::{from_hex, random, write_hex};
use crate::limit::SEAL_KEYS_MAX;
use crate::name::Tenant;

const FORMAT: u8 = 1;
const KEY_BYTES: usize = 32;
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;
/// Keeps seals of secrets apart from anything else that may be sealed under the same key.
const PURPOSE: &[u8] = b"windlass secret";
/// What the id of a key is derived with.
const ID_PURPOSE: &[u8] = b"windlass seal key id";

/// Names a key without showing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SealKeyId([u8; KEY_ID_BYTES]);

impl fmt::Display for SealKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for SealKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKeyId({self})")
    }
}

/// A key. Its id follows from it, so a key that was damaged has another id.
#[derive(Clone, PartialEq, Eq)]
struct SealKey {
    id: SealKeyId,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

impl SealKey {
    fn new(bytes: Zeroizing<[u8; KEY_BYTES]>) -> SealKey {
        let digest = Sha256::new().chain_update(ID_PURPOSE).chain_update(&bytes[..]).finalize();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        SealKey { id: SealKeyId(id), bytes }
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }
}

/// The keys of an installation: the newest seals, all of them open. There is at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRing(Vec<SealKey>);

impl KeyRing {
    /// A ring of one new key.
    pub fn random() -> io::Result<KeyRing> {
        Ok(KeyRing(vec![new_key()?]))
    }

    /// From the text of a key file: a key in hexadecimal digits on each line, the newest last.
    /// Lines that begin with `#` are for people. `None` if it is anything else.
    pub fn parse(text: &str) -> Option<KeyRing> {
        let lines = text.lines().map(str::trim);
        let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let key = |line| Some(SealKey::new(Zeroizing::new(from_hex(line)?)));
        let keys: Vec<SealKey> = keys.map(key).collect::<Option<_>>()?;
        (1..=SEAL_KEYS_MAX).contains(&keys.len()).then_some(KeyRing(keys))
    }

    /// The text of a key file, for its owner alone.
    pub fn reveal(&self) -> Zeroizing<String> {
        // Its full size at once: text that grows leaves copies behind.
        let bytes = HEADING.len() + self.0.len() * (2 * KEY_BYTES + 1);
        let mut text = Zeroizing::new(String::with_capacity(bytes));
        text.push_str(HEADING);
        for key in &self.0 {
            for byte in key.bytes.iter() {
                // Writing to text cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        text
    }

    /// The key that seals.
    pub fn newest(&self) -> SealKeyId {
        self.0[self.0.len() - 1].id
    }

    pub fn ids(&self) -> Vec<SealKeyId> {
        self.0.iter().map(|key| key.id).collect()
    }

    /// With a new key, which seals from now on. A full ring stays as it is.
    pub fn with_new_key(&self) -> io::Result<KeyRing> {
        let mut keys = self.0.clone();
        if keys.len() < SEAL_KEYS_MAX {
            keys.push(new_key()?);
        }
        Ok(KeyRing(keys))
    }

    /// With the newest key and those that are still `needed`.
    pub fn only(&self, needed: &[SealKeyId]) -> KeyRing {
        let newest = self.newest();
        let keys = self.0.iter().filter(|key| key.id == newest || needed.contains(&key.id));
        KeyRing(keys.cloned().collect())
    }

    /// Seals a value for its place.
    pub fn seal(
        &self,
        (tenant, name, version): (&Tenant, &SecretName, SecretVersion),
        value: &SecretValue,
    ) -> io::Result<SealedSecret> {
        let key = &self.0[self.0.len() - 1];
        let nonce: [u8; NONCE_BYTES] = random()?;
        let text = value.reveal().as_bytes();
        let mut sealed = Vec::with_capacity(HEAD_BYTES + text.len() + TAG_BYTES);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&key.id.0);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(text);
        let bound = bound_to(tenant, name, version);
        let tag = key
            .cipher()
            .encrypt_inout_detached((&nonce).into(), &bound, (&mut sealed[HEAD_BYTES..]).into())
            .map_err(|_| io::Error::other("the value is too long to be encrypted"))?;
        sealed.extend_from_slice(&tag);
        let (tenant, name) = (tenant.clone(), name.clone());
        Ok(SealedSecret { tenant, name, version, sealed: Sealed(sealed) })
    }

    pub fn open(&self, secret: &SealedSecret) -> Result<SecretValue, Unsealed> {
        let SealedSecret { tenant, name, version, sealed } = secret;
        let id = sealed.key().ok_or(Unsealed::Damaged)?;
        let key = self.0.iter().find(|key| key.id == id).ok_or(Unsealed::NoKey(id))?;
        let (head, rest) = sealed.0.split_at(HEAD_BYTES);
        let nonce: &[u8; NONCE_BYTES] =
            head[1 + KEY_ID_BYTES..].try_into().map_err(|_| Unsealed::Damaged)?;
        let (text, tag) = rest.split_at(rest.len() - TAG_BYTES);
        let tag: &[u8; TAG_BYTES] = tag.try_into().map_err(|_| Unsealed::Damaged)?;
        let mut text = Zeroizing::new(text.to_vec());
        let bound = bound_to(tenant, name, *version);
        key.cipher()
            .decrypt_inout_detached(nonce.into(), &bound, (&mut text[..]).into(), tag.into())
            .map_err(|_| Unsealed::Damaged)?;
        SecretValue::new(std::mem::take(&mut text)).map_err(|_| Unsealed::Damaged)
    }
}

const HEADING: &str = "\
# The keys that encrypt the secrets of Windlass; the last one is in force.
# Anyone with this file and the store can read all secrets; without it, no one can.
";

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({:?})", self.ids())
    }
}

fn new_key() -> io::Result<SealKey> {
    Ok(SealKey::new(Zeroizing::new(random()?)))
}

/// What is authenticated with a value. Lengths come first, so that no two places look alike.
fn bound_to(tenant: &Tenant, name: &SecretName, version: SecretVersion) -> Vec<u8> {
    let mut bound = PURPOSE.to_vec();
    for part in [tenant.as_str(), name.as_str()] {
        bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bound.extend_from_slice(part.as_bytes());
    }
    bound.extend_from_slice(&version.get().to_le_bytes());
    bound
}

/// An encrypted value, as a store keeps it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

impl Sealed {
    /// From a store; whether it can be opened shows when it is.
    pub fn from_stored(bytes: Vec<u8>) -> Sealed {
        Sealed(bytes)
    }

    pub fn as_stored(&self) -> &[u8] {
        &self.0
    }

    /// The key that it is encrypted with; `None` if it is not the form of a sealed value.
    pub fn key(&self) -> Option<SealKeyId> {
        let is_whole = self.0.len() > HEAD_BYTES + TAG_BYTES && self.0[0] == FORMAT;
        let id = self.0.get(1..1 + KEY_ID_BYTES).filter(|_| is_whole)?;
        id.try_into().ok().map(SealKeyId)
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// A sealed value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    pub tenant: Tenant,
    pub name: SecretName,
    pub version: SecretVersion,
    pub sealed: Sealed,
}

/// Why a sealed value cannot be opened. The text continues a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    #[error("it is encrypted with the key {0}, which is not in the key file")]
    NoKey(SealKeyId),
    #[error("what the store has of it is damaged, or was stored for something else")]
    Damaged,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;

    fn place(tenant: &str, name: &str, version: i64) -> (Tenant, SecretName, SecretVersion) {
        let name = SecretName::new(name).unwrap();
        (Tenant::new(tenant).unwrap(), name, JobId::new(version).unwrap())
    }

    fn value(text: &str) -> SecretValue {
        SecretValue::new(text.as_bytes().to_vec()).unwrap()
    }

    fn sealed(ring: &KeyRing, text: &str) -> SealedSecret {
        let (tenant, name, version) = place("acme", "A", 1);
        ring.seal((&tenant, &name, version), &value(text)).unwrap()
    }

    #[test]
    fn a_value_opens_in_its_place_and_no_two_seals_are_alike() {
        let ring = KeyRing::random().unwrap();
        let (one, other) = (sealed(&ring, "hunter2!"), sealed(&ring, "hunter2!"));
        assert_ne!(one.sealed, other.sealed);
        for secret in [&one, &other] {
            assert_eq!(ring.open(secret), Ok(value("hunter2!")));
            assert_eq!(secret.sealed.key(), Some(ring.newest()));
            let stored = secret.sealed.as_stored();
            assert!(!stored.windows(8).any(|window| window == b"hunter2!"));
        }
    }

    #[test]
    fn a_row_that_is_swapped_with_another_does_not_open() {
        let ring = KeyRing::random().unwrap();
        let secret = sealed(&ring, "hunter2!");
        let elsewhere = [place("globex", "A", 1), place("acme", "B", 1), place("acme", "A", 2)];
        for (tenant, name, version) in elsewhere {
            let sealed = secret.sealed.clone();
            let moved = SealedSecret { tenant, name, version, sealed };
            assert_eq!(ring.open(&moved), Err(Unsealed::Damaged), "{moved:?}");
        }
        // The borders between tenant and name count, too.
        let (tenant, name, version) = place("acm", "EA", 1);
        let sealed = secret.sealed.clone();
        assert!(ring.open(&SealedSecret { tenant, name, version, sealed }).is_err());
    }

    #[test]
    fn every_changed_or_missing_byte_is_reported() {
        let ring = KeyRing::random().unwrap();
        let secret = sealed(&ring, "x");
        let whole = secret.sealed.as_stored().to_vec();
        let with = |bytes: &[u8]| {
            let sealed = Sealed::from_stored(bytes.to_vec());
            ring.open(&SealedSecret { sealed, ..secret.clone() })
        };
        for at in 0..whole.len() {
            assert!(with(&whole[..at]).is_err(), "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(with(&changed).is_err(), "changed at {at}");
        }
        assert!(with(&[whole.as_slice(), b"x"].concat()).is_err());
        assert_eq!(with(&whole), Ok(value("x")));
    }

    #[test]
    fn a_wrong_key_is_named_and_an_old_one_opens_until_it_is_dropped() {
        let old = KeyRing::random().unwrap();
        let secret = sealed(&old, "hunter2!");
        let foreign = KeyRing::random().unwrap();
        let refused = foreign.open(&secret).unwrap_err();
        assert_eq!(refused, Unsealed::NoKey(old.newest()));
        let id: String = old.newest().0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(refused.to_string().contains(&format!(" key {id},")), "{refused}");
        let both = old.with_new_key().unwrap();
        assert_ne!(both.newest(), old.newest());
        assert_eq!(both.open(&secret), Ok(value("hunter2!")));
        let again = sealed(&both, "hunter2!");
        assert_eq!(old.open(&again), Err(Unsealed::NoKey(both.newest())));
        let new = both.only(&[]);
        assert_eq!((new.ids(), new.open(&again)), (vec![both.newest()], Ok(value("hunter2!"))));
        assert_eq!(new.open(&secret), Err(Unsealed::NoKey(old.newest())));
        assert_eq!(both.only(&[old.newest()]), both);
    }

    #[test]
    fn a_key_file_reads_back_as_written_and_nothing_else_is_one() {
        let ring = KeyRing::random().unwrap().with_new_key().unwrap();
        let text = ring.reveal();
        assert_eq!(KeyRing::parse(&text), Some(ring.clone()));
        assert_eq!(text.lines().count(), 4);
        assert_eq!(text.capacity(), text.len(), "text that grows leaves copies behind");
        let key = text.lines().last().unwrap();
        for wrong in ["", "# nothing\n", "xyz", &key[1..], &format!("{}junk", &*text)] {
            assert_eq!(KeyRing::parse(wrong), None, "{wrong}");
        }
        assert_eq!(KeyRing::parse(&format!("{key}\n").repeat(SEAL_KEYS_MAX + 1)), None);
        let shown = format!("{ring:?}");
        assert!(!shown.contains(key) && shown.contains(&ring.newest().to_string()), "{shown}");
    }

    #[test]
    fn a_sealed_value_has_at_least_one_byte() {
        let ring = KeyRing::random().unwrap();
        let whole = sealed(&ring, "x").sealed;
        assert_eq!(whole.key(), Some(ring.newest()));
        let empty = whole.as_stored()[..HEAD_BYTES + TAG_BYTES].to_vec();
        assert_eq!(Sealed::from_stored(empty).key(), None);
    }

    #[test]
    fn a_ring_is_bounded() {
        let mut ring = KeyRing::random().unwrap();
        for _ in 0..2 * SEAL_KEYS_MAX {
            ring = ring.with_new_key().unwrap();
        }
        assert_eq!(ring.ids().len(), SEAL_KEYS_MAX);
        assert!(KeyRing::parse(&ring.reveal()).is_some());
    }
}
