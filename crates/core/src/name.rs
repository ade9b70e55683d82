//! Tenants and types: who owns a job and what kind it is. A value of these types is always valid.

use std::fmt;
use std::sync::Arc;

use crate::limit::{TENANT_BYTES_MAX, TYPE_BYTES_MAX};

/// An invalid value from outside. `field` is the sender's name for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Invalid {
    pub field: String,
    pub reason: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Invalid {
        Invalid { field: field.into(), reason: reason.into() }
    }
}

/// Names that a tenant cannot have: first path segments of the HTTP door, and those below `/v1`
/// whose routes look like a tenant's.
pub const TENANTS_RESERVED: [&str; 9] =
    ["v1", "healthz", "readyz", "metrics", "openapi.json", "ui", "keys", "secrets", "tenants"];

/// Who owns jobs. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(Arc<str>);

impl Tenant {
    pub fn new(name: &str) -> Result<Tenant, Invalid> {
        let invalid = |reason: &str| Err(Invalid::new("tenant", reason));
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > TENANT_BYTES_MAX {
            return invalid(&format!("a tenant has 1 to {TENANT_BYTES_MAX} characters"));
        }
        if !bytes[0].is_ascii_alphanumeric() {
            return invalid("a tenant begins with a letter or a digit");
        }
        if !bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b)) {
            return invalid("a tenant has only letters, digits, '.', '_' and '-'");
        }
        if TENANTS_RESERVED.contains(&name) {
            return invalid("this name is reserved for a path of the HTTP door");
        }
        Ok(Tenant(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The kind of a job. Two tenants' types of the same name are unrelated.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeName(Arc<str>);

impl TypeName {
    pub fn new(name: &str) -> Result<TypeName, Invalid> {
        let invalid = |reason: &str| Err(Invalid::new("type", reason));
        if name.is_empty() || name.len() > TYPE_BYTES_MAX {
            return invalid(&format!("a type has 1 to {TYPE_BYTES_MAX} bytes"));
        }
        if name.chars().any(char::is_control) {
            return invalid("a type has no control characters");
        }
        if name.contains('|') {
            return invalid("a type has no '|'");
        }
        Ok(TypeName(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A type of one tenant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeKey {
    pub tenant: Tenant,
    pub name: TypeName,
}

impl TypeKey {
    pub fn new(tenant: &str, name: &str) -> Result<TypeKey, Invalid> {
        Ok(TypeKey { tenant: Tenant::new(tenant)?, name: TypeName::new(name)? })
    }
}

macro_rules! shown_as_text {
    ($($t:ty),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
    )*};
}
shown_as_text!(Tenant, TypeName);

/// `tenant/type`: unambiguous, because tenant names have no slash.
impl fmt::Display for TypeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.name)
    }
}

impl fmt::Debug for TypeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_follow_the_rule() {
        for good in ["a", "0", "acme", "a.b_c-d", &"x".repeat(64)] {
            assert!(Tenant::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "a|b", "ä", "a\n", "v1", "ui", &"x".repeat(65)] {
            assert_eq!(Tenant::new(bad).unwrap_err().field, "tenant", "{bad}");
        }
    }

    #[test]
    fn a_type_is_shown_with_its_tenant() {
        let key = TypeKey::new("acme", "mail").unwrap();
        assert_eq!((key.to_string(), format!("{key:?}")), ("acme/mail".into(), "acme/mail".into()));
    }

    #[test]
    fn types_follow_the_rule() {
        for good in ["t", "www-prod/Foo", "t.1", "ä ö", "a,b", &"x".repeat(255)] {
            assert!(TypeName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a|b", "a\nb", "a\0", "\u{85}", &"x".repeat(256), &"ä".repeat(128)] {
            assert_eq!(TypeName::new(bad).unwrap_err().field, "type", "{bad:?}");
        }
    }
}
