//! Passwords and tokens. They are compared and sent, and cannot be printed.

use std::fmt;

use subtle::ConstantTimeEq;

/// What nobody may read in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it is this text; how long it takes says nothing of where they differ.
    pub fn matches(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_matches_itself_only_and_stays_hidden() {
        let secret = Secret::new("pass");
        assert!(secret.matches("pass"));
        for other in ["", "pas", "passw", "Pass"] {
            assert!(!secret.matches(other), "{other}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(hidden)");
    }
}
