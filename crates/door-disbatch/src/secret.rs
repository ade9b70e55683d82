//! Passwords and tokens. They are checked and sent, and cannot be printed.

use std::fmt;

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
}
