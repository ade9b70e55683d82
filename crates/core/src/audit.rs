//! The audit: who changed what, and who was refused. An entry names keys, tenants, types and ids;
//! it has no secret, payload, header or body.
//!
//! An audited change has an entry before it begins, without a status, and the same entry with one
//! before it is answered. Refusals of one kind from one address share an entry, which counts them.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::key::{KeyId, Role};
use crate::limit::AUDIT_TEXT_BYTES_MAX;
use crate::name::{Invalid, Tenant, TypeName};
use crate::time::Timestamp;

/// Who acted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The owner of a key.
    Key { id: KeyId, role: Role },
    /// A request without a key, or with one that does not exist.
    Nobody,
    /// Any request while keys are switched off.
    Insecure,
    /// A client of a door without keys, by the door's name in lower case.
    Door(Cow<'static, str>),
    /// The daemon itself.
    Daemon,
}

impl Actor {
    pub fn key(&self) -> Option<KeyId> {
        match self {
            Actor::Key { id, .. } => Some(*id),
            _ => None,
        }
    }

    pub fn role(&self) -> Option<Role> {
        match self {
            Actor::Key { role, .. } => Some(*role),
            _ => None,
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Actor::Key { .. } => "key",
            Actor::Nobody => "nobody",
            Actor::Insecure => "insecure",
            Actor::Door(name) => name,
            Actor::Daemon => "daemon",
        }
    }

    /// `None` if a key has no id or role, or if this is not the name of an actor.
    pub fn from_parts(name: &str, id: Option<KeyId>, role: Option<Role>) -> Option<Actor> {
        match (name, id, role) {
            ("key", Some(id), Some(role)) => Some(Actor::Key { id, role }),
            ("nobody", None, None) => Some(Actor::Nobody),
            ("insecure", None, None) => Some(Actor::Insecure),
            ("daemon", None, None) => Some(Actor::Daemon),
            ("key", ..) => None,
            (door, None, None) if is_door(door) => Some(Actor::Door(door.to_owned().into())),
            _ => None,
        }
    }
}

const DOOR_BYTES_MAX: usize = 32;

fn is_door(name: &str) -> bool {
    let length = 1..=DOOR_BYTES_MAX;
    length.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It has no key, or its header is not one of a key.
    NoKey,
    WrongKey,
    /// Too many wrong keys from its address.
    Limited,
    Expired,
    Revoked,
    /// The key ended while the request waited.
    Ended,
    /// The role may not do this.
    Role,
    /// The tenant is not that of the key.
    Tenant,
    /// It came from a web page of another site, or for another host.
    Site,
    /// It asks for more than one of the operator's maxima.
    Maximum,
    /// The client has no certificate that the server trusts.
    Certificate,
    /// The door is not open to its address.
    Address,
}

impl Reason {
    pub const ALL: [Reason; 12] = [
        Reason::NoKey,
        Reason::WrongKey,
        Reason::Limited,
        Reason::Expired,
        Reason::Revoked,
        Reason::Ended,
        Reason::Role,
        Reason::Tenant,
        Reason::Site,
        Reason::Maximum,
        Reason::Certificate,
        Reason::Address,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NoKey => "no_key",
            Reason::WrongKey => "wrong_key",
            Reason::Limited => "limited",
            Reason::Expired => "expired",
            Reason::Revoked => "revoked",
            Reason::Ended => "ended",
            Reason::Role => "role",
            Reason::Tenant => "tenant",
            Reason::Site => "site",
            Reason::Maximum => "maximum",
            Reason::Certificate => "certificate",
            Reason::Address => "address",
        }
    }

    pub fn from_name(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// What was done, by whom and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    pub by: Actor,
    /// Of the client, or of the proxy in front of the daemon.
    pub address: Option<IpAddr>,
    /// The id of a route's operation, or one of `action`.
    pub action: String,
    pub subject: Subject,
}

/// Actions that are no operations of routes. Doors have further ones of their own.
pub mod action {
    /// A daemon has made the admin key of its data directory.
    pub const ADMIN_KEY: &str = "admin_key_create";
    /// A daemon has started with keys switched off.
    pub const INSECURE: &str = "start_insecure";
    /// A request of a foreign web page was refused before its route was looked for.
    pub const SITE: &str = "site";
    /// A client was refused in the handshake of TLS.
    pub const HANDSHAKE: &str = "tls_handshake";
    /// Refusals that have no entries, because there were too many.
    pub const DROPPED: &str = "audit_dropped";
}

/// What an act was about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Whose managers see the entry: the tenant of the key, or of the path if the key has none.
    pub tenant: Option<Tenant>,
    pub name: Option<TypeName>,
    /// Of a job, a key or a version of a handler.
    pub id: Option<String>,
    /// A few words more, such as the role of a new key.
    pub detail: Option<String>,
}

impl Subject {
    /// Adds what was not known before.
    pub fn complete(&mut self, more: Subject) {
        let Subject { tenant, name, id, detail } = more;
        let known = std::mem::take(self);
        *self = Subject {
            tenant: tenant.or(known.tenant),
            name: name.or(known.name),
            id: id.or(known.id),
            detail: detail.or(known.detail),
        };
    }
}

/// The number of an entry, unique among those of its millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuditId(pub i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When it began; of several refusals, the first.
    pub at: Timestamp,
    pub id: AuditId,
    pub act: Act,
    /// How it was answered; `None`: not yet, or never.
    pub status: Option<u16>,
    /// Only of a refusal.
    pub reason: Option<Reason>,
    /// How many refusals share this entry.
    pub count: u64,
    /// When it was answered; of several refusals, the last.
    pub last_at: Timestamp,
}

impl AuditEntry {
    pub fn cursor(&self) -> AuditCursor {
        AuditCursor { at: self.at, id: self.id }
    }
}

/// A place in the list of entries, which are ordered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditCursor {
    pub at: Timestamp,
    pub id: AuditId,
}

impl fmt::Display for AuditCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.ms(), self.id.0)
    }
}

impl FromStr for AuditCursor {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<AuditCursor, Invalid> {
        let number = |text: &str| text.parse().ok().filter(|number| *number >= 0);
        let numbers = text.split_once('-').map(|(at, id)| (number(at), number(id)));
        match numbers {
            Some((Some(at), Some(id))) => Ok(AuditCursor { at: Timestamp(at), id: AuditId(id) }),
            _ => Err(Invalid::new("after", "a cursor is the `next` of the previous page")),
        }
    }
}

/// Which entries are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub tenant: Option<Tenant>,
    /// The key that acted.
    pub key: Option<KeyId>,
    pub action: Option<String>,
    /// Not before this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

impl AuditFilter {
    pub fn has(&self, entry: &AuditEntry) -> bool {
        let Act { by, action, subject, .. } = &entry.act;
        self.tenant.as_ref().is_none_or(|tenant| subject.tenant.as_ref() == Some(tenant))
            && self.key.is_none_or(|key| by.key() == Some(key))
            && self.action.as_ref().is_none_or(|wanted| wanted == action)
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
    }
}

/// The leading bits of an IPv6 address: its owner has all of the rest.
const V6_BITS: u32 = 64;

/// The network of an address. What comes from one network is counted together.
pub fn source(address: Option<IpAddr>) -> u128 {
    match address {
        None => 0,
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
        Some(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(_) => address.to_bits(),
            None => address.to_bits() >> (u128::BITS - V6_BITS) << (u128::BITS - V6_BITS),
        },
    }
}

/// Cuts a text that an entry is to have.
pub fn cut(text: &str) -> String {
    let mut end = text.len().min(AUDIT_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let cursor = AuditCursor { at: Timestamp(1_800_000_000_000), id: AuditId(7) };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for wrong in ["", "-", "1", "1-", "-1", "a-1", "1-b", "1--1", "1-2-3"] {
            assert_eq!(wrong.parse::<AuditCursor>().unwrap_err().field, "after", "{wrong}");
        }
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.as_str()), Some(reason));
        }
        let id = "0123456789abcdef".parse().unwrap();
        let key = Actor::Key { id, role: Role::Viewer };
        let door = Actor::Door("other".into());
        let others = [Actor::Nobody, Actor::Insecure, door, Actor::Daemon];
        for actor in others.into_iter().chain([key]) {
            let again = Actor::from_parts(actor.as_str(), actor.key(), actor.role());
            assert_eq!(again, Some(actor));
        }
        for wrong in ["key", "", "Other", "an other"] {
            assert_eq!(Actor::from_parts(wrong, None, None), None, "{wrong}");
        }
        assert_eq!(Actor::from_parts("other", Some(id), Some(Role::Viewer)), None);
    }

    #[test]
    fn what_a_change_finds_out_completes_what_its_request_said() {
        let tenant = Some(Tenant::new("acme").unwrap());
        let name = Some(TypeName::new("t").unwrap());
        let (id, detail) = (Some("7".to_owned()), Some("viewer".to_owned()));
        let whole = Subject { tenant, name, id, detail };
        let known = || Subject { id: None, detail: None, ..whole.clone() };
        let found = || Subject { tenant: None, name: None, ..whole.clone() };
        for (mut subject, more) in [(known(), found()), (found(), known())] {
            subject.complete(more);
            assert_eq!(subject, whole);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"x".repeat(AUDIT_TEXT_BYTES_MAX + 1)), "x".repeat(AUDIT_TEXT_BYTES_MAX));
        // The second byte of the last character would be one too many.
        let long = format!("x{}", "é".repeat(AUDIT_TEXT_BYTES_MAX));
        assert_eq!(cut(&long), format!("x{}", "é".repeat(AUDIT_TEXT_BYTES_MAX / 2 - 1)));
    }
}
