//! API keys: who may do what. A key is the text `wl_<id>_<secret>`. Its id is public; its secret is
//! known to its owner alone: a store keeps only the digest.
//!
//! Roles and rights are here; which right a request needs, the table of routes says (`route` in the
//! HTTP door).

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::limit::{DURATION_MAX, KEY_NAME_BYTES_MAX, KEYS_MAX, TENANT_KEYS_MAX};
use crate::name::{Invalid, Tenant};
use crate::time::Timestamp;

/// What every key begins with, so that people and scanners recognize one.
const PREFIX: &str = "wl_";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// What the owner of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Producer,
    Worker,
    Viewer,
    Manager,
    Admin,
    Metrics,
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// No key at all.
    Open,
    /// Any key that is in force.
    AnyKey,
    /// Add jobs.
    Add,
    /// Read one job by its id, with its payload and log.
    ReadJob,
    /// List and read everything of a tenant.
    Read,
    /// Claim jobs, and report on them.
    Work,
    /// Change jobs, types and handlers.
    Manage,
    /// Set, list and remove secrets.
    Secrets,
    /// Make, list and revoke keys.
    Keys,
    /// Read the audit.
    Audit,
    /// See and control the daemon, for all tenants.
    Operate,
    /// Read the metrics, which name all tenants.
    Metrics,
}

impl Role {
    pub const ALL: [Role; 6] =
        [Role::Producer, Role::Worker, Role::Viewer, Role::Manager, Role::Admin, Role::Metrics];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Worker => "worker",
            Role::Viewer => "viewer",
            Role::Manager => "manager",
            Role::Admin => "admin",
            Role::Metrics => "metrics",
        }
    }

    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// Whether its keys belong to one tenant. The others belong to none.
    pub fn has_tenant(self) -> bool {
        !matches!(self, Role::Admin | Role::Metrics)
    }

    /// The one table of roles. Within the tenant of the key; an admin has all tenants.
    pub fn may(self, right: Right) -> bool {
        use Role::{Admin, Manager, Metrics, Producer, Viewer, Worker};
        match right {
            Right::Open | Right::AnyKey => true,
            Right::Add => matches!(self, Producer | Manager | Admin),
            Right::ReadJob => matches!(self, Producer | Worker | Viewer | Manager | Admin),
            Right::Read => matches!(self, Viewer | Manager | Admin),
            Right::Work => matches!(self, Worker | Manager | Admin),
            Right::Manage | Right::Secrets | Right::Keys | Right::Audit => {
                matches!(self, Manager | Admin)
            }
            Right::Operate => self == Admin,
            Right::Metrics => matches!(self, Metrics | Admin),
        }
    }
}

impl Right {
    /// Whether changes that need it are audited: those by people who manage the queue. Adds, claims
    /// and reports are its ordinary traffic.
    pub fn is_audited(self) -> bool {
        match self {
            Right::Manage | Right::Secrets | Right::Keys | Right::Audit | Right::Operate => true,
            Right::Open | Right::AnyKey | Right::Add | Right::ReadJob => false,
            Right::Read | Right::Work | Right::Metrics => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The public part of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; ID_BYTES]);

impl FromStr for KeyId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<KeyId, Invalid> {
        let id = from_hex(text).map(KeyId);
        id.ok_or_else(|| Invalid::new("id", "the id of a key is 16 digits from 0 to 9 and a to f"))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The SHA-256 of a key's secret.
#[derive(Clone, Copy)]
pub struct KeyDigest(pub [u8; 32]);

/// Takes the same time wherever the difference is.
impl PartialEq for KeyDigest {
    fn eq(&self, other: &KeyDigest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyDigest {}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest")
    }
}

/// A whole key, as its owner has it. It is never logged: its text has to be asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText {
    id: KeyId,
    secret: [u8; SECRET_BYTES],
}

impl KeyText {
    /// 256 random bits of the operating system, and an id.
    pub fn random() -> io::Result<KeyText> {
        Ok(KeyText { id: KeyId(random()?), secret: random()? })
    }

    /// `None` if it does not look like a key.
    pub fn parse(text: &str) -> Option<KeyText> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(KeyText { id: KeyId(from_hex(id)?), secret: from_hex(secret)? })
    }

    /// For its owner alone.
    pub fn reveal(&self) -> String {
        struct Hex<'a>(&'a [u8]);
        impl fmt::Display for Hex<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, self.0)
            }
        }
        format!("{PREFIX}{}_{}", self.id, Hex(&self.secret))
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.secret).into())
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({})", self.id)
    }
}

/// A key that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    pub id: KeyId,
    pub digest: KeyDigest,
    pub owner: Owner,
    /// It is in force for this long; `None`: until it is revoked.
    pub lifetime: Option<Duration>,
}

/// Whom a key is for, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub role: Role,
    /// Only of a role that has one.
    pub tenant: Option<Tenant>,
    /// For people; may be empty.
    pub name: String,
}

impl NewKey {
    pub fn check(&self) -> Result<(), Invalid> {
        let Owner { role, tenant, name } = &self.owner;
        match (role.has_tenant(), tenant) {
            (true, None) => return Err(Invalid::new("tenant", format!("a {role} has a tenant"))),
            (false, Some(_)) => {
                let reason = format!("the role {role} is for all tenants, so its key has none");
                return Err(Invalid::new("tenant", reason));
            }
            _ => {}
        }
        if name.len() > KEY_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let reason =
                format!("a name has at most {KEY_NAME_BYTES_MAX} bytes and no control characters");
            return Err(Invalid::new("name", reason));
        }
        match self.lifetime {
            Some(lifetime) if lifetime.is_zero() || lifetime > DURATION_MAX => {
                Err(Invalid::new("expires", "a key is in force for 1ms to 3660d"))
            }
            _ => Ok(()),
        }
    }
}

/// How many keys a store has, ended ones that are still listed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCounts {
    pub all: usize,
    /// Those of the new key's tenant, if it has one.
    pub own: usize,
}

impl KeyCounts {
    /// Whether there is room for one more key; otherwise the reason. One tenant's keys leave room
    /// for those of others.
    pub fn room_for(self, new: &NewKey) -> Result<(), String> {
        match &new.owner.tenant {
            Some(tenant) if self.own >= TENANT_KEYS_MAX => Err(format!(
                "{tenant} has {TENANT_KEYS_MAX} keys, the most that a tenant may have; keys that \
                 were revoked or have expired count for 30 days"
            )),
            _ if self.all >= KEYS_MAX => {
                Err(format!("there are {KEYS_MAX} keys, the most that a store takes"))
            }
            _ => Ok(()),
        }
    }
}

/// A key as a store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub digest: KeyDigest,
    pub owner: Owner,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Written at most once in `KEY_TOUCH_INTERVAL`.
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// Whether a key may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    InForce,
    Expired,
    Revoked,
}

impl Key {
    /// A new key, made now.
    pub fn made(new: NewKey, now: Timestamp) -> Key {
        let NewKey { id, digest, owner, lifetime } = new;
        let expires_at = lifetime.map(|lifetime| now + lifetime);
        let (last_used_at, revoked_at) = (None, None);
        Key { id, digest, owner, created_at: now, expires_at, last_used_at, revoked_at }
    }

    pub fn standing(&self, now: Timestamp) -> Standing {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => Standing::Revoked,
            (None, Some(at)) if at <= now => Standing::Expired,
            _ => Standing::InForce,
        }
    }

    /// When it stopped, or will stop, being in force.
    pub fn ends_at(&self) -> Option<Timestamp> {
        match (self.revoked_at, self.expires_at) {
            (Some(revoked), Some(expires)) => Some(revoked.min(expires)),
            (revoked, expires) => revoked.or(expires),
        }
    }
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    // Ends, because each turn fills at least one byte. Requests this small come whole.
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(bytes)
}

pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Small letters only, so that a key has one text.
fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

pub(crate) fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(role: Role, tenant: Option<&str>, name: &str) -> NewKey {
        let text = KeyText::random().unwrap();
        let tenant = tenant.map(|tenant| Tenant::new(tenant).unwrap());
        let owner = Owner { role, tenant, name: name.into() };
        NewKey { id: text.id(), digest: text.digest(), owner, lifetime: None }
    }

    #[test]
    fn a_key_is_read_as_it_was_shown_and_two_differ() {
        let key = KeyText::random().unwrap();
        let text = key.reveal();
        assert_eq!(text.len(), "wl_".len() + 16 + 1 + 64);
        assert!(text.starts_with(&format!("wl_{}_", key.id())));
        let again = KeyText::parse(&text).unwrap();
        assert_eq!((again.id(), again.digest()), (key.id(), key.digest()));
        assert_eq!(key.id().to_string().parse(), Ok(key.id()));
        let other = KeyText::random().unwrap();
        assert!(other.id() != key.id() && other.digest() != key.digest());
    }

    #[test]
    fn what_does_not_look_like_a_key_is_none() {
        let text = KeyText::random().unwrap().reveal();
        let upper = text.to_uppercase().replacen("WL", "wl", 1);
        for wrong in ["", "wl_", "wl__", &text[1..], &text[..text.len() - 1], &upper] {
            assert_eq!(KeyText::parse(wrong), None, "{wrong}");
        }
        assert_eq!(KeyText::parse(&format!("{text}0")), None);
        assert_eq!(KeyText::parse(&text.replace('_', "é")), None);
    }

    #[test]
    fn nothing_that_is_logged_has_the_secret() {
        let key = KeyText::random().unwrap();
        let secret = key.reveal().rsplit('_').next().unwrap().to_owned();
        let made = Key::made(new(Role::Admin, None, "x"), Timestamp(0));
        let shown = format!("{key:?} {made:?}");
        assert!(!shown.contains(&secret) && shown.contains(&key.id().to_string()), "{shown}");
        assert!(shown.contains("digest: KeyDigest,"), "{shown}");
    }

    #[test]
    fn a_tenant_goes_with_the_role() {
        let with_tenant = Role::ALL.into_iter().filter(|role| role.has_tenant());
        let with_tenant: Vec<String> = with_tenant.map(|role| role.to_string()).collect();
        assert_eq!(with_tenant, ["producer", "worker", "viewer", "manager"]);
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.as_str()), Some(role));
            assert_eq!(new(role, Some("acme"), "").check().is_ok(), role.has_tenant(), "{role}");
            assert_eq!(new(role, None, "").check().is_ok(), !role.has_tenant(), "{role}");
        }
        assert_eq!(new(Role::Admin, None, "a\nb").check().unwrap_err().field, "name");
        let named = |bytes| new(Role::Admin, None, &"x".repeat(bytes)).check();
        assert_eq!(named(KEY_NAME_BYTES_MAX), Ok(()));
        assert_eq!(named(KEY_NAME_BYTES_MAX + 1).unwrap_err().field, "name");
    }

    #[test]
    fn a_key_is_in_force_for_a_while_at_least_and_for_ten_years_at_most() {
        let check = |lifetime| {
            let key = NewKey { lifetime: Some(lifetime), ..new(Role::Admin, None, "") };
            key.check().map_err(|invalid| invalid.field)
        };
        let ms = Duration::from_millis(1);
        let refused = Err("expires".into());
        assert_eq!((check(Duration::ZERO), check(DURATION_MAX + ms)), (refused.clone(), refused));
        assert_eq!((check(ms), check(DURATION_MAX)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_key_stands_until_it_expires_or_is_revoked() {
        let lifetime = Some(Duration::from_millis(10));
        let mut key = Key::made(NewKey { lifetime, ..new(Role::Admin, None, "") }, Timestamp(1000));
        assert_eq!(key.standing(Timestamp(1009)), Standing::InForce);
        assert_eq!(key.standing(Timestamp(1010)), Standing::Expired);
        key.revoked_at = Some(Timestamp(1005));
        assert_eq!(key.standing(Timestamp(1006)), Standing::Revoked);
        assert_eq!(key.ends_at(), Some(Timestamp(1005)));
    }

    #[test]
    fn an_admin_may_everything_and_a_stranger_nothing() {
        let rights = [Right::Add, Right::ReadJob, Right::Read, Right::Work, Right::Manage];
        let more = [Right::Secrets, Right::Keys, Right::Audit, Right::Operate, Right::Metrics];
        for right in rights.into_iter().chain(more) {
            assert!(Role::Admin.may(right), "{right:?}");
        }
        let may = |role: Role| rights.into_iter().filter(|right| role.may(*right)).count();
        let counts = Role::ALL.map(may);
        assert_eq!(counts, [2, 2, 2, 5, 5, 0]);
    }
}
