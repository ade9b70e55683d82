//! Passwords and tokens. They are compared and sent, and cannot be printed.

use std::fmt;

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub fn matches(&self, text: &str) -> bool {
        let pairs = self.0.bytes().zip(text.bytes());
        let differences = pairs.fold(0, |all, (one, other)| all | (one ^ other));
        self.0.len() == text.len() && differences == 0
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
    fn a_secret_stays_hidden_until_it_is_asked_for() {
        let secret = Secret::new("pass");
        assert_eq!(secret.reveal(), "pass");
        assert_eq!(format!("{secret:?}"), "Secret(hidden)");
    }

    #[test]
    fn a_secret_matches_only_its_own_text() {
        let secret = Secret::new("pass");
        assert!(secret.matches("pass"));
        for other in ["", "pas", "passw", "Pass", "true"] {
            assert!(!secret.matches(other), "{other}");
        }
    }
}
