//! Passwords. They are compared and sent, and cannot be printed.

use std::fmt;

/// What nobody may read in a log. One without a text matches nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Option<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(Some(text.into()))
    }

    /// A password that is no text, such as `password = true`: it is set, and nobody can give it.
    pub fn unmatchable() -> Secret {
        Secret(None)
    }

    pub fn reveal(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether it is this text; how long it takes says nothing of where they differ.
    pub fn matches(&self, text: &str) -> bool {
        let Some(secret) = &self.0 else { return false };
        let pairs = secret.bytes().zip(text.bytes());
        let differences = pairs.fold(0, |all, (one, other)| all | (one ^ other));
        secret.len() == text.len() && differences == 0
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
    fn secrets_match_themselves_only_and_stay_hidden() {
        let secret = Secret::new("pass");
        assert!(secret.matches("pass"));
        for other in ["", "pas", "passw", "Pass", "true"] {
            assert!(!secret.matches(other), "{other}");
            assert!(!Secret::unmatchable().matches(other), "{other}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(hidden)");
    }
}
