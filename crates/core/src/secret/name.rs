//! Names of secrets, which are names of environment variables.

use std::fmt;
use std::sync::Arc;

use crate::limit::SECRET_NAME_BYTES_MAX;
use crate::name::Invalid;

/// A valid name. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName(Arc<str>);

/// Variables that change how a process starts, or that Windlass sets.
const RESERVED: [&str; 24] = [
    "BASHOPTS",
    "BASH_ENV",
    "CDPATH",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "HOME",
    "IFS",
    "LANG",
    "LANGUAGE",
    "LOCPATH",
    "NLSPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "OPENSSL_CONF",
    "PATH",
    "PS4",
    "PWD",
    "SHELL",
    "SHELLOPTS",
    "SSLKEYLOGFILE",
    "TMPDIR",
    "TZ",
    "USER",
];
/// The same, for whole groups of variables.
const RESERVED_PREFIXES: [&str; 8] =
    ["LC_", "LD_", "MALLOC_", "PERL5", "PHP", "PYTHON", "RUBY", "WINDLASS_"];

impl SecretName {
    pub fn new(name: &str) -> Result<SecretName, Invalid> {
        let invalid = |reason: String| Err(Invalid::new("name", reason));
        if name.is_empty() || name.len() > SECRET_NAME_BYTES_MAX {
            let reason =
                format!("the name of a secret has 1 to {SECRET_NAME_BYTES_MAX} characters");
            return invalid(reason);
        }
        let is_allowed = |byte: u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
        if !name.bytes().all(is_allowed) || name.as_bytes()[0].is_ascii_digit() {
            let reason = "the name of a secret has only the letters A to Z, digits and '_', and \
                          does not begin with a digit";
            return invalid(reason.to_owned());
        }
        let is_of_group = RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if RESERVED.contains(&name) || is_of_group {
            let reason = format!(
                "a secret cannot be called {name}: this variable changes how a process starts, or \
                 is set by Windlass"
            );
            return invalid(reason);
        }
        Ok(SecretName(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretName({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ordinary_variables() {
        for name in ["STRIPE_KEY", "_", "A1", "NODE_AUTH_TOKEN", "PATHS", &"X".repeat(100)] {
            let read = SecretName::new(name).unwrap();
            assert_eq!((read.as_str(), read.to_string()), (name, name.to_owned()));
        }
        for name in ["", "1A", "a", "A-B", "A B", "Ä", "A=", "A\0", &"X".repeat(101)] {
            assert_eq!(SecretName::new(name).unwrap_err().field, "name", "{name}");
        }
    }

    #[test]
    fn names_that_change_how_a_process_starts_are_refused_with_a_sentence() {
        let group = ["LD_PRELOAD", "PYTHONPATH", "PHPRC", "WINDLASS_JOB_ID", "LC_ALL", "PERL5LIB"];
        for name in RESERVED.iter().chain(&group) {
            let refused = SecretName::new(name).unwrap_err().reason;
            assert!(refused.starts_with(&format!("a secret cannot be called {name}: ")));
        }
    }
}
